//! JSON on one line.

use mrtr_schema::json::RawJson;

/// The text without its line breaks. In JSON, those stand between tokens only, where they mean nothing; few writers have any.
pub(crate) fn one_line(json: RawJson) -> String {
    let mut text = String::from(json);
    if [b'\n', b'\r'].iter().any(|end| text.as_bytes().contains(end)) {
        text.retain(|c| !matches!(c, '\n' | '\r'));
    }
    text
}
