//! Changes of single resources, for the clients of the gateway that subscribed to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use mrtr_client::{Subscription, SubscriptionEvent, Transport};
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_server::{Change, ChangeNotifier, Server};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::upstream::Upstream;

/// The most resources of one upstream that are watched at a time: each is a request that stays
/// open.
const MAX_WATCHED: usize = 128;
/// The shortest time between two reported changes of a resource, and between two looks at what
/// clients subscribed to.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// The delay before a subscription that has ended is opened again.
const DELAY: Duration = Duration::from_secs(30);

/// Subscribes to the resources that clients of the gateway subscribed to, each at the upstream that
/// has it, and publishes their changes. Never ends.
///
/// Each resource has a subscription of its own, so that one that is refused concerns no other.
pub(crate) async fn forward_updates<T: Transport>(
    upstreams: &[Arc<Upstream<T>>],
    server: &Server,
    changes: &ChangeNotifier,
    relisted: &Notify,
) {
    let mut watched = changes.watched_resources();
    let mut open: HashMap<String, Watch> = HashMap::new();
    loop {
        let by_owner = watched.uris_by(|uri| {
            let key = server.resource_for(uri)?;
            upstreams.iter().position(|upstream| upstream.offers_resource(&key))
        });
        let mut wanted = HashMap::new();
        for (owner, uris) in by_owner {
            if uris.len() > MAX_WATCHED {
                tracing::warn!(
                    target: "mrtr::gateway",
                    upstream = upstreams.get(owner).map(|upstream| &*upstream.name),
                    MAX_WATCHED,
                    "not watching resources beyond the limit"
                );
            }
            wanted.extend(uris.into_iter().take(MAX_WATCHED).map(|uri| (uri, owner)));
        }
        open.retain(|uri, watch| wanted.get(uri) == Some(&watch.owner));
        for (uri, owner) in wanted {
            let Some(upstream) = upstreams.get(owner).filter(|_| !open.contains_key(&uri)) else {
                continue;
            };
            let watching = watch(Arc::clone(upstream), uri.clone(), changes.clone());
            let task = tokio::spawn(watching).abort_handle();
            open.insert(uri, Watch { owner, task });
        }
        tokio::select! {
            () = watched.changed() => {}
            () = relisted.notified() => {}
        }
        sleep(MIN_INTERVAL).await;
    }
}

/// The task that watches one resource. It ends when this is dropped.
struct Watch {
    owner: usize,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Publishes changes of one resource. When its subscription is opened, at first or again, it may
/// have changed before.
async fn watch<T: Transport>(upstream: Arc<Upstream<T>>, uri: String, changes: ChangeNotifier) {
    let filter = SubscriptionFilter::new().with_resource(uri.as_str());
    loop {
        if let Ok(mut subscription) = upstream.client.listen(&filter) {
            while let Some(has_changed) = next_changes(&mut subscription, &uri).await {
                if has_changed {
                    changes.publish(Change::Resource(uri.clone()));
                    sleep(MIN_INTERVAL).await;
                }
            }
        }
        sleep(DELAY).await;
    }
}

/// Waits for events, and returns true if one of those that have arrived is about the resource.
/// Returns `None` when the subscription has ended.
async fn next_changes(subscription: &mut Subscription, uri: &str) -> Option<bool> {
    let mut next = Some(subscription.next().await);
    let mut has_changed = false;
    while let Some(event) = next {
        let Some(Ok(event)) = event else {
            // What came before the end counts. The next call returns `None`.
            return has_changed.then_some(true);
        };
        has_changed |= match event {
            SubscriptionEvent::Acknowledged(granted) => {
                granted.resource_subscriptions.iter().any(|granted| granted == uri)
            }
            // This resource, or one that is part of it.
            SubscriptionEvent::ResourceUpdated(_) => true,
            _ => false,
        };
        next = subscription.next().now_or_never();
    }
    Some(has_changed)
}
