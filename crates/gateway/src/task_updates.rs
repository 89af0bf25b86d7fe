//! Changes of the tasks of upstreams, for the clients of the gateway that subscribed to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, select_all};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use mrtr_client::{BoxError, CallError, Subscription, SubscriptionEvent, Transport};
use mrtr_schema::jsonrpc::code;
use mrtr_schema::method;
use mrtr_schema::subscription::SubscriptionFilter;
use mrtr_schema::tasks::{DetailedTask, TaskNotification};
use mrtr_server::tasks::TaskUpdates;
use mrtr_server::{RequestParts, ServerBuilder};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::task_ids::TaskIds;
use crate::tasks::{request_params, result_for_caller};
use crate::upstream::Upstream;

/// The longest time that an upstream may take to acknowledge a subscription.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(10);
/// The delay before a subscription that has ended is opened again, and before a task that could not
/// be read is read again.
const DELAY: Duration = Duration::from_secs(30);

/// Lets clients of `server` subscribe to tasks of upstreams.
pub(crate) fn serve_task_updates<T: Transport>(
    server: ServerBuilder,
    upstreams: &Arc<[Arc<Upstream<T>>]>,
    ids: &TaskIds,
) -> ServerBuilder {
    let (upstreams, ids) = (Arc::clone(upstreams), ids.clone());
    server.task_subscriptions(move |task_ids, caller| {
        subscribe(task_ids, caller, Arc::clone(&upstreams), ids.clone())
    })
}

/// Subscribes to those of the tasks that are the caller's, each at its upstream.
///
/// An upstream that does not acknowledge the subscription in time does not hold up the others: its
/// tasks are left out, and the caller polls them.
async fn subscribe<T: Transport>(
    task_ids: Vec<String>,
    caller: Arc<RequestParts>,
    upstreams: Arc<[Arc<Upstream<T>>]>,
    ids: TaskIds,
) -> TaskUpdates {
    let mut of_upstreams: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for task_id in task_ids {
        if let Some((upstream, own)) = ids.open(&task_id, &caller) {
            of_upstreams.entry(upstream).or_default().insert(own, task_id);
        }
    }
    let watches = upstreams.iter().filter_map(|upstream| {
        let tasks = of_upstreams.remove(&upstream.name)?;
        Some(Watch::open(Arc::clone(upstream), Arc::clone(&caller), tasks))
    });
    let watches: Vec<_> = join_all(watches).await.into_iter().flatten().collect();
    let granted = watches.iter().flat_map(|watch| watch.tasks.values().cloned()).collect();
    TaskUpdates::new(granted, select_all(watches.into_iter().map(|watch| watch.updates().boxed())))
}

/// The tasks of one upstream in the subscription of a caller.
struct Watch<T> {
    upstream: Arc<Upstream<T>>,
    caller: Arc<RequestParts>,
    /// The upstream's ids, and those that the caller knows.
    tasks: BTreeMap<String, String>,
    subscription: Option<Subscription>,
    /// The tasks that may have changed since they were read.
    changed: BTreeSet<String>,
    /// Those that could not be read, and when that is tried again.
    failed: BTreeSet<String>,
    retry_at: Instant,
}

impl<T: Transport> Watch<T> {
    /// Subscribes to the tasks. Returns `None` if the upstream grants none of them.
    async fn open(
        upstream: Arc<Upstream<T>>,
        caller: Arc<RequestParts>,
        tasks: BTreeMap<String, String>,
    ) -> Option<Self> {
        let mut watch = Self {
            upstream,
            caller,
            tasks,
            subscription: None,
            changed: BTreeSet::new(),
            failed: BTreeSet::new(),
            retry_at: Instant::now(),
        };
        watch.listen();
        let acknowledged = timeout(ACKNOWLEDGEMENT, watch.next_changes()).await;
        if !matches!(acknowledged, Ok(Some(()))) {
            let upstream = &watch.upstream.name;
            tracing::debug!(target: "mrtr::gateway", upstream, "no subscription to its tasks");
            return None;
        }
        let Self { tasks, changed, .. } = &mut watch;
        tasks.retain(|own, _| changed.contains(own));
        (!tasks.is_empty()).then_some(watch)
    }

    /// Returns the tasks as the caller sees them, now and when they have changed, until all of them
    /// have ended or are gone.
    fn updates(self) -> impl Stream<Item = DetailedTask> + Send + 'static {
        stream::unfold(self, |mut watch| async move {
            loop {
                if watch.tasks.is_empty() {
                    return None;
                }
                match watch.changed.pop_first() {
                    Some(own) => {
                        if let Some(task) = watch.read(own).await {
                            return Some((task, watch));
                        }
                    }
                    None => watch.wait().await,
                }
            }
        })
    }

    fn listen(&mut self) {
        let filter =
            self.tasks.keys().fold(SubscriptionFilter::new(), SubscriptionFilter::with_task);
        self.subscription = self.upstream.client_of_task(&self.caller).listen(&filter).ok();
    }

    /// Waits until a task may have changed, or is to be read again.
    async fn wait(&mut self) {
        let (retry_at, has_failed) = (self.retry_at, !self.failed.is_empty());
        tokio::select! {
            changes = self.next_changes() => {
                if changes.is_none() {
                    sleep(DELAY).await;
                    self.listen();
                }
            }
            () = sleep_until(retry_at), if has_failed => self.changed.append(&mut self.failed),
        }
    }

    /// Waits for events, and notes which tasks they are about. Returns `None` when the subscription
    /// has ended.
    async fn next_changes(&mut self) -> Option<()> {
        let subscription = self.subscription.as_mut()?;
        let mut next = subscription.next().await;
        loop {
            match next {
                // At first, and again after each reconnection.
                Some(Ok(SubscriptionEvent::Acknowledged(granted))) => {
                    self.changed.extend(granted.task_ids);
                }
                Some(Ok(SubscriptionEvent::TaskUpdated(task))) => {
                    self.changed.insert(task.task_id);
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => {
                    self.subscription = None;
                    break;
                }
            }
            match subscription.next().now_or_never() {
                Some(event) => next = event,
                None => break,
            }
        }
        // An upstream reports no changes of other tasks.
        self.changed.retain(|own| self.tasks.contains_key(own));
        Some(())
    }

    /// Reads a task. One that has ended, or is gone, is not watched further.
    async fn read(&mut self, own: String) -> Option<DetailedTask> {
        let id = self.tasks.get(&own)?.clone();
        match get(&self.upstream, &self.caller, &own, id).await {
            Ok(task) => {
                if task.as_ref().is_none_or(|task| task.task().status.is_terminal()) {
                    self.tasks.remove(&own);
                }
                task
            }
            Err(error) => {
                let upstream = &self.upstream.name;
                tracing::debug!(target: "mrtr::gateway", upstream, error, "cannot read a task");
                if self.failed.is_empty() {
                    self.retry_at = Instant::now() + DELAY;
                }
                self.failed.insert(own);
                None
            }
        }
    }
}

/// Reads a task, for the caller. Returns `None` if it does not exist.
async fn get<T: Transport>(
    upstream: &Upstream<T>,
    caller: &RequestParts,
    own: &str,
    id: String,
) -> Result<Option<DetailedTask>, BoxError> {
    let client = upstream.client_of_task(caller);
    let result = match client.request(method::TASKS_GET, request_params(own)).await {
        Err(error) if is_unknown(&error) => return Ok(None),
        result => result?,
    };
    let result = result_for_caller(result, own, id, upstream, caller);
    let result = result.map_err(|error| error.to_string())?;
    // Raw JSON cannot be read from a value.
    let task: TaskNotification = serde_json::from_str(&serde_json::to_string(&result)?)?;
    Ok(Some(task.task))
}

fn is_unknown(error: &CallError) -> bool {
    error.as_server_error().is_some_and(|error| error.code == code::INVALID_PARAMS)
}
