//! Why a call came to nothing.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_transport::TransportError;

/// Why a call came to nothing. The predicates say who is to blame.
pub struct CallError(Box<Kind>);

#[derive(Debug)]
enum Kind {
    /// The server said so.
    Server(ErrorObject),
    /// The server does not keep to the protocol.
    Protocol(String),
    /// There were too many rounds.
    Rounds(String),
    /// The call's own time was over.
    Deadline(String),
    /// One of our handlers failed, or there is none.
    Handler(String, Option<Box<dyn StdError + Send + Sync>>),
    /// Our caller's mistake.
    Request(String),
    Transport(TransportError),
}

impl CallError {
    pub(crate) fn server(error: ErrorObject) -> Self {
        Self(Box::new(Kind::Server(error)))
    }

    pub(crate) fn protocol(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Protocol(why.into())))
    }

    pub(crate) fn rounds(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Rounds(why.into())))
    }

    pub(crate) fn deadline(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Deadline(why.into())))
    }

    pub(crate) fn handler(
        why: impl Into<String>,
        source: Option<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self(Box::new(Kind::Handler(why.into(), source)))
    }

    pub(crate) fn request(why: impl Into<String>) -> Self {
        Self(Box::new(Kind::Request(why.into())))
    }

    /// The server's error, if it answered with one.
    pub fn as_server_error(&self) -> Option<&ErrorObject> {
        match &*self.0 {
            Kind::Server(error) => Some(error),
            _ => None,
        }
    }

    /// The transport's error, if the call did not get through.
    pub fn as_transport_error(&self) -> Option<&TransportError> {
        match &*self.0 {
            Kind::Transport(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server broke the protocol.
    #[must_use]
    pub fn is_protocol(&self) -> bool {
        match &*self.0 {
            Kind::Protocol(_) => true,
            Kind::Transport(error) => error.is_protocol(),
            _ => false,
        }
    }

    /// Whether the call did not get through, so that another try may: there was no connection, or it broke.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.as_transport_error().is_some_and(TransportError::is_transient)
    }

    /// How long the server, or who stands in front of it, wants not to be asked again.
    pub(crate) fn retry_after(&self) -> Duration {
        self.as_transport_error().and_then(TransportError::retry_after).unwrap_or_default()
    }

    /// Whether the server asked more often than the limits allow.
    #[must_use]
    pub fn is_too_many_rounds(&self) -> bool {
        matches!(*self.0, Kind::Rounds(_))
    }

    /// Whether the call's deadline passed.
    #[must_use]
    pub fn is_deadline(&self) -> bool {
        matches!(*self.0, Kind::Deadline(_))
    }

    /// Whether a handler failed or was missing.
    #[must_use]
    pub fn is_handler(&self) -> bool {
        matches!(*self.0, Kind::Handler(..))
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
            Kind::Protocol(why) => write!(f, "the server broke the protocol: {why}"),
            Kind::Rounds(why)
            | Kind::Deadline(why)
            | Kind::Handler(why, _)
            | Kind::Request(why) => f.write_str(why),
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
            Kind::Server(error) => Some(error),
            Kind::Transport(error) => error.source(),
            Kind::Handler(_, source) => source.as_deref().map(|s| s as _),
            _ => None,
        }
    }
}
