//! The error of invalid settings.

use crate::{InvalidScope, InvalidUrl};

/// A setting of a protected resource that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl From<InvalidUrl> for ConfigError {
    fn from(error: InvalidUrl) -> Self {
        Self::new(error.to_string())
    }
}

impl From<InvalidScope> for ConfigError {
    fn from(error: InvalidScope) -> Self {
        Self::new(error.to_string())
    }
}
