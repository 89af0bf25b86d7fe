//! Text that a peer chose, as it may appear in error messages and log lines.
//!
//! For the sibling crates; not covered by semantic versioning.

use std::borrow::Cow;

/// Longer text is cut, so that a peer cannot fill a log or a response with one name.
const MAX_CHARS: usize = 128;

/// Returns `text` in quotes, escaped and cut to 128 characters.
pub fn quote(text: &str) -> String {
    let cut = text.char_indices().nth(MAX_CHARS).and_then(|(at, _)| text.get(..at));
    cut.map_or_else(|| format!("{text:?}"), |cut| format!("{:?}", format!("{cut}…")))
}

/// Returns the first 128 characters of `text`, followed by an ellipsis if there are more, as
/// [`one_line`] returns them.
pub fn truncate(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_CHARS) {
        Some((at, _)) => format!("{}…", one_line(text.get(..at).unwrap_or_default())).into(),
        None => one_line(text),
    }
}

/// Replaces what would forge a log line or control a terminal: line breaks become spaces, and other
/// control characters and marks of bidirectional text become U+FFFD.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return text.into();
    }
    let replaced = text.chars().map(|c| match c {
        '\n' | '\r' | '\t' => ' ',
        c if is_harmless(c) => c,
        _ => '\u{fffd}',
    });
    replaced.collect::<String>().into()
}

/// Returns true if the character neither controls a terminal nor reverses the order of letters.
pub fn is_harmless(c: char) -> bool {
    let is_bidirectional_mark = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    !c.is_control() && !is_bidirectional_mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_stays_on_its_line() {
        assert_eq!(truncate("a b"), "a b");
        assert_eq!(truncate("a\nERROR b\u{1b}[2J\u{202e}"), "a ERROR b\u{fffd}[2J\u{fffd}");
        assert_eq!(truncate(&"é".repeat(200)).chars().count(), MAX_CHARS + 1);
        assert_eq!(quote("a\n\"b"), r#""a\n\"b""#);
    }
}
