//! JSON on one line, for framings that end a message with a line break.

/// Removes the line breaks of JSON text from `start` on.
///
/// In JSON text, raw line breaks occur between tokens only, where they have no meaning. Few writers
/// emit any, so the common case is a search and no copy.
pub(crate) fn remove_line_breaks(text: &mut String, start: usize) {
    let is_break = |c: char| matches!(c, '\n' | '\r');
    let tail = text.get(start..).unwrap_or_default();
    if memchr::memchr2(b'\n', b'\r', tail.as_bytes()).is_some() {
        let tail = tail.replace(is_break, "");
        text.truncate(start);
        text.push_str(&tail);
    }
}
