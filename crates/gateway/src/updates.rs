//! Changes of single resources, for the clients of the gateway that subscribed to them.

use std::future::pending;
use std::time::Duration;

use futures_util::StreamExt as _;
use mrtr_client::{Subscription, SubscriptionEvent, Transport};
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_server::{Change, ChangeNotifier, Server};
use tokio::time::{sleep, timeout};

use crate::upstream::Upstream;

/// The longest time to wait for the acknowledgement of a subscription before the one that it
/// replaces is closed.
const MAX_OPENING: Duration = Duration::from_secs(10);
/// The delay before a subscription that has ended is opened again.
const DELAY: Duration = Duration::from_secs(30);

/// Subscribes to the resources of an upstream that clients of the gateway subscribed to, and
/// publishes their changes. Never ends.
pub(crate) async fn forward_updates<T: Transport>(
    upstream: &Upstream<T>,
    server: &Server,
    changes: &ChangeNotifier,
) {
    let mut watched = changes.watched_resources();
    let mut current = Updates::default();
    loop {
        let is_here = |uri: &String| {
            server.resource_for(uri).is_some_and(|key| upstream.offers_resource(&key))
        };
        let uris: Vec<_> = watched.uris().into_iter().filter(is_here).collect();
        if uris != current.uris {
            let mut next = Updates::subscribe(upstream, uris);
            // The new subscription is open before the old one ends, so that no change is missed.
            tokio::select! {
                _ = timeout(MAX_OPENING, next.opened()) => {}
                never = current.forward(upstream, changes) => match never {}
            }
            current = next;
        }
        tokio::select! {
            () = watched.changed() => {}
            () = upstream.relisted.notified() => {}
            never = current.forward(upstream, changes) => match never {}
        }
    }
}

/// A subscription to resources of an upstream.
#[derive(Default)]
struct Updates {
    uris: Vec<String>,
    /// `None` without resources, and after an end.
    subscription: Option<Subscription>,
    /// True after the first acknowledgement.
    is_open: bool,
}

impl Updates {
    fn subscribe<T: Transport>(upstream: &Upstream<T>, uris: Vec<String>) -> Self {
        Self { subscription: listen(upstream, &uris), uris, is_open: false }
    }

    /// Waits for the acknowledgement, or for the end.
    async fn opened(&mut self) {
        if let Some(subscription) = &mut self.subscription {
            match subscription.next().await {
                Some(Ok(_)) => self.is_open = true,
                _ => self.subscription = None,
            }
        }
    }

    /// Publishes changes. A subscription that has ended is opened again.
    async fn forward<T: Transport>(
        &mut self,
        upstream: &Upstream<T>,
        changes: &ChangeNotifier,
    ) -> std::convert::Infallible {
        if self.uris.is_empty() {
            return pending().await;
        }
        loop {
            let event = match &mut self.subscription {
                Some(subscription) => subscription.next().await,
                None => None,
            };
            match event {
                // An upstream reports no changes of resources of another one.
                Some(Ok(SubscriptionEvent::ResourceUpdated(uri))) if self.uris.contains(&uri) => {
                    changes.publish(Change::Resource(uri));
                }
                Some(Ok(SubscriptionEvent::Acknowledged(_))) => {
                    // Connected again: changes may have been missed.
                    if std::mem::replace(&mut self.is_open, true) {
                        let uris = self.uris.iter().cloned().map(Change::Resource);
                        uris.for_each(|change| changes.publish(change));
                    }
                }
                Some(Ok(_)) => {}
                None | Some(Err(_)) => {
                    self.subscription = None;
                    sleep(DELAY).await;
                    self.subscription = listen(upstream, &self.uris);
                }
            }
        }
    }
}

fn listen<T: Transport>(upstream: &Upstream<T>, uris: &[String]) -> Option<Subscription> {
    let filter = SubscriptionFilter::new();
    let filter = uris.iter().fold(filter, |filter, uri| filter.with_resource(uri.as_str()));
    if uris.is_empty() { None } else { upstream.client.listen(&filter).ok() }
}
