//! JSON on one line, for framings that end a message with a line break.

use mrtr_schema::RawJson;

/// Returns the text without its line breaks.
///
/// In JSON text, raw line breaks occur between tokens only, where they have no meaning. Few writers
/// emit any, so the common case is a search and no copy.
pub(crate) fn one_line(json: RawJson) -> String {
    let mut text = String::from(json);
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
        text.retain(|c| !matches!(c, '\n' | '\r'));
    }
    text
}
