//! Failed commands.

use std::fmt;

use mrtr::CallError;

/// The exit code and the message of a failed command.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: 2, message: message.to_string() }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let code = if error.is_handler() {
            5
        } else if error.as_server_error().is_some()
            || error.is_protocol()
            || error.is_too_many_rounds()
        {
            3
        } else if error.as_transport_error().is_some() || error.is_timeout() {
            4
        } else {
            2
        };
        let mut message = error.to_string();
        let mut source = error.as_transport_error().and_then(std::error::Error::source);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self { code, message }
    }
}
