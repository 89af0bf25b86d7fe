//! What goes wrong in a handler.

use std::error::Error as StdError;
use std::fmt;

/// What a handler returns instead of a result.
///
/// It has two faces: what the caller may read, and what only the log says. Any standard error turns
/// into one by `?`, and then the caller reads only that the tool failed: error texts tend to name
/// hosts, paths and queries. To tell the model what to do better, say so with [`Error::new`], or
/// choose to show an error with [`Error::show`].
///
/// Like `anyhow::Error` it does not implement [`std::error::Error`] itself, which is what lets `?`
/// take all others.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: Kind,
    /// For the caller.
    message: String,
    /// For the log.
    source: Option<Box<dyn StdError + Send + Sync>>,
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
    /// An error that the model, and through it the person, may read.
    pub fn new(message: impl Into<String>) -> Self {
        Self::with_kind(Kind::Visible, message.into())
    }

    /// An error of which the caller's input is the cause, such as a resource that there is not. From a tool it
    /// is like [`Error::new`]; from prompts, resources and completion it is -32602 instead of -32603.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::with_kind(Kind::Invalid, message.into())
    }

    /// Shows the text of `error` to the model. Its sources stay in the log.
    pub fn show(error: impl StdError + Send + Sync + 'static) -> Self {
        let mut shown = Self::new(error.to_string());
        shown.0.source = Some(Box::new(error));
        shown
    }

    /// An error that only the log should name: for errors that `?` does not take, such as a boxed one.
    pub fn internal(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let mut internal =
            Self::with_kind(Kind::Internal, "Something went wrong inside the server.".to_owned());
        internal.0.source = Some(error.into());
        internal
    }

    fn with_kind(kind: Kind, message: String) -> Self {
        Self(Box::new(ErrorInner { kind, message, source: None }))
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

    /// What a later round may know of it.
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

    /// Whether the person refused to answer.
    #[must_use]
    pub fn is_declined(&self) -> bool {
        self.0.kind == Kind::Declined
    }

    /// Whether the person dismissed the question.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.kind == Kind::Cancelled
    }

    /// Whether the question was held by a task of its own when the round ended.
    #[must_use]
    pub fn is_round_closed(&self) -> bool {
        self.0.kind == Kind::RoundClosed
    }

    /// What the caller may read.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the caller's input is the cause.
    pub(crate) fn is_invalid(&self) -> bool {
        self.0.kind == Kind::Invalid
    }

    /// Whether the caller is told nothing but that something failed.
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
    /// What the caller may read; with `{:#}` all of it, sources included, for the log.
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
        assert!(!error.to_string().contains("db-3"), "one could paste it into another error");
        assert!(format!("{error:#}").contains("db-3.internal refused"));
        assert!(
            Error::show(std::io::Error::other("no such table")).message().contains("no such table")
        );
    }
}
