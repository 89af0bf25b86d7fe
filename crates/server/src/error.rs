//! The errors of handlers.

use std::error::Error as StdError;
use std::fmt;

use mrtr_schema::jsonrpc::{ErrorObject, code};

/// The code of an unknown resource in revisions before 2026-07-28.
const LEGACY_RESOURCE_NOT_FOUND: i64 = -32002;

/// The error of a handler.
///
/// It has a message for the client, and a source for the log. `?` converts any standard error. Its
/// text is then only logged, because error texts tend to name hosts, paths and queries, and the
/// client gets a generic message. To give the model a message, use [`Error::new`], or show the text
/// of an error with [`Error::show`].
///
/// Like `anyhow::Error`, it does not implement [`std::error::Error`] itself, so that `?` can
/// convert every type that does.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: Kind,
    /// The text for the client.
    message: String,
    /// The cause, for the log.
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// The error response that the client gets instead of the message.
    response: Option<ErrorObject>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Visible,
    Invalid,
    Internal,
    Declined,
    Cancelled,
    RoundClosed,
}

impl Error {
    /// Creates an error whose message the client gets: the model, and through it the user.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_kind(Kind::Visible, message.into())
    }

    /// Creates an error about invalid input of the client, such as a resource that does not exist.
    ///
    /// From a tool, it is like [`Error::new`]. From prompts, resources, completions and extension
    /// methods, it is the JSON-RPC error -32602 instead of -32603.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::with_kind(Kind::Invalid, message.into())
    }

    /// Creates an error whose message is the text of `error`. The sources of `error` are only
    /// logged.
    pub fn show(error: impl StdError + Send + Sync + 'static) -> Self {
        let mut shown = Self::new(error.to_string());
        shown.0.source = Some(Box::new(error));
        shown
    }

    /// Creates an error that is only logged. Use it for errors that `?` does not convert, such as a
    /// boxed error.
    pub fn internal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let mut internal =
            Self::with_kind(Kind::Internal, "Something went wrong inside the server.".to_owned());
        internal.0.source = Some(error.into());
        internal
    }

    /// Creates an error that ends the call with this JSON-RPC error, also if a tool returns it.
    ///
    /// For handlers that forward calls. Tools should use [`Error::new`], which the model can read.
    ///
    /// Reserved codes (-32099 to -32000) that this revision does not define are replaced: -32002,
    /// which meant an unknown resource in older revisions, becomes -32602; all others become -32603
    /// (specification: basic, "Error Codes").
    pub fn response(mut error: ErrorObject) -> Self {
        error.code = match error.code {
            code::HEADER_MISMATCH
            | code::MISSING_REQUIRED_CLIENT_CAPABILITY
            | code::UNSUPPORTED_PROTOCOL_VERSION => error.code,
            LEGACY_RESOURCE_NOT_FOUND => code::INVALID_PARAMS,
            -32099..=-32000 => code::INTERNAL_ERROR,
            other => other,
        };
        let mut response = Self::new(error.message.clone());
        response.0.response = Some(error);
        response
    }

    fn with_kind(kind: Kind, message: String) -> Self {
        Self(Box::new(ErrorInner { kind, message, source: None, response: None }))
    }

    pub(crate) fn declined(key: &str) -> Self {
        Self::with_kind(Kind::Declined, format!("The user declined to answer {key:?}."))
    }

    pub(crate) fn cancelled(key: &str) -> Self {
        Self::with_kind(Kind::Cancelled, format!("The user dismissed the question {key:?}."))
    }

    pub(crate) fn round_closed(key: &str) -> Self {
        Self::with_kind(Kind::RoundClosed, format!("The round ended before {key:?} was answered."))
    }

    /// Returns what the journal records about it: true if it is internal, true if the input is
    /// invalid, and the message, which is empty for an internal error.
    pub(crate) fn to_recorded(&self) -> (bool, bool, &str) {
        let internal = self.is_internal();
        (internal, self.is_invalid(), if internal { "" } else { &self.0.message })
    }

    pub(crate) fn from_recorded((internal, invalid, message): (bool, bool, String)) -> Self {
        match (internal, invalid) {
            (true, _) => Self::internal("a step failed in an earlier round"),
            (false, true) => Self::invalid(message),
            (false, false) => Self::new(message),
        }
    }

    /// Returns true if the user declined to answer.
    #[must_use]
    pub fn is_declined(&self) -> bool {
        self.0.kind == Kind::Declined
    }

    /// Returns true if the user cancelled the question.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.kind == Kind::Cancelled
    }

    /// Returns true if a separately spawned task was waiting for a question, step or checkpoint
    /// when the round ended.
    #[must_use]
    pub fn is_round_closed(&self) -> bool {
        self.0.kind == Kind::RoundClosed
    }

    /// Returns the message for the client.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the JSON-RPC error that ends the call, if it is not derived from the message.
    pub(crate) fn as_response(&self) -> Option<&ErrorObject> {
        self.0.response.as_ref()
    }

    /// Returns true if the client's input is the cause.
    pub(crate) fn is_invalid(&self) -> bool {
        self.0.kind == Kind::Invalid
    }

    /// Returns true if the cause is only logged, and the client gets a generic message.
    pub(crate) fn is_internal(&self) -> bool {
        self.0.kind == Kind::Internal
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::internal(error)
    }
}

impl fmt::Display for Error {
    /// Writes the message for the client. `{:#}` adds the sources, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if !f.alternate() {
            return Ok(());
        }
        let mut next: Option<&dyn StdError> = self.0.source.as_deref().map(|s| s as _);
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_errors_show_their_text_only_in_the_log() {
        let error = Error::from(std::io::Error::other("db-3.internal refused"));
        assert!(!error.message().contains("db-3"));
        assert!(!error.to_string().contains("db-3"), "the source must not reach the caller");
        assert!(format!("{error:#}").contains("db-3.internal refused"));
        assert!(
            Error::show(std::io::Error::other("no such table")).message().contains("no such table")
        );
    }
}
