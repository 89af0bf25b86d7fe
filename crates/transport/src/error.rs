//! Errors of transports.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// A boxed error of any type, as handlers and callbacks of an application may return it.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of a request that got no response from the server.
///
/// A JSON-RPC error from the server is not a `TransportError`: it is a
/// [`Response`](mrtr_schema::jsonrpc::Response) whose outcome is an error.
///
/// The predicates tell what a caller may do next: [`is_transient`](Self::is_transient) errors may go
/// away with a retry, and a request that [`is_not_sent`](Self::is_not_sent) is safe to send again.
pub struct TransportError {
    kind: Kind,
    message: String,
    http: Option<Box<HttpResponseInfo>>,
    source: Option<BoxError>,
}

/// Facts about the HTTP response that came in place of a JSON-RPC response.
#[derive(Debug, Default)]
pub(crate) struct HttpResponseInfo {
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) www_authenticate: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The request or the configuration is invalid; nothing was sent.
    InvalidRequest,
    /// There was no connection; the server has seen nothing.
    NotSent,
    /// The connection broke, the time was up, or the server was overloaded: it may have acted.
    Interrupted,
    /// The peer violated the protocol.
    Protocol,
    /// The server ended a subscription.
    SubscriptionEnded,
}

#[cfg_attr(
    not(feature = "http-client"),
    expect(dead_code, reason = "only the HTTP client has all of these errors")
)]
impl TransportError {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), http: None, source: None }
    }

    pub(crate) fn with_http_response(mut self, info: HttpResponseInfo) -> Self {
        self.http = Some(Box::new(info));
        self
    }

    /// Marks the error as one that came after the server had already answered with `response`.
    ///
    /// A request that could not be repeated for want of a new token is no longer "not sent": the
    /// server has seen its first attempt, and the status of that attempt is what the caller needs.
    pub(crate) fn after_response(mut self, response: HttpResponseInfo) -> Self {
        if self.kind == Kind::InvalidRequest {
            self.kind = Kind::Protocol;
            self.http = Some(Box::new(response));
        }
        self
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// Constructors for implementations of [`Transport`](crate::Transport).
impl TransportError {
    /// Creates the error of a request that the server has certainly not seen.
    pub fn not_sent(message: impl Into<String>) -> Self {
        Self::new(Kind::NotSent, message)
    }

    /// Creates the error of a request whose connection broke, or whose response did not come in
    /// time. The server may have acted on the request.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Kind::Interrupted, message)
    }

    /// Creates the error of a peer that violates the protocol.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(Kind::Protocol, message)
    }

    /// Creates the error of a subscription that the server ended without a response.
    pub fn subscription_ended(message: impl Into<String>) -> Self {
        Self::new(Kind::SubscriptionEnded, message)
    }

    /// Sets how long to wait before the request is sent again.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.http.get_or_insert_default().retry_after = Some(delay);
        self
    }
}

impl TransportError {
    /// Returns true if a retry may succeed: there was no connection, it broke, the time was up, or
    /// the server was overloaded.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::NotSent | Kind::Interrupted)
    }

    /// Returns true if the server has certainly not seen the request, so that it is safe to send it
    /// again.
    #[must_use]
    pub fn is_not_sent(&self) -> bool {
        matches!(self.kind, Kind::InvalidRequest | Kind::NotSent)
    }

    /// Returns true if the connection broke, the time was up, or the server or a gateway refused the
    /// request for now (HTTP 429, 502, 503 and 504). The server may have acted on the request.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.kind == Kind::Interrupted
    }

    /// Returns true if the peer violated the protocol. Over HTTP that peer may be a proxy or gateway
    /// in front of the server: see [`status`](Self::status).
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        self.kind == Kind::Protocol
    }

    /// Returns true if the server ended a subscription. The subscription should not be started again.
    #[must_use]
    pub fn is_subscription_ended(&self) -> bool {
        self.kind == Kind::SubscriptionEnded
    }

    /// Returns the status of the HTTP response that came in place of a JSON-RPC response: 401 if
    /// credentials are missing or have expired, 429 if there were too many requests.
    ///
    /// `None` if no HTTP response came, and for other transports.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.http.as_ref()?.status
    }

    /// Returns how long to wait before the request is sent again, if the HTTP response said so in
    /// seconds (`Retry-After`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.http.as_ref()?.retry_after
    }

    /// Returns the `WWW-Authenticate` header of the HTTP response: the place that issues tokens, and
    /// the scopes they need. Several values are joined by commas.
    #[must_use]
    pub fn www_authenticate(&self) -> Option<&str> {
        self.http.as_ref()?.www_authenticate.as_deref()
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
            .field("http", &self.http)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for TransportError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
