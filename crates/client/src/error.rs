//! Errors of calls.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::peer_text::quote;
use mrtr_transport::{BoxError, TransportError};

/// An error of a call. The predicates classify the cause: the server, the transport, a limit of the
/// client, the end of a task or a handler. All of them are false for invalid parameters of the call
/// itself.
pub struct CallError(Box<Kind>);

#[derive(Debug)]
enum Kind {
    /// The server responded with an error.
    Server(ErrorObject),
    /// The server violated the protocol.
    Protocol(String),
    /// The call exceeded its round limits.
    TooManyRounds(String),
    /// The call exceeded its timeout.
    Timeout(String),
    /// The task that the call had become failed.
    TaskFailed(ErrorObject),
    /// The task that the call had become was cancelled.
    TaskCancelled(String),
    /// The task that the call had become did not end within its lifetime.
    TaskExpired(String),
    /// A handler or the policy failed, or a response is invalid.
    Handler(String, Option<BoxError>),
    /// The application passed invalid parameters.
    Request(String),
    /// The transport failed.
    Transport(TransportError),
}

impl CallError {
    pub(crate) fn server(error: ErrorObject) -> Self {
        Self(Box::new(Kind::Server(error)))
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Protocol(message.into())))
    }

    /// Creates the error of an input request that needs a capability which was not declared. A
    /// server must not send it, so the server is at fault.
    pub(crate) fn undeclared(key: &str, capability: &str) -> Self {
        Self::protocol(format!(
            "input request {} requires the capability {capability}, which this client did not \
             declare",
            quote(key)
        ))
    }

    pub(crate) fn too_many_rounds(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::TooManyRounds(message.into())))
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Timeout(message.into())))
    }

    pub(crate) fn task_failed(error: ErrorObject) -> Self {
        Self(Box::new(Kind::TaskFailed(error)))
    }

    pub(crate) fn task_cancelled(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::TaskCancelled(message.into())))
    }

    pub(crate) fn task_expired(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::TaskExpired(message.into())))
    }

    pub(crate) fn handler(message: impl Into<String>, source: Option<BoxError>) -> Self {
        Self(Box::new(Kind::Handler(message.into(), source)))
    }

    pub(crate) fn request(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Request(message.into())))
    }

    /// Creates the error of a call that paused although its handlers were to answer.
    pub(crate) fn unexpected_pause() -> Self {
        Self::request("internal error: the call paused although its handlers were to answer")
    }

    /// Returns the server's error, if the server responded with one or with a task that has failed.
    pub fn as_server_error(&self) -> Option<&ErrorObject> {
        match &*self.0 {
            Kind::Server(error) | Kind::TaskFailed(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the transport's error, if the transport failed.
    pub fn as_transport_error(&self) -> Option<&TransportError> {
        match &*self.0 {
            Kind::Transport(error) => Some(error),
            _ => None,
        }
    }

    /// Returns true if the server violated the protocol.
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        match &*self.0 {
            Kind::Protocol(_) => true,
            Kind::Transport(error) => error.is_protocol(),
            _ => false,
        }
    }

    /// Returns true if the call exceeded the [`RoundLimits`](crate::RoundLimits).
    #[must_use]
    pub fn is_too_many_rounds(&self) -> bool {
        matches!(*self.0, Kind::TooManyRounds(_))
    }

    /// Returns true if the call exceeded its timeout. The timeout of a single request is a
    /// [transport error](Self::as_transport_error).
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(*self.0, Kind::Timeout(_))
    }

    /// Returns true if the task that the call had become has failed, with the error of
    /// [`as_server_error`](Self::as_server_error). If it is false for an error of the server, the
    /// server refused a request: the call itself, or one about its task, which may be running or
    /// not exist any more.
    #[must_use]
    pub fn is_task_failed(&self) -> bool {
        matches!(*self.0, Kind::TaskFailed(_))
    }

    /// Returns true if the task that the call had become was cancelled, by this client or another
    /// party.
    #[must_use]
    pub fn is_task_cancelled(&self) -> bool {
        matches!(*self.0, Kind::TaskCancelled(_))
    }

    /// Returns true if the task that the call had become did not end within the `ttlMs` that the
    /// server stated.
    #[must_use]
    pub fn is_task_expired(&self) -> bool {
        matches!(*self.0, Kind::TaskExpired(_))
    }

    /// Returns true if a handler or the policy failed or refused, or an input response is invalid.
    #[must_use]
    pub fn is_handler(&self) -> bool {
        matches!(*self.0, Kind::Handler(..))
    }

    /// Returns true if the transport failed and a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        self.as_transport_error().is_some_and(TransportError::is_transient)
    }

    /// Returns the delay that the server, or a proxy in front of it, requests before a retry.
    pub(crate) fn retry_after(&self) -> Duration {
        self.as_transport_error().and_then(TransportError::retry_after).unwrap_or_default()
    }
}

impl From<TransportError> for CallError {
    fn from(error: TransportError) -> Self {
        Self(Box::new(Kind::Transport(error)))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Server(error) => write!(f, "the server refused the call: {error}"),
            Kind::TaskFailed(error) => write!(f, "the task failed: {error}"),
            Kind::Protocol(message) => write!(f, "the server violated the protocol: {message}"),
            Kind::TooManyRounds(message)
            | Kind::Timeout(message)
            | Kind::TaskCancelled(message)
            | Kind::TaskExpired(message)
            | Kind::Handler(message, _)
            | Kind::Request(message) => f.write_str(message),
            Kind::Transport(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallError").field(&self.0).finish()
    }
}

impl StdError for CallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.0 {
            Kind::Server(error) | Kind::TaskFailed(error) => Some(error),
            Kind::Transport(error) => error.source(),
            Kind::Handler(_, source) => source.as_deref().map(|s| s as _),
            _ => None,
        }
    }
}
