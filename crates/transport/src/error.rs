//! Why a request was not answered.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// An error of whatever kind: what handlers and other functions of an application may return.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A request was not answered. This is never an answer of the server's: those are
/// [`Response`](mrtr_schema::jsonrpc::Response)s, also where they say that something is wrong.
pub struct TransportError {
    kind: Kind,
    message: String,
    answer: Option<Box<ResponseFacts>>,
    source: Option<BoxError>,
}

/// What is known of an HTTP response that came instead of an answer.
#[derive(Debug, Default)]
pub(crate) struct ResponseFacts {
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) authenticate: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Our caller's mistake.
    Request,
    /// No connection: the server has seen nothing.
    Connect,
    /// The connection broke, or time was up, or now is not the time: the server may have acted.
    Broken,
    /// The peer does not speak the protocol.
    Protocol,
    /// The server ended what was meant to last.
    Ended,
}

#[cfg_attr(not(feature = "http-client"), expect(dead_code, reason = "only backends make errors"))]
impl TransportError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), answer: None, source: None }
    }

    pub(crate) fn answered(mut self, answer: ResponseFacts) -> Self {
        self.answer = Some(Box::new(answer));
        self
    }

    /// The same, if it kept a request from being sent again that was answered in this way.
    pub(crate) fn after(mut self, before: ResponseFacts) -> Self {
        if self.kind == Kind::Request {
            (self.kind, self.answer) = (Kind::Protocol, Some(Box::new(before)));
        }
        self
    }

    pub(crate) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl TransportError {
    /// A connection that broke, or an answer that did not come in time: for implementations of
    /// [`Transport`](crate::Transport). The server may have acted on the request.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(Kind::Broken, message)
    }

    /// This error, with how long to wait before the request is sent again: for implementations of
    /// [`Transport`](crate::Transport).
    #[must_use]
    pub fn with_retry_after(mut self, time: Duration) -> Self {
        self.answer.get_or_insert_default().retry_after = Some(time);
        self
    }

    /// A request that was not sent, for implementations of [`Transport`](crate::Transport). The server has seen nothing.
    pub fn unsent(message: impl Into<String>) -> Self {
        Self::new(Kind::Connect, message)
    }

    /// An answer that is not the protocol, for implementations of [`Transport`](crate::Transport).
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(Kind::Protocol, message)
    }

    /// A subscription that the server ended without a response, for implementations of
    /// [`Transport`](crate::Transport).
    pub fn ended(message: impl Into<String>) -> Self {
        Self::new(Kind::Ended, message)
    }

    /// Whether the server ended a subscription: it is not to be started anew.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.kind == Kind::Ended
    }

    /// Whether another try may get through: there was no connection, or it broke, or time was up, or now was not the time.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Connect | Kind::Broken)
    }

    /// Whether the server has certainly not seen the request, so that it is safe to send it again.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        matches!(self.kind, Kind::Request | Kind::Connect)
    }

    /// Whether the connection broke, or time was up, or it was said that now is not the time (429, 502, 503 and 504): the server may
    /// have acted on the request.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.kind == Kind::Broken
    }

    /// Whether the peer answered with something that is not the protocol. Over HTTP that may be somebody in front of the server:
    /// see [`status`](Self::status).
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        self.kind == Kind::Protocol
    }

    /// The status of the HTTP response that came instead of an answer: 401 where credentials are missing or have expired, 429
    /// where there were too many requests. `None` if none came, and over other transports.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.answer.as_ref()?.status
    }

    /// How long to wait before the request is sent again, if that HTTP response said it in seconds (`Retry-After`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer.as_ref()?.retry_after
    }

    /// The `WWW-Authenticate` of that HTTP response, if it had one: where tokens are to be had, and what they must be good for.
    #[must_use]
    pub fn authenticate(&self) -> Option<&str> {
        self.answer.as_ref()?.authenticate.as_deref()
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
            .field("answer", &self.answer)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for TransportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}
