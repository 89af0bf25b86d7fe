//! The error of the `validate` functions.

use std::fmt;

/// A value that has the right types, but breaks a rule of the specification.
///
/// Returned by the `validate` functions of this crate. [`Display`](fmt::Display) shows the path, if
/// there is one, and the reason: `/messages/0/content/1/data: invalid base64`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidValue {
    path: String,
    reason: String,
}

impl InvalidValue {
    /// Creates an error about the value itself.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    /// Creates an error about a part of the value.
    #[cfg(feature = "validate")]
    pub(crate) fn with_path(path: String, reason: String) -> Self {
        Self { path, reason }
    }

    /// Moves the error below a member or an item of the value that contains it.
    pub(crate) fn at(mut self, segment: impl fmt::Display) -> Self {
        self.path = format!("/{segment}{}", self.path);
        self
    }

    /// Returns the offending part of the value as a JSON Pointer (RFC 6901); empty for all of it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the rule that is broken.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.path {
            "" => f.write_str(&self.reason),
            path => write!(f, "{path}: {}", self.reason),
        }
    }
}

impl From<InvalidValue> for String {
    fn from(error: InvalidValue) -> Self {
        error.to_string()
    }
}
