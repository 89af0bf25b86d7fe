//! Changes of the tasks of upstreams, for the clients of the gateway that subscribed to them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
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
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

use crate::task_ids::TaskIds;
use crate::tasks::{request_params, result_for_caller};
use crate::upstream::Upstream;

/// The longest time that an upstream may take to acknowledge a subscription.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(2);
/// The shortest time between two readings of the tasks of one subscription.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
/// The interval at which tasks are read after their upstream has ended the subscription, or granted
/// less of it.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

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
/// The tasks of an upstream that does not acknowledge the subscription in time, or that has too
/// many already, are left out, and the caller polls them.
async fn subscribe<T: Transport>(
    mut task_ids: Vec<String>,
    caller: Arc<RequestParts>,
    upstreams: Arc<[Arc<Upstream<T>>]>,
    ids: TaskIds,
) -> TaskUpdates {
    let mut of_upstreams: BTreeMap<String, BTreeMap<String, Watched>> = BTreeMap::new();
    for task_id in &task_ids {
        if let Some((upstream, own)) = ids.open(task_id, &caller) {
            let watched = Watched { id: task_id.clone(), sent: None };
            of_upstreams.entry(upstream).or_default().insert(own, watched);
        }
    }
    let watches = upstreams.iter().filter_map(|upstream| {
        let tasks = of_upstreams.remove(&upstream.name)?;
        Some(Watch::open(Arc::clone(upstream), Arc::clone(&caller), tasks))
    });
    let watches: Vec<_> = join_all(watches).await.into_iter().flatten().collect();
    let granted: HashSet<&String> =
        watches.iter().flat_map(|watch| watch.tasks.values().map(|task| &task.id)).collect();
    task_ids.retain(|task_id| granted.contains(task_id));
    TaskUpdates::new(task_ids, select_all(watches.into_iter().map(|watch| watch.updates().boxed())))
}

/// A task in a subscription.
struct Watched {
    /// The id that the caller knows.
    id: String,
    /// The JSON that was sent last.
    sent: Option<String>,
}

/// The tasks of one upstream in the subscription of a caller.
struct Watch<T> {
    upstream: Arc<Upstream<T>>,
    caller: Arc<RequestParts>,
    /// The tasks by the upstream's ids.
    tasks: BTreeMap<String, Watched>,
    /// `None` when it has ended.
    subscription: Option<Subscription>,
    /// True while the upstream reports the changes of all tasks.
    is_complete: bool,
    /// True if a task could not be read.
    has_failed: bool,
    /// The tasks that may have changed since they were read.
    changed: BTreeSet<String>,
    next_read: Instant,
    next_poll: Instant,
    _permit: OwnedSemaphorePermit,
}

impl<T: Transport> Watch<T> {
    /// Subscribes to the tasks. Returns `None` if the upstream grants none of them.
    async fn open(
        upstream: Arc<Upstream<T>>,
        caller: Arc<RequestParts>,
        tasks: BTreeMap<String, Watched>,
    ) -> Option<Self> {
        let permit = Arc::clone(&upstream.task_watches).try_acquire_owned();
        let mut watch = Self {
            tasks,
            subscription: None,
            is_complete: false,
            has_failed: false,
            changed: BTreeSet::new(),
            next_read: Instant::now(),
            next_poll: Instant::now() + POLL_INTERVAL,
            _permit: permit.ok()?,
            upstream,
            caller,
        };
        watch.listen();
        let granted = timeout(ACKNOWLEDGEMENT, watch.acknowledgement()).await.ok().flatten();
        let granted = granted.unwrap_or_default();
        watch.tasks.retain(|own, _| granted.contains(own));
        watch.acknowledged(&granted);
        (!watch.tasks.is_empty()).then_some(watch)
    }

    fn listen(&mut self) {
        let filter =
            self.tasks.keys().fold(SubscriptionFilter::new(), SubscriptionFilter::with_task);
        self.subscription = self.upstream.client_of_task(&self.caller).listen(&filter).ok();
        self.is_complete = false;
    }

    /// Waits for the first event of the subscription. Returns the tasks that it grants.
    async fn acknowledgement(&mut self) -> Option<Vec<String>> {
        match self.subscription.as_mut()?.next().await? {
            Ok(SubscriptionEvent::Acknowledged(granted)) => Some(granted.task_ids),
            _ => None,
        }
    }

    /// Notes what the upstream grants. Changes before may have been missed.
    fn acknowledged(&mut self, granted: &[String]) {
        self.is_complete = self.tasks.keys().all(|own| granted.contains(own));
        self.changed = self.tasks.keys().cloned().collect();
    }

    /// Returns the tasks as the caller sees them, now and when they have changed, until all of them
    /// have ended or are gone.
    fn updates(self) -> impl Stream<Item = DetailedTask> + Send + 'static {
        stream::unfold(self, |mut watch| async move {
            while !watch.tasks.is_empty() {
                let Some(own) = watch.changed.pop_first() else {
                    sleep_until(watch.next_read).await;
                    watch.wait().await;
                    continue;
                };
                if let Some(task) = watch.read(&own).await {
                    return Some((task, watch));
                }
            }
            None
        })
    }

    /// Waits for an event, or until the tasks are to be polled.
    async fn wait(&mut self) {
        let event = async {
            match &mut self.subscription {
                Some(subscription) => subscription.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = event => self.handle(event),
            () = sleep_until(self.next_poll) => {
                self.next_poll = Instant::now() + POLL_INTERVAL;
                if !self.is_complete || self.has_failed {
                    self.has_failed = false;
                    self.changed = self.tasks.keys().cloned().collect();
                }
                if self.subscription.is_none() {
                    self.listen();
                }
            }
        }
        // All events that have arrived are handled together.
        while let Some(event) = self.subscription.as_mut().and_then(|s| s.next().now_or_never()) {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Option<Result<SubscriptionEvent, CallError>>) {
        match event {
            Some(Ok(SubscriptionEvent::Acknowledged(granted))) => {
                self.acknowledged(&granted.task_ids);
            }
            // An upstream reports no changes of other tasks.
            Some(Ok(SubscriptionEvent::TaskUpdated(task))) => {
                if self.tasks.contains_key(&task.task_id) {
                    self.changed.insert(task.task_id);
                }
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => {
                self.subscription = None;
                self.is_complete = false;
            }
        }
    }

    /// Reads a task. Returns `None` if nothing has changed. A task that has ended, or is gone, is
    /// not watched further.
    async fn read(&mut self, own: &str) -> Option<DetailedTask> {
        let Watched { id, sent } = self.tasks.get_mut(own)?;
        self.next_read = Instant::now() + MIN_INTERVAL;
        match get(&self.upstream, &self.caller, own, id.clone()).await {
            Ok(Some((task, json))) => {
                let has_changed = sent.as_ref() != Some(&json);
                *sent = Some(json);
                if task.task().status.is_terminal() {
                    self.tasks.remove(own);
                }
                has_changed.then_some(task)
            }
            Ok(None) => {
                self.tasks.remove(own);
                None
            }
            Err(error) => {
                let upstream = &self.upstream.name;
                tracing::debug!(target: "mrtr::gateway", upstream, error, "cannot read a task");
                self.has_failed = true;
                None
            }
        }
    }
}

/// Reads a task, for the caller, and returns also its JSON. Returns `None` if it does not exist.
async fn get<T: Transport>(
    upstream: &Upstream<T>,
    caller: &RequestParts,
    own: &str,
    id: String,
) -> Result<Option<(DetailedTask, String)>, BoxError> {
    let client = upstream.client_of_task(caller);
    let request = client.request(method::TASKS_GET, request_params(own));
    let result = match timeout(upstream.request_timeout, request).await? {
        Err(error) if is_unknown(&error) => return Ok(None),
        result => result?,
    };
    let result = result_for_caller(result, own, id, upstream, caller);
    let result = result.map_err(|error| error.to_string())?;
    // Raw JSON cannot be read from a value.
    let json = serde_json::to_string(&result)?;
    let TaskNotification { task, .. } = serde_json::from_str(&json)?;
    Ok(Some((task, json)))
}

fn is_unknown(error: &CallError) -> bool {
    error.as_server_error().is_some_and(|error| error.code == code::INVALID_PARAMS)
}
