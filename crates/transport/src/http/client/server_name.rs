//! The server's URL as it appears in errors.

use std::fmt;
use std::time::Duration;

use ::http::StatusCode;

use crate::error::{Kind, TransportError};

/// The server's URL without user, password and query, which may be secret.
#[derive(Debug, Clone)]
pub(super) struct ServerName(String);

impl ServerName {
    pub(super) fn new(url: &reqwest::Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Self(format!("{}://{host}{port}{}", url.scheme(), url.path()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates the error of a request for which reqwest failed.
    pub(super) fn request_failed(&self, error: reqwest::Error) -> TransportError {
        let (kind, what) = if error.is_connect() {
            (Kind::NotSent, "cannot be reached")
        } else if error.is_timeout() {
            (Kind::Interrupted, "did not answer in time")
        } else {
            (Kind::Interrupted, "broke the connection")
        };
        TransportError::new(kind, format!("{self} {what}")).with_source(error.without_url())
    }

    /// Creates the error of a server that has sent nothing for the whole timeout.
    pub(super) fn silent(&self, timeout: Duration) -> TransportError {
        TransportError::interrupted(format!("{self} did not answer within {timeout:?}"))
    }

    /// Creates the error of a response from a gateway that got no response from the server.
    pub(super) fn gateway_error(&self, status: StatusCode) -> TransportError {
        TransportError::interrupted(format!("{self} is behind a gateway that answered {status}"))
    }

    /// Creates the error of a response that violates the protocol. `violation` continues a sentence
    /// whose subject is the server.
    pub(super) fn violation(&self, violation: impl fmt::Display) -> TransportError {
        TransportError::protocol(format!("{self} {violation}"))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
