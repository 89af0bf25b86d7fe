//! The two traits that keep servers and clients apart from how bytes travel.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_schema::meta::{Mirrored, RequestMeta};
use mrtr_schema::params;
use tokio::sync::mpsc;

use crate::answering::{Answering, Part};
use crate::error::TransportError;

/// A request that a transport has let through.
#[derive(Debug)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// Its `_meta`, already read; `None` if it has none.
    pub meta: Option<RequestMeta>,
    /// What layers in front left for the server, such as who calls. The request counts as in flight until they are
    /// dropped, even if its client has gone.
    pub extensions: ::http::Extensions,
    /// Where notifications about this request go.
    pub outbox: Outbox,
}

/// The HTTP headers of a request, among the extensions of its [`Call`].
#[derive(Debug, Clone)]
pub struct RequestHeaders(pub ::http::HeaderMap);

/// Answers requests: a server, as a transport sees it.
pub trait Dispatch: Send + Sync + 'static {
    /// Answers one request. Errors are answers too.
    ///
    /// Dropping the future cancels the request; the transport does so when the client goes away.
    fn dispatch(&self, call: Call) -> impl Future<Output = Response> + Send;
}

/// Takes notifications about one request, to be sent before its response.
#[derive(Debug, Clone)]
pub struct Outbox(Option<mpsc::Sender<Notification>>);

/// The other end of an [`Outbox`].
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<Notification>);

impl Outbox {
    /// How many notifications wait for a client that reads slowly, before more are dropped.
    const CAPACITY: usize = 64;

    /// An outbox, and where its notifications come out.
    pub fn new() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::channel(Self::CAPACITY);
        (Self(Some(sender)), Inbox(receiver))
    }

    /// An outbox that throws everything away.
    pub fn none() -> Self {
        Self(None)
    }

    /// Sends a notification, if there is room. A client that reads slowly loses notifications; it does
    /// not slow down the server.
    pub fn try_send(&self, notification: Notification) -> bool {
        self.0.as_ref().is_some_and(|sender| sender.try_send(notification).is_ok())
    }

    /// Sends a notification when there is room; `false` if nobody listens any more.
    pub async fn send(&self, notification: Notification) -> bool {
        match &self.0 {
            Some(sender) => sender.send(notification).await.is_ok(),
            None => false,
        }
    }

    /// Whether nobody listens any more: the client has gone, or has its response.
    pub fn is_closed(&self) -> bool {
        self.0.as_ref().is_none_or(mpsc::Sender::is_closed)
    }
}

impl Inbox {
    /// The next notification; `None` when the outbox and all its clones are gone.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Notification>> {
        self.0.poll_recv(cx)
    }
}

/// Sends requests: a connection to a server, as a client sees it.
pub trait Exchange: Send + Sync + 'static {
    /// Sends one request and waits for its response. Nothing is sent twice.
    ///
    /// Dropping the future cancels the request.
    fn exchange(
        &self,
        outgoing: Outgoing<'_>,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send;
}

/// A request on its way out.
pub struct Outgoing<'a> {
    /// The request.
    pub request: Request,
    /// Arguments to be mirrored in `Mcp-Param-*` headers, as name and value. Transports without headers
    /// pass them over.
    pub param_headers: Vec<(String, String)>,
    /// The response comes when the server wants, or never: no time limit, and no limit on how much comes
    /// before it.
    pub long_lived: bool,
    /// Is told of each notification that comes before the response.
    pub heard: &'a (dyn Fn(Notification) + Send + Sync),
}

impl Outgoing<'static> {
    /// A request alone; notifications are passed over.
    pub fn new(request: Request) -> Self {
        Self { request, param_headers: Vec::new(), long_lived: false, heard: &|_| () }
    }
}

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("request", &self.request).finish_non_exhaustive()
    }
}

/// A client and a server in one process, without a socket: an [`Exchange`] that hands requests to a
/// [`Dispatch`]. For tests, and for servers that call their own tools.
#[derive(Debug)]
pub struct InProcess<D> {
    server: Arc<D>,
    extensions: ::http::Extensions,
}

impl<D> Clone for InProcess<D> {
    fn clone(&self) -> Self {
        Self { server: Arc::clone(&self.server), extensions: self.extensions.clone() }
    }
}

impl<D: Dispatch> InProcess<D> {
    /// Calls `server`.
    pub fn new(server: D) -> Self {
        Self { server: Arc::new(server), extensions: ::http::Extensions::new() }
    }

    /// Leaves `value` with every request, as a layer in front of the server would: who calls, for
    /// example.
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }
}

impl<D: Dispatch> Exchange for InProcess<D> {
    async fn exchange(&self, outgoing: Outgoing<'_>) -> Result<Response, TransportError> {
        let Outgoing { request, heard, .. } = outgoing;
        let mirrored: Mirrored =
            params(&request).map_err(|e| TransportError::unsent(e.to_string()))?;
        let extensions = self.extensions.clone();
        let mut answering = Answering::new(&self.server, request, mirrored.meta, extensions);
        loop {
            match answering.next().await {
                Some(Part::Notification(notification)) => heard(notification),
                Some(Part::Response(response)) => return Ok(response),
                None => return Err(TransportError::broken("the server did not answer")),
            }
        }
    }
}
