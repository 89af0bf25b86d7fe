//! A connection to a legacy server: what carries the messages of a session.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_transport::TransportError;
use mrtr_transport::unread::{self, Length};
use tokio::sync::{Notify, oneshot};

/// A message of the server about one request.
#[derive(Debug)]
pub(super) enum Incoming {
    Notification(Notification),
    Request(Request),
    /// The last message.
    Response(Result<Response, ConnectionError>),
}

impl Length for Incoming {
    fn length(&self) -> usize {
        match self {
            Self::Notification(notification) => notification.length(),
            Self::Request(request) => request.length(),
            Self::Response(response) => response.as_ref().map_or(0, Length::length),
        }
    }
}

/// The error of a request that got no response.
#[derive(Debug)]
pub(super) enum ConnectionError {
    /// The server does not know the session: a new one has to be opened.
    SessionEnded,
    Transport(TransportError),
}

impl From<ConnectionError> for TransportError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::SessionEnded => Self::interrupted("the server has ended the session"),
            ConnectionError::Transport(error) => error,
        }
    }
}

impl From<TransportError> for ConnectionError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

pub(super) trait Connection: Send + Sync + 'static {
    /// True if [`run`](Self::run) cancels its request at the server when it is dropped.
    const CANCELS_ON_DROP: bool;

    /// What all messages of a session carry.
    type Session: Clone + Send + Sync + 'static;

    /// Opens a session.
    fn initialize(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<(Response, Self::Session), ConnectionError>> + Send;

    /// Sends a request and everything that it takes to get its messages, until the response or
    /// until the receiver is dropped.
    ///
    /// The error is [`SessionEnded`](ConnectionError::SessionEnded) only if the server has not
    /// acted on the request.
    ///
    /// `reconnect` is notified when the server did not accept an answer: another replica may have
    /// the session now. A connection that can resume its stream does so.
    fn run(
        self: Arc<Self>,
        session: Self::Session,
        request: Request,
        messages: unread::Sender<Incoming>,
        reconnect: Arc<Notify>,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// Receives messages that are not about a request, until the receiver is dropped. Drops
    /// `opening` once such messages arrive, or are known not to arrive for now, and returns it if
    /// there will be none. Calls `missed` when they arrive later, and some may have been lost.
    fn listen(
        self: Arc<Self>,
        session: Self::Session,
        messages: unread::Sender<Incoming>,
        opening: oneshot::Sender<()>,
        missed: impl Fn() + Send + Sync + 'static,
    ) -> impl Future<Output = (StreamEnd, Option<oneshot::Sender<()>>)> + Send + 'static;

    /// The longest time that a call may be silent, while it does not wait for the client.
    fn timeout(&self) -> Duration;

    /// Sends a notification or a response.
    fn post(
        &self,
        session: &Self::Session,
        message: String,
    ) -> impl Future<Output = Result<(), ConnectionError>> + Send;
}

/// How the stream of a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The server has no such stream, or no such session.
    Final,
    /// It did not open. It may open later.
    NotOpened,
    /// It was open, and was closed.
    Closed,
}

/// One session on a connection.
pub(super) struct Link<C: Connection> {
    pub(super) connection: Arc<C>,
    pub(super) session: C::Session,
}

impl<C: Connection> Clone for Link<C> {
    fn clone(&self) -> Self {
        Self { connection: Arc::clone(&self.connection), session: self.session.clone() }
    }
}

impl<C: Connection> Link<C> {
    /// Sends a notification or a response.
    pub(super) async fn post(&self, message: String) -> Result<(), ConnectionError> {
        self.connection.post(&self.session, message).await
    }
}

/// Returns the text of a notification.
pub(super) fn notification(notification: &Notification) -> String {
    notification.to_json().into()
}

/// Returns the error for a message that is not what it should be.
pub(super) fn unusable(error: &serde_json::Error) -> TransportError {
    TransportError::protocol(format!("the server sent a message that cannot be used: {error}"))
}
