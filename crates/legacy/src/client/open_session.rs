//! A session with a legacy server, and what belongs to it.

use std::sync::{Arc, Mutex, PoisonError};

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::notification::LogLevel;
use tokio::sync::mpsc;

use super::connection::{Connection, Incoming, Link, MAX_UNREAD};
use super::question;
use super::routes::Routes;
use crate::handshake::InitializeResult;
use crate::legacy_method;

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
    pub(super) fn new(server: InitializeResult, link: Link<C>) -> Self {
        let routes = Arc::<Routes>::default();
        let listener = Mutex::new(spawn_listener(&link, &routes));
        Self { server, link, routes, log_level: Mutex::default(), listener }
    }

    /// Listens again if the stream of the session has ended.
    pub(super) fn listen_again(&self) {
        if self.routes.begin_again() {
            let listener = spawn_listener(&self.link, &self.routes);
            *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = listener;
        }
    }

    /// Ends the subscriptions of a session that the server has ended.
    pub(super) fn end(&self) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).0.abort();
        self.routes.end_subscriptions();
    }
}

fn spawn_listener<C: Connection>(link: &Link<C>, routes: &Arc<Routes>) -> AbortOnDrop {
    AbortOnDrop(tokio::spawn(listen(link.clone(), Arc::clone(routes))).abort_handle())
}

/// Reads what the server sends outside of calls, until it sends nothing more.
async fn listen<C: Connection>(link: Link<C>, routes: Arc<Routes>) {
    let (sender, mut messages) = mpsc::channel(MAX_UNREAD);
    let reading = Arc::clone(&link.connection).listen(link.session.clone(), sender);
    let _reading = AbortOnDrop(tokio::spawn(reading).abort_handle());
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
    routes.end_subscriptions();
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
