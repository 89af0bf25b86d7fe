//! A session with a legacy server, and what belongs to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_schema::notification::LogLevel;
use mrtr_schema::peer_text::truncate;
use mrtr_transport::{TransportError, unread};
use serde_json::json;
use tokio::sync::oneshot;

use super::connection::{Connection, ConnectionError, Incoming, Link, StreamEnd, unusable};
use super::question;
use super::routes::Routes;
use super::running_call::RunningCall;
use crate::handshake::InitializeResult;
use crate::legacy_method;

/// How long the first request of a session waits until the stream of the session is open. A server
/// may send the head of that stream only with its first message.
const OPENING_LIMIT: Duration = Duration::from_secs(2);

/// How long a request to unsubscribe may take if it is not known whether there is a subscription.
const UNSUBSCRIBE_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct OpenSession<C: Connection> {
    pub(super) server: InitializeResult,
    pub(super) link: Link<C>,
    pub(super) routes: Arc<Routes>,
    /// The level that the server has accepted.
    pub(super) log_level: Mutex<Option<LogLevel>>,
    /// Reads what the server sends outside of calls.
    listener: Mutex<AbortOnDrop>,
    /// The stream that is being opened again. Locked by those who wait for it.
    reopening: tokio::sync::Mutex<Option<oneshot::Receiver<()>>>,
    /// The number of requests of our own.
    own_requests: AtomicU64,
    /// The resources whose changes the server reports.
    subscribed: Mutex<HashMap<String, SubscribedResource>>,
}

impl<C: Connection> OpenSession<C> {
    /// Creates a session and begins to listen to it. Must be called in a tokio runtime.
    ///
    /// Returns when the stream of the session is open. Servers also ask on that stream in the
    /// middle of a call, and what they send before it is open is lost.
    pub(super) async fn open(server: InitializeResult, link: Link<C>) -> Self {
        let routes = Arc::<Routes>::default();
        let (opening, opened) = oneshot::channel();
        let listener = Mutex::new(spawn_listener(&link, &routes, opening));
        if tokio::time::timeout(OPENING_LIMIT, opened).await.is_err() {
            tracing::debug!(target: "mrtr::client", "the stream of the session does not open");
        }
        Self {
            server,
            link,
            routes,
            log_level: Mutex::default(),
            listener,
            reopening: tokio::sync::Mutex::default(),
            own_requests: AtomicU64::new(0),
            subscribed: Mutex::default(),
        }
    }

    /// Listens again if the stream of the session has ended, and waits for a short time until the
    /// stream is open, or is known not to open.
    pub(super) async fn listen_again(&self) {
        let mut reopening = self.reopening.lock().await;
        if self.routes.begin_again().is_some() {
            let (opening, opened) = oneshot::channel();
            let listener = spawn_listener(&self.link, &self.routes, opening);
            *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
            *reopening = Some(opened);
        }
        // It may have been begun for a request that was dropped.
        if let Some(opened) = &mut *reopening {
            let _ = tokio::time::timeout(OPENING_LIMIT, opened).await;
            *reopening = None;
        }
    }

    /// Sends a request of our own, and waits for its result.
    pub(super) async fn request(
        &self,
        method: &str,
        params: &serde_json::Value,
    ) -> Result<(), ConnectionError> {
        self.ask_server(method, params).await?.map_err(|error| {
            let message = format!("the server rejected {method}: {error}");
            TransportError::protocol(message).into()
        })
    }

    /// Sends a request of our own, and waits for its result, or for its error.
    async fn ask_server(
        &self,
        method: &str,
        params: &serde_json::Value,
    ) -> Result<Result<(), ErrorObject>, ConnectionError> {
        let params = Params::new(params).map_err(|error| unusable(&error))?;
        let count = self.own_requests.fetch_add(1, Ordering::Relaxed);
        let id = RequestId::String(format!("mrtr {method} {count}"));
        let request = Request::new(id, method, Some(params));
        let mut running = RunningCall::start(self.link.clone(), None, request);
        let answer = async {
            while let Some(message) = running.next().await {
                match message {
                    Incoming::Response(response) => {
                        return Ok(response?.outcome.map(drop));
                    }
                    Incoming::Request(request) => {
                        let none = ClientCapabilities::default();
                        question::receive(&self.link, request, &none).await;
                    }
                    Incoming::Notification(_) => {}
                }
            }
            Err(TransportError::interrupted("the connection ended before the response").into())
        };
        let limit = self.link.connection.timeout();
        tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
            let why = format!("the server did not answer {method} within {limit:?}");
            Err(TransportError::interrupted(why).into())
        })
    }

    #[cfg(test)]
    pub(super) fn count_subscribed(&self) -> usize {
        self.subscribed().len()
    }

    /// Ends the subscriptions of a session that the server has ended.
    pub(super) fn end(&self) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).0.abort();
        self.routes.end_session();
    }
}

/// A subscription to a resource, or an attempt to subscribe. When the last one to the resource is
/// dropped, the client unsubscribes at the server.
pub(super) struct ResourceSubscription<C: Connection> {
    session: Arc<OpenSession<C>>,
    uri: String,
}

#[derive(Default)]
struct SubscribedResource {
    /// The number of subscriptions and attempts.
    count: usize,
    /// Locked during requests to subscribe and unsubscribe.
    state: Arc<tokio::sync::Mutex<SubscriptionState>>,
}

/// Whether the server has accepted a subscription to a resource.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    #[default]
    No,
    /// The request has got no answer.
    Unknown,
    Yes,
}

impl<C: Connection> ResourceSubscription<C> {
    /// Returns `None` if the server refuses.
    pub(super) async fn begin(
        session: &Arc<OpenSession<C>>,
        uri: &str,
    ) -> Result<Option<Self>, ConnectionError> {
        let state = session.resource(uri, |resource| {
            resource.count += 1;
            Arc::clone(&resource.state)
        });
        // Dropped with the future, or after a refusal, it takes the attempt back.
        let attempt = Self { session: Arc::clone(session), uri: uri.to_owned() };
        let mut state = state.lock().await;
        if *state != SubscriptionState::Yes {
            *state = SubscriptionState::Unknown;
            let params = json!({ "uri": uri });
            if let Err(error) = session.ask_server(legacy_method::SUBSCRIBE, &params).await? {
                let error = error.to_string();
                let error = &*truncate(&error);
                tracing::warn!(target: "mrtr::client", uri, error, "subscription refused");
                *state = SubscriptionState::No;
                return Ok(None);
            }
            *state = SubscriptionState::Yes;
        }
        Ok(Some(attempt))
    }
}

impl<C: Connection> OpenSession<C> {
    fn subscribed(&self) -> MutexGuard<'_, HashMap<String, SubscribedResource>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resource<T>(&self, uri: &str, work: impl FnOnce(&mut SubscribedResource) -> T) -> T {
        work(self.subscribed().entry(uri.to_owned()).or_default())
    }

    async fn end_subscription(&self, uri: &str) {
        let state = self.resource(uri, |resource| Arc::clone(&resource.state));
        let mut state = state.lock().await;
        let left = self.resource(uri, |resource| {
            resource.count = resource.count.saturating_sub(1);
            resource.count
        });
        if left > 0 {
            return;
        }
        let limit = match std::mem::take(&mut *state) {
            SubscriptionState::No => None,
            // The server may not answer this request either.
            SubscriptionState::Unknown => Some(UNSUBSCRIBE_LIMIT),
            SubscriptionState::Yes => Some(self.link.connection.timeout()),
        };
        if let Some(limit) = limit {
            // A new attempt waits until the server has been told, for the order.
            let params = json!({ "uri": uri });
            let ended = self.request(legacy_method::UNSUBSCRIBE, &params);
            if !matches!(tokio::time::timeout(limit, ended).await, Ok(Ok(()))) {
                tracing::debug!(target: "mrtr::client", uri, "cannot unsubscribe");
            }
        }
        let mut subscribed = self.subscribed();
        // An attempt that began meanwhile waits for the lock.
        if subscribed.get(uri).is_some_and(|resource| resource.count == 0) {
            subscribed.remove(uri);
        }
    }
}

impl<C: Connection> Drop for ResourceSubscription<C> {
    fn drop(&mut self) {
        // Without a runtime, the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (session, uri) = (Arc::clone(&self.session), std::mem::take(&mut self.uri));
        runtime.spawn(async move { session.end_subscription(&uri).await });
    }
}

fn spawn_listener<C: Connection>(
    link: &Link<C>,
    routes: &Arc<Routes>,
    opening: oneshot::Sender<()>,
) -> AbortOnDrop {
    AbortOnDrop(tokio::spawn(listen(link.clone(), Arc::clone(routes), opening)).abort_handle())
}

/// Reads what the server sends outside of calls, until it sends nothing more.
async fn listen<C: Connection>(link: Link<C>, routes: Arc<Routes>, opening: oneshot::Sender<()>) {
    let (sender, mut messages) = unread::channel();
    let subscribed = Arc::clone(&routes);
    let missed = move || subscribed.interrupt_subscriptions();
    let connection = Arc::clone(&link.connection);
    let reading = connection.listen(link.session.clone(), sender, opening, missed);
    let reading = tokio::spawn(reading);
    let _reading = AbortOnDrop(reading.abort_handle());
    while let Some(message) = messages.recv().await {
        let unrelated = match message {
            Incoming::Notification(notification) => {
                routes.announce(&notification);
                continue;
            }
            Incoming::Request(request) if request.method == legacy_method::PING => request,
            Incoming::Request(request) => match routes.ask(request) {
                None => continue,
                Some(request) => request,
            },
            Incoming::Response(_) => continue,
        };
        // No call has declared any capability for it, so it is no question.
        question::receive(&link, unrelated, &ClientCapabilities::default()).await;
    }
    let (end, opening) = reading.await.unwrap_or((StreamEnd::Final, None));
    routes.end_subscriptions(end);
    drop(opening);
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
