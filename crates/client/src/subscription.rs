//! `subscriptions/listen`, as a stream.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use mrtr_schema::jsonrpc::{Notification, Response};
use mrtr_schema::result::ResultType;
use mrtr_schema::subscription::{Acknowledged, Changed, SubscriptionFilter, name};
use mrtr_transport::TransportError;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, Sleep, sleep};

use crate::driver::jittered;
use crate::error::CallError;

/// What a server announces.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscriptionEvent {
    /// The subscription stands, for these changes. It comes first, and again after each reconnection:
    /// changes may have been missed then.
    Acknowledged(SubscriptionFilter),
    /// The list of tools has changed.
    Tools,
    /// The list of prompts has changed.
    Prompts,
    /// The list of resources has changed.
    Resources,
    /// The resource with this URI has changed.
    Resource(String),
}

/// Hands over what is heard.
type Heard = Arc<UnboundedSender<Notification>>;
type Start = dyn Fn(Heard) -> Result<Exchanging, CallError> + Send;
type Exchanging = Pin<Box<dyn Future<Output = Result<Response, TransportError>> + Send>>;

/// A stream of announcements. It reconnects when the connection breaks, or the server has no room: after 0.25 s, and after
/// twice as long each time that it did not last for 30 s, up to 30 s; up to half of that less by chance, so that many who
/// were cut off together do not come back together. Where the server says when (`Retry-After`), that comes on top, up to
/// 10 min. It ends when the server ends it. Dropping it unsubscribes.
pub struct Subscription {
    /// Starts the request anew.
    start: Box<Start>,
    sender: Heard,
    heard: UnboundedReceiver<Notification>,
    state: State,
    /// When it last began to listen.
    since: Instant,
    backoff: Duration,
}

enum State {
    Listening(Exchanging),
    Waiting(Pin<Box<Sleep>>),
    Ended,
}

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);
/// The longest time that a server may ask for in addition.
const LONGEST_ASKED: Duration = Duration::from_mins(10);

impl Subscription {
    pub(crate) fn new(
        start: impl Fn(Heard) -> Result<Exchanging, CallError> + Send + 'static,
    ) -> Result<Self, CallError> {
        // What is heard while the stream is polled is handed on before more is read, so this does not
        // grow beyond what one read brings.
        let (sender, heard) = unbounded_channel();
        let sender = Arc::new(sender);
        let state = State::Listening(start(Arc::clone(&sender))?);
        let (start, since) = (Box::new(start), Instant::now());
        Ok(Self { start, sender, heard, state, since, backoff: SHORTEST })
    }
}

impl Stream for Subscription {
    type Item = Result<SubscriptionEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let this = &mut *self;
            while let Ok(notification) = this.heard.try_recv() {
                match read(&notification) {
                    Ok(None) => {}
                    Ok(Some(announcement)) => return Poll::Ready(Some(Ok(announcement))),
                    Err(error) => {
                        this.state = State::Ended;
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
            let polled = match &mut this.state {
                State::Ended => return Poll::Ready(None),
                State::Waiting(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    this.since = Instant::now();
                    match (this.start)(Arc::clone(&this.sender)) {
                        Ok(exchanging) => this.state = State::Listening(exchanging),
                        Err(error) => {
                            this.state = State::Ended;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                    continue;
                }
                State::Listening(exchanging) => exchanging.as_mut().poll(cx),
            };
            match polled {
                // Something may have been heard in this very poll.
                Poll::Pending if this.heard.is_empty() => return Poll::Pending,
                Poll::Pending => {}
                Poll::Ready(Err(error)) if error.is_subscription_ended() => {
                    this.state = State::Ended;
                }
                Poll::Ready(Err(error)) if error.is_transient() => {
                    tracing::debug!(target: "mrtr::client", %error, "a subscription reconnects");
                    if this.since.elapsed() >= LONGEST {
                        this.backoff = SHORTEST;
                    }
                    let asked = error.retry_after().unwrap_or_default().min(LONGEST_ASKED);
                    let pause = jittered(this.backoff) + asked;
                    this.state = State::Waiting(Box::pin(sleep(pause)));
                    this.backoff = (this.backoff * 2).min(LONGEST);
                }
                Poll::Ready(ended) => {
                    this.state = State::Ended;
                    let refused = match ended.map(|response| response.outcome) {
                        Ok(Ok(result)) => graceful(&result).err(),
                        Ok(Err(error)) => Some(CallError::server(error)),
                        Err(error) => Some(error.into()),
                    };
                    if let Some(error) = refused {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            }
        }
    }
}

/// Whether a subscription's result is one.
fn graceful(result: &RawValue) -> Result<(), CallError> {
    match ResultType::of(result) {
        Ok(ResultType::Complete) => Ok(()),
        Ok(other) => Err(CallError::protocol(format!("a subscription ended with {other:?}"))),
        Err(e) => Err(CallError::protocol(format!("malformed result of a subscription: {e}"))),
    }
}

/// Notifications that are none of a subscription's are passed over.
fn read(notification: &Notification) -> Result<Option<SubscriptionEvent>, CallError> {
    let malformed = |e| CallError::protocol(format!("malformed {}: {e}", notification.method));
    Ok(Some(match notification.method.as_str() {
        name::TOOLS => SubscriptionEvent::Tools,
        name::PROMPTS => SubscriptionEvent::Prompts,
        name::RESOURCES => SubscriptionEvent::Resources,
        name::RESOURCE_UPDATED => {
            let changed: Changed = notification.params().map_err(malformed)?;
            let uri =
                changed.uri.ok_or_else(|| CallError::protocol("an update without its `uri`"))?;
            SubscriptionEvent::Resource(uri)
        }
        name::ACKNOWLEDGED => {
            let acknowledged: Acknowledged = notification.params().map_err(malformed)?;
            SubscriptionEvent::Acknowledged(acknowledged.notifications)
        }
        _ => return Ok(None),
    }))
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Listening(_) => "Subscription(listening)",
            State::Waiting(_) => "Subscription(waiting)",
            State::Ended => "Subscription(ended)",
        })
    }
}
