//! Gateways, and how they keep up with their upstreams.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt as _, StreamExt as _};
use mrtr_client::{BoxError, Subscription, SubscriptionEvent, Transport};
use mrtr_schema::capabilities::ListCapability;
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_server::{ChangeNotifier, Server};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::features::offer;
use crate::listed::Listed;
use crate::updates::forward_updates;
use crate::upstream::Upstream;

/// A server whose tools, prompts and resources are those of upstream servers.
///
/// The crate's page has an example.
pub struct Gateway<T> {
    pub(crate) server: Server,
    pub(crate) changes: ChangeNotifier,
    /// Notified when what any upstream offers has changed.
    pub(crate) relisted: Arc<Notify>,
    pub(crate) upstreams: Arc<[Arc<Upstream<T>>]>,
    pub(crate) list_timeout: Duration,
    pub(crate) refresh_interval: Duration,
}

/// The error of an upstream that could not be listed. Returned by [`Gateway::refresh`].
#[derive(Debug)]
pub struct RefreshError {
    upstream: String,
    source: BoxError,
}

impl RefreshError {
    /// Returns the prefix of the upstream.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }
}

impl fmt::Display for RefreshError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot list what the upstream {:?} offers", self.upstream)
    }
}

impl Error for RefreshError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// The shortest time between two listings of an upstream, so that one which reports changes without
/// end does not keep the gateway busy.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The longest delay after listings that failed.
const MAX_DELAY: Duration = Duration::from_secs(30);

impl<T: Transport> Gateway<T> {
    /// Returns the server, whose clones share what it offers. What is disabled there stays disabled
    /// if its upstream stops listing it and it is listed again, even by another upstream. It can be
    /// enabled while it is listed.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Lists what all upstreams offer, and offers it. Upstreams are listed concurrently, each
    /// within the [timeout](crate::GatewayBuilder::list_timeout).
    ///
    /// An upstream that cannot be listed does not hold up the others: a warning is logged, and what
    /// it offered before is still offered. Returns the errors of these upstreams.
    pub async fn refresh(&self) -> Vec<RefreshError> {
        let all = self.upstreams.iter().map(|upstream| self.refresh_one(upstream));
        join_all(all).await.into_iter().filter_map(Result::err).collect()
    }

    /// Keeps up with the upstreams until the future is dropped: lists an upstream when it reports a
    /// change, when the [interval](crate::GatewayBuilder::refresh_interval) has passed, and, with a
    /// delay that grows to 30 s, after a listing that failed.
    ///
    /// Clients that subscribed to lists of the gateway's server are told of each change. So are
    /// clients that subscribed to a resource of an upstream.
    pub async fn run(&self) {
        let watching = join_all(self.upstreams.iter().map(|upstream| self.watch(upstream)));
        let updates = forward_updates(&self.upstreams, &self.server, &self.changes, &self.relisted);
        tokio::join!(watching, updates);
    }

    async fn watch(&self, upstream: &Arc<Upstream<T>>) {
        let (mut changes, mut delay) = (None, MIN_INTERVAL);
        loop {
            if changes.is_none() {
                changes = timeout(self.list_timeout, subscribe(upstream)).await.ok().flatten();
            }
            let pause = if self.refresh_one(upstream).await.is_ok() {
                delay = MIN_INTERVAL;
                self.refresh_interval
            } else {
                delay = MAX_DELAY.min(delay * 2);
                delay
            };
            sleep(MIN_INTERVAL).await;
            tokio::select! {
                () = sleep(pause.saturating_sub(MIN_INTERVAL)) => {}
                () = changed(&mut changes) => {}
            }
        }
    }

    /// Lists one upstream.
    async fn refresh_one(&self, upstream: &Arc<Upstream<T>>) -> Result<(), RefreshError> {
        let error: BoxError = match timeout(self.list_timeout, Listed::read(&upstream.client)).await
        {
            Ok(Ok(listed)) => match offer(listed, upstream, &self.server) {
                Ok(()) => return Ok(()),
                Err(error) => error.into(),
            },
            Ok(Err(error)) => error.into(),
            Err(_) => format!("no answer within {:?}", self.list_timeout).into(),
        };
        tracing::warn!(
            target: "mrtr::gateway",
            upstream = upstream.name,
            error = &*error as &dyn Error,
            "cannot list what the upstream offers"
        );
        Err(RefreshError { upstream: upstream.name.clone(), source: error })
    }
}

/// Subscribes to changes of the lists that the upstream reports according to its capabilities.
/// Returns `None` if there are none, or if these are unknown.
async fn subscribe<T: Transport>(upstream: &Upstream<T>) -> Option<Subscription> {
    let capabilities = upstream.client.discover().await.ok()?.capabilities;
    let reports = |list: Option<ListCapability>| list.and_then(|list| list.list_changed);
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = reports(capabilities.tools).unwrap_or_default();
    filter.prompts_list_changed = reports(capabilities.prompts).unwrap_or_default();
    let of_resources = capabilities.resources.and_then(|resources| resources.list_changed);
    filter.resources_list_changed = of_resources.unwrap_or_default();
    if filter == SubscriptionFilter::new() {
        return None;
    }
    upstream.client.listen(&filter).ok()
}

/// Waits for changes. A subscription that has ended is dropped, and counts as a change after
/// [`MAX_DELAY`]: changes may have been missed.
async fn changed(changes: &mut Option<Subscription>) {
    let Some(subscription) = changes else { return std::future::pending().await };
    let mut event = subscription.next().await;
    let mut has_changed = false;
    // One listing answers all changes that have arrived.
    while let Some(Ok(change)) = &event {
        // Some servers acknowledge a subscription and end it at once, again and again.
        has_changed |= !matches!(change, SubscriptionEvent::Acknowledged(_));
        match subscription.next().now_or_never() {
            Some(next) => event = next,
            None => return,
        }
    }
    {
        let error = event.and_then(Result::err);
        let error = error.as_ref().map(|error| error as &dyn Error);
        tracing::debug!(target: "mrtr::gateway", error, "the subscription to an upstream has ended");
    }
    *changes = None;
    if !has_changed {
        sleep(MAX_DELAY).await;
    }
}

impl<T> fmt::Debug for Gateway<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("upstreams", &self.upstreams).finish_non_exhaustive()
    }
}
