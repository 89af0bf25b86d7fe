//! Text that a peer chose, as it may appear in error messages and log lines.

/// Longer text is cut, so that a peer cannot fill a log with one name.
const MAX_CHARS: usize = 200;

/// Returns `text` in quotes, escaped and cut to 200 characters.
pub(crate) fn quote(text: &str) -> String {
    let cut = text.char_indices().nth(MAX_CHARS).and_then(|(at, _)| text.get(..at));
    cut.map_or_else(|| format!("{text:?}"), |cut| format!("{:?}", format!("{cut}…")))
}
