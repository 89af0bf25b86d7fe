//! Text that a peer chose, as it may appear in error messages and log lines.
//!
//! For the sibling crates; not covered by semantic versioning.

use std::borrow::Cow;

/// Longer text is cut, so that a peer cannot fill a log or a response with one name.
const MAX_CHARS: usize = 128;

/// Returns `text` in quotes, escaped and cut to 128 characters.
pub fn quote(text: &str) -> String {
    format!("{:?}", truncate(text))
}

/// Returns the first 128 characters of `text`, followed by an ellipsis if there are more.
pub fn truncate(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
        None => text.into(),
    }
}
