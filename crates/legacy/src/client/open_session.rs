//! A session with a legacy server, and what belongs to it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::notification::LogLevel;
use mrtr_transport::unread;
use tokio::sync::oneshot;

use super::connection::{Connection, Incoming, Link};
use super::question;
use super::routes::Routes;
use crate::handshake::InitializeResult;
use crate::legacy_method;

/// How long the first request of a session waits until the stream of the session is open. A server
/// may send the head of that stream only with its first message.
const OPENING_LIMIT: Duration = Duration::from_secs(2);

pub(super) struct OpenSession<C: Connection> {
    pub(super) server: InitializeResult,
    pub(super) link: Link<C>,
    pub(super) routes: Arc<Routes>,
    /// The level that the server has accepted.
    pub(super) log_level: Mutex<Option<LogLevel>>,
    /// Reads what the server sends outside of calls.
    listener: Mutex<AbortOnDrop>,
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
        Self { server, link, routes, log_level: Mutex::default(), listener }
    }

    /// Listens again if the stream of the session has ended.
    pub(super) async fn listen_again(&self) {
        if self.routes.begin_again() {
            let (opening, opened) = oneshot::channel();
            let listener = spawn_listener(&self.link, &self.routes, opening);
            *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
            let _ = tokio::time::timeout(OPENING_LIMIT, opened).await;
        }
    }

    /// Ends the subscriptions of a session that the server has ended.
    pub(super) fn end(&self) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).0.abort();
        self.routes.end_subscriptions(false);
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
    let reading = Arc::clone(&link.connection).listen(link.session.clone(), sender, opening);
    let mut reading = tokio::spawn(reading);
    let _reading = AbortOnDrop(reading.abort_handle());
    while let Some(message) = messages.recv().await {
        let unrelated = match message {
            Incoming::Notification(notification) => {
                routes.announce(&notification);
                continue;
            }
            Incoming::Request(request) if request.method == legacy_method::PING => request,
            Incoming::Request(request) => match routes.ask(request) {
                Ok(()) => continue,
                Err(request) => request,
            },
            Incoming::Response(_) => continue,
        };
        // No call has declared any capability for it, so it is no question.
        question::receive(&link, unrelated, &ClientCapabilities::default()).await;
    }
    routes.end_subscriptions((&mut reading).await.unwrap_or(false));
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
