//! Subscriptions (`subscriptions/listen`), as streams.

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use mrtr_schema::jsonrpc::{Notification, Response};
use mrtr_schema::method;
use mrtr_schema::result::ResultType;
use mrtr_schema::subscription::{Acknowledged, Changed, SubscriptionFilter, name};
use mrtr_schema::tasks::{Task, TaskNotification};
use mrtr_transport::{OutgoingRequest, Transport, TransportError};
use serde_json::value::RawValue;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep};

use crate::backoff::jittered;
use crate::client::Client;
use crate::error::CallError;
use crate::json::{encode_param, malformed};
use crate::machine::{Action, Machine};

/// A change that the server reports to a [`Subscription`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriptionEvent {
    /// The server acknowledged the subscription to these changes.
    ///
    /// It is the first event, and comes again after each reconnection. Changes before it may have
    /// been missed.
    Acknowledged(SubscriptionFilter),
    /// The list of tools changed.
    ToolsListChanged,
    /// The list of prompts changed.
    PromptsListChanged,
    /// The list of resources changed.
    ResourcesListChanged,
    /// The resource with this URI changed.
    ResourceUpdated(String),
    /// A task changed. [`Client::resume`] or [`Client::finish`] the call that it belongs to.
    TaskUpdated(Task),
}

/// A stream of changes that the server reports. Created by [`Client::listen`].
///
/// It reconnects when the connection fails or the server is overloaded: after 125 to 250 ms, and
/// twice as long each time, up to 30 s. A connection that lasted for 30 s resets the delay. The
/// server's `Retry-After` is added, up to 10 min.
///
/// The stream ends when the server ends the subscription, and after an error. Dropping it
/// unsubscribes.
pub struct Subscription {
    /// Sends the request, for the first connection and each reconnection.
    connect: Box<Connect>,
    sender: Arc<NotificationSender>,
    notifications: UnboundedReceiver<Notification>,
    state: State,
    connected_at: Instant,
    /// The longest delay before the next reconnection.
    delay: Duration,
}

type NotificationSender = UnboundedSender<Notification>;
type Connect = dyn Fn(Arc<NotificationSender>) -> Result<Connection, CallError> + Send;
type Connection = Pin<Box<dyn Future<Output = Result<Response, TransportError>> + Send>>;

enum State {
    Connected(Connection),
    Waiting(Pin<Box<Sleep>>),
    /// The error is returned after the events that came before it.
    Ended(Option<CallError>),
}

const MIN_DELAY: Duration = Duration::from_millis(250);
/// The longest delay, and the time after which a connection counts as stable.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The longest `Retry-After` that is added to a delay.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

impl<T: Transport> Client<T> {
    /// Subscribes to changes that the server reports (`subscriptions/listen`).
    ///
    /// Cached results that change are removed from the cache before the stream yields the event.
    ///
    /// # Errors
    ///
    /// If the request cannot be written. The stream yields later errors.
    ///
    /// ```
    /// # use mrtr_client::{CallError, Client, Transport};
    /// # async fn example<T: Transport>(client: Client<T>) -> Result<(), CallError> {
    /// use futures_util::StreamExt as _;
    /// use mrtr_client::SubscriptionEvent;
    /// use mrtr_schema::subscription::SubscriptionFilter;
    ///
    /// let filter = SubscriptionFilter::new().with_tools();
    /// let mut subscription = client.listen(&filter)?;
    /// while let Some(event) = subscription.next().await {
    ///     match event? {
    ///         SubscriptionEvent::Acknowledged(filter) => println!("subscribed to {filter:?}"),
    ///         SubscriptionEvent::ToolsListChanged => {
    ///             println!("{} tools", client.list_tools().await?.len());
    ///         }
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn listen(&self, filter: &SubscriptionFilter) -> Result<Subscription, CallError> {
        let shared = Arc::clone(&self.shared);
        let (requested, meta, limits) = (filter.clone(), self.common_meta(), self.options.limits);
        let filter = encode_param(filter)?;
        Subscription::new(move |sender| {
            let params = vec![("notifications".to_owned(), filter.clone())];
            let (ids, meta) = (shared.ids.clone(), meta.clone());
            let (_, first) = Machine::start(ids, method::LISTEN, params, meta, limits)?;
            let Action::Send(request) = first else {
                return Err(CallError::request("internal error: a call starts with a request"));
            };
            let shared = Arc::clone(&shared);
            let requested = requested.clone();
            Ok(Box::pin(async move {
                let heard = |notification| {
                    shared.cache.invalidate(&notification);
                    warn_of_reduced_filter(&notification, &requested);
                    // The receiver is gone if the stream was dropped.
                    let _ = sender.send(notification);
                };
                let outgoing = OutgoingRequest::new(request)
                    .with_long_lived(true)
                    .with_notification_handler(&heard);
                shared.transport.send(outgoing).await
            }))
        })
    }
}

/// Logs a warning if an acknowledgement grants less than the filter requested.
fn warn_of_reduced_filter(notification: &Notification, requested: &SubscriptionFilter) {
    if notification.method != name::ACKNOWLEDGED {
        return;
    }
    let Ok(Acknowledged { notifications: granted, .. }) = notification.decode_params() else {
        return;
    };
    let missing = |requested: &[String], granted: &[String]| {
        let granted: HashSet<_> = granted.iter().collect();
        requested.iter().filter(|one| !granted.contains(one)).count()
    };
    let tools = requested.tools_list_changed && !granted.tools_list_changed;
    let prompts = requested.prompts_list_changed && !granted.prompts_list_changed;
    let list = requested.resources_list_changed && !granted.resources_list_changed;
    let resources = missing(&requested.resource_subscriptions, &granted.resource_subscriptions);
    // Not their ids: knowing one may be enough to access the task.
    let tasks = missing(&requested.task_ids, &granted.task_ids);
    if tools || prompts || list || resources + tasks > 0 {
        tracing::warn!(
            target: "mrtr::client",
            missing_tools = tools,
            missing_prompts = prompts,
            missing_resource_list = list,
            missing_resources = resources,
            missing_tasks = tasks,
            "the server granted less of the subscription than requested"
        );
    }
}

impl Subscription {
    fn new(
        connect: impl Fn(Arc<NotificationSender>) -> Result<Connection, CallError> + Send + 'static,
    ) -> Result<Self, CallError> {
        // Unbounded, because it holds no more than the notifications of one read: transports yield
        // after each, and `poll_next` empties it before it polls the connection.
        let (sender, notifications) = unbounded_channel();
        let sender = Arc::new(sender);
        let state = State::Connected(connect(Arc::clone(&sender))?);
        Ok(Self {
            connect: Box::new(connect),
            sender,
            notifications,
            state,
            connected_at: Instant::now(),
            delay: MIN_DELAY,
        })
    }

    /// Returns the next event among the received notifications.
    fn next_received(&mut self) -> Option<Result<SubscriptionEvent, CallError>> {
        while let Ok(notification) = self.notifications.try_recv() {
            match decode(&notification) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => {
                    self.state = State::Ended(None);
                    while self.notifications.try_recv().is_ok() {}
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// Waits before the next connection.
    fn wait_to_reconnect(&mut self, error: &TransportError) {
        tracing::debug!(target: "mrtr::client", %error, "reconnecting a subscription");
        if self.connected_at.elapsed() >= MAX_DELAY {
            self.delay = MIN_DELAY;
        }
        let retry_after = error.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER);
        let delay = jittered(self.delay) + retry_after;
        self.state = State::Waiting(Box::pin(sleep(delay)));
        self.delay = (self.delay * 2).min(MAX_DELAY);
    }

    fn reconnect(&mut self) -> Result<(), CallError> {
        self.connected_at = Instant::now();
        self.state = State::Connected((self.connect)(Arc::clone(&self.sender))?);
        Ok(())
    }
}

impl Stream for Subscription {
    type Item = Result<SubscriptionEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let this = &mut *self;
            if let Some(event) = this.next_received() {
                return Poll::Ready(Some(event));
            }
            let polled = match &mut this.state {
                State::Ended(error) => return Poll::Ready(error.take().map(Err)),
                State::Waiting(delay) => {
                    ready!(delay.as_mut().poll(cx));
                    if let Err(error) = this.reconnect() {
                        this.state = State::Ended(None);
                        return Poll::Ready(Some(Err(error)));
                    }
                    continue;
                }
                State::Connected(connection) => connection.as_mut().poll(cx),
            };
            match polled {
                // The connection may have delivered notifications in this very poll.
                Poll::Pending if this.notifications.is_empty() => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(Err(error)) if error.is_subscription_ended() => {
                    this.state = State::Ended(None);
                }
                Poll::Ready(Err(error)) if error.is_transient() => this.wait_to_reconnect(&error),
                Poll::Ready(ended) => {
                    let outcome = match ended.map(|response| response.outcome) {
                        Ok(Ok(result)) => validate_end(&result),
                        Ok(Err(error)) => Err(CallError::server(error)),
                        Err(error) => Err(error.into()),
                    };
                    this.state = State::Ended(outcome.err());
                }
            }
        }
    }
}

/// Validates the result that ends a subscription.
fn validate_end(result: &RawValue) -> Result<(), CallError> {
    match ResultType::from_result(result) {
        Ok(ResultType::Complete) => Ok(()),
        Ok(other) => Err(CallError::protocol(format!(
            "the subscription ended with a result of type {other:?}"
        ))),
        Err(error) => Err(malformed(&format!("result of {}", method::LISTEN), &error)),
    }
}

/// Decodes a notification, or returns `None` if it does not concern subscriptions.
fn decode(notification: &Notification) -> Result<Option<SubscriptionEvent>, CallError> {
    let malformed = |error| malformed(&notification.method, &error);
    Ok(Some(match notification.method.as_str() {
        name::TOOLS => SubscriptionEvent::ToolsListChanged,
        name::PROMPTS => SubscriptionEvent::PromptsListChanged,
        name::RESOURCES => SubscriptionEvent::ResourcesListChanged,
        name::RESOURCE_UPDATED => {
            let changed: Changed = notification.decode_params().map_err(malformed)?;
            let uri = changed.uri.ok_or_else(|| {
                CallError::protocol(format!("{} without `uri`", notification.method))
            })?;
            SubscriptionEvent::ResourceUpdated(uri)
        }
        name::TASK => {
            let changed: TaskNotification = notification.decode_params().map_err(malformed)?;
            SubscriptionEvent::TaskUpdated(changed.task.into_parts().0)
        }
        name::ACKNOWLEDGED => {
            let acknowledged: Acknowledged = notification.decode_params().map_err(malformed)?;
            SubscriptionEvent::Acknowledged(acknowledged.notifications)
        }
        _ => return Ok(None),
    }))
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Connected(_) => "Subscription(connected)",
            State::Waiting(_) => "Subscription(waiting)",
            State::Ended(_) => "Subscription(ended)",
        })
    }
}
