//! Failed commands.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use mrtr::CallError;
use mrtr::auth::client::LoginError;

/// The exit code and the message of a failed command.
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

/// The exit code if the server is unreachable, or a timeout expired.
pub(crate) const UNREACHABLE: u8 = 4;

/// The exit code if a login is needed, or has failed.
pub(crate) const LOGIN_NEEDED: u8 = 6;

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn login(error: impl fmt::Display) -> Self {
        Self { code: LOGIN_NEEDED, message: error.to_string() }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: 2, message: message.to_string() }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let code = if is_login(&error) {
            LOGIN_NEEDED
        } else if error.is_handler() {
            5
        } else if error.as_server_error().is_some()
            || error.is_protocol()
            || error.is_too_many_rounds()
            || error.is_task_cancelled()
        {
            3
        } else if error.as_transport_error().is_some()
            || error.is_timeout()
            || error.is_task_expired()
        {
            UNREACHABLE
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

/// Returns true if a request failed because a login is needed, or has failed.
fn is_login(error: &CallError) -> bool {
    let Some(transport) = error.as_transport_error() else { return false };
    let mut source = transport.source();
    while let Some(cause) = source {
        if cause.is::<LoginError>() || cause.is::<Arc<LoginError>>() {
            return true;
        }
        source = cause.source();
    }
    transport.status() == Some(401)
}
