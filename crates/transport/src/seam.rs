//! The two traits that keep servers and clients apart from how bytes travel.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;

use mrtr_schema::jsonrpc::{Request, Response};
use mrtr_schema::meta::{Mirrored, RequestMeta};
use mrtr_schema::params;

/// A request that a transport has let through.
#[derive(Debug)]
pub struct Call {
    /// The request.
    pub request: Request,
    /// Its `_meta`, already read; `None` if it has none.
    pub meta: Option<RequestMeta>,
    /// What layers in front left for the server, such as who calls.
    pub extensions: ::http::Extensions,
}

/// Answers requests: a server, as a transport sees it.
pub trait Dispatch: Send + Sync + 'static {
    /// Answers one request. Errors are answers too.
    ///
    /// Dropping the future cancels the request; the transport does so when the client goes away.
    fn dispatch(&self, call: Call) -> impl Future<Output = Response> + Send;
}

/// Sends requests: a connection to a server, as a client sees it.
pub trait Exchange: Send + Sync + 'static {
    /// Sends one request and waits for its response. Nothing is sent twice.
    ///
    /// Dropping the future cancels the request.
    fn exchange(
        &self,
        request: Request,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send;
}

/// A client and a server in one process, without a socket: an [`Exchange`] that hands requests to a
/// [`Dispatch`]. For tests, and for servers that call their own tools.
#[derive(Debug, Clone, Default)]
pub struct InProcess<D> {
    server: D,
    extensions: ::http::Extensions,
}

impl<D: Dispatch> InProcess<D> {
    /// Calls `server`.
    pub fn new(server: D) -> Self {
        Self { server, extensions: ::http::Extensions::new() }
    }

    /// Leaves `value` with every request, as a layer in front of the server would: who calls, for
    /// example.
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }
}

impl<D: Dispatch> Exchange for InProcess<D> {
    async fn exchange(&self, request: Request) -> Result<Response, TransportError> {
        let mirrored: Mirrored =
            params(&request).map_err(|e| TransportError::unsent(e.to_string()))?;
        let call = Call { request, meta: mirrored.meta, extensions: self.extensions.clone() };
        Ok(self.server.dispatch(call).await)
    }
}

/// A request was not answered. This is never an answer of the server's: those are
/// [`Response`]s, also where they say that something is wrong.
pub struct TransportError {
    kind: Kind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "http-client"), expect(dead_code, reason = "only backends make errors"))]
pub(crate) enum Kind {
    /// Our caller's mistake.
    Request,
    /// No connection: the server has seen nothing.
    Connect,
    /// The connection broke, or time was up: the server may have acted.
    Broken,
    /// The peer does not speak the protocol.
    Protocol,
}

#[cfg_attr(not(feature = "http-client"), expect(dead_code, reason = "only backends make errors"))]
impl TransportError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(crate) fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }
}

impl TransportError {
    /// A connection that broke, or an answer that did not come in time: for implementations of
    /// [`Exchange`]. The server may have acted on the request.
    pub fn broken(message: impl Into<String>) -> Self {
        Self { kind: Kind::Broken, message: message.into(), source: None }
    }

    /// A request that was not sent, for implementations of [`Exchange`]. The server has seen nothing.
    pub fn unsent(message: impl Into<String>) -> Self {
        Self { kind: Kind::Connect, message: message.into(), source: None }
    }

    /// An answer that is not the protocol, for implementations of [`Exchange`].
    pub fn protocol(message: impl Into<String>) -> Self {
        Self { kind: Kind::Protocol, message: message.into(), source: None }
    }

    /// Whether the server has certainly not seen the request, so that it is safe to send it again.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        matches!(self.kind, Kind::Request | Kind::Connect)
    }

    /// Whether the peer answered with something that is not the protocol.
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        self.kind == Kind::Protocol
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportError")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for TransportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}
