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
/// The predicates classify the error. A retry may succeed after an error that
/// [`is_transient`](Self::is_transient). Sending the request again is safe after an error that
/// [`is_not_sent`](Self::is_not_sent).
pub struct TransportError {
    kind: Kind,
    is_permanent: bool,
    message: String,
    http: Option<Box<HttpResponseInfo>>,
    source: Option<BoxError>,
}

/// Facts about an HTTP response that was received instead of a JSON-RPC response.
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
    /// There was no connection, so the server has not seen the request.
    NotSent,
    /// The connection broke, the request timed out, or the server was overloaded. The server may
    /// have acted on the request.
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
        Self { kind, is_permanent: false, message: message.into(), http: None, source: None }
    }

    pub(crate) fn with_http_response(mut self, info: HttpResponseInfo) -> Self {
        self.http = Some(Box::new(info));
        self
    }

    /// Marks the error as one that occurred after the server had answered with `response`.
    ///
    /// A request that could not be repeated for lack of a new token is no longer "not sent": the
    /// server has seen its first attempt, and the status of that attempt is what the caller needs.
    pub(crate) fn after_response(mut self, response: HttpResponseInfo) -> Self {
        if self.kind == Kind::InvalidRequest {
            self.kind = Kind::Protocol;
            self.http = Some(Box::new(response));
        }
        self
    }
}

/// Constructors for implementations of [`Transport`](crate::Transport).
impl TransportError {
    /// Creates the error of a request that cannot be sent, because it or the configuration of the
    /// transport is invalid. It is not transient.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidRequest, message)
    }

    /// Creates the error of a request that the server has certainly not seen. It is transient: the
    /// next attempt may succeed.
    pub fn not_sent(message: impl Into<String>) -> Self {
        Self::new(Kind::NotSent, message)
    }

    /// Creates the error of a request whose connection broke, or whose response did not arrive in
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

    /// Marks the error as permanent, so that [`is_transient`](Self::is_transient) returns false.
    /// For requests that depend on state that is lost. The other predicates do not change.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.is_permanent = true;
        self
    }

    /// Sets the error that caused this one. The message must not repeat it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the HTTP status of the response that was received.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.http.get_or_insert_default().status = Some(status);
        self
    }

    /// Sets the delay before the request may be sent again.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.http.get_or_insert_default().retry_after = Some(delay);
        self
    }
}

impl TransportError {
    /// Returns true if a retry may succeed. This is so if there was no connection, the connection
    /// broke, the request timed out, or the server was overloaded. An error that is marked as
    /// [`permanent`](Self::permanent) is never transient.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::NotSent | Kind::Interrupted) && !self.is_permanent
    }

    /// Returns true if the server has certainly not seen the request, so that it is safe to send it
    /// again.
    #[must_use]
    pub fn is_not_sent(&self) -> bool {
        matches!(self.kind, Kind::InvalidRequest | Kind::NotSent)
    }

    /// Returns true if the connection broke, the request timed out, or the server or a gateway
    /// refused the request for now (HTTP 429, 502, 503 and 504). The server may have acted on the
    /// request.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.kind == Kind::Interrupted
    }

    /// Returns true if the peer violated the protocol. Over HTTP that peer may be a proxy or
    /// gateway in front of the server: see [`status`](Self::status).
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        self.kind == Kind::Protocol
    }

    /// Returns true if the server ended a subscription. The subscription should not be started
    /// again.
    #[must_use]
    pub fn is_subscription_ended(&self) -> bool {
        self.kind == Kind::SubscriptionEnded
    }

    /// Returns the status of the HTTP response that was received instead of a JSON-RPC response:
    /// 401 if credentials are missing or have expired, 429 if there were too many requests.
    ///
    /// `None` if there was no HTTP response, and for other transports.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.http.as_ref()?.status
    }

    /// Returns the delay before the request may be sent again, if the HTTP response states it in
    /// seconds (`Retry-After`).
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.http.as_ref()?.retry_after
    }

    /// Returns the `WWW-Authenticate` header of the HTTP response: the place that issues tokens,
    /// and the scopes they need. Several values are joined by commas.
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
            .field("is_permanent", &self.is_permanent)
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
