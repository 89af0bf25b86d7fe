//! Writes JSON into one string.

use std::fmt;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::scan::is_plain;

/// A JSON value as text: serialized once, then copied where it is needed.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(String);

impl RawJson {
    /// Returns text that `write` has written, and that is JSON, with room for `capacity` bytes.
    pub(crate) fn written(capacity: usize, write: impl FnOnce(&mut String)) -> Self {
        let mut text = String::with_capacity(capacity);
        write(&mut text);
        Self(text)
    }

    /// Serializes `value`.
    ///
    /// # Errors
    ///
    /// Fails if JSON cannot represent `value`, for example a map whose keys are not strings.
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(TYPICAL_LENGTH);
        serde_json::to_writer(&mut text, value)?;
        String::from_utf8(text).map(Self).map_err(serde_json::Error::custom)
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Initial capacity in bytes; most results are shorter.
const TYPICAL_LENGTH: usize = 512;

impl From<Box<RawValue>> for RawJson {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Box::<str>::from(raw).into())
    }
}

impl From<RawJson> for String {
    fn from(json: RawJson) -> Self {
        json.0
    }
}

/// Parses the text again, since a serializer copies nothing but a `RawValue` verbatim.
impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of a JSON-RPC message.
const MESSAGE: &str = r#"{"jsonrpc":"2.0""#;

/// Writes a JSON object member by member. The caller must not repeat a key.
#[derive(Debug)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    /// Begins an object, with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity.max(2));
        text.push('{');
        Self { text }
    }

    /// Begins a JSON-RPC message, with room for `capacity` bytes.
    pub fn message(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity.max(MESSAGE.len()));
        text.push_str(MESSAGE);
        Self { text }
    }

    /// Begins an object with the members of `object`.
    ///
    /// # Errors
    ///
    /// Fails if `object` does not serialize to a JSON object.
    pub fn from_object(object: &impl Serialize) -> Result<Self, serde_json::Error> {
        let RawJson(mut text) = RawJson::new(object)?;
        if !text.starts_with('{') || text.pop() != Some('}') {
            return Err(serde_json::Error::custom("a result must be an object"));
        }
        Ok(Self { text })
    }

    /// Adds a member.
    ///
    /// # Errors
    ///
    /// Fails if JSON cannot represent `value`.
    pub fn member(self, key: &str, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.raw(key, &RawJson::new(value)?))
    }

    /// Adds a member whose value is JSON text already.
    pub fn raw(mut self, key: &str, value: &RawJson) -> Self {
        self.key(key);
        self.text.push_str(&value.0);
        self
    }

    /// Adds a string. Fast for long strings without escapes.
    pub fn string(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        self.quoted(value);
        self
    }

    /// Adds an object whose members are added by `members`.
    pub fn object(mut self, key: &str, members: impl FnOnce(Self) -> Self) -> Self {
        self.key(key);
        self.text.push('{');
        let mut writer = members(self);
        writer.text.push('}');
        writer
    }

    /// Adds an array whose items are JSON text already.
    pub fn array(mut self, key: &str, items: &[RawJson]) -> Self {
        self.key(key);
        self.text.push('[');
        for (n, item) in items.iter().enumerate() {
            if n > 0 {
                self.text.push(',');
            }
            self.text.push_str(&item.0);
        }
        self.text.push(']');
        self
    }

    fn key(&mut self, key: &str) {
        // The text ends with `{` only before the first member: no value ends with it.
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        self.quoted(key);
        self.text.push(':');
    }

    fn quoted(&mut self, text: &str) {
        push_quoted(&mut self.text, text);
    }

    /// Ends the object and returns it.
    pub fn end(mut self) -> RawJson {
        self.text.push('}');
        RawJson(self.text)
    }
}

/// Appends a string in quotes. Fast for long strings without escapes.
pub(crate) fn push_quoted(json: &mut String, text: &str) {
    if is_plain(text.as_bytes()) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        // Serializing a string cannot fail.
        json.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_writer_matches_serde_json() {
        let inner = RawJson::new(&json!([1, "ü"])).unwrap();
        let written = ObjectWriter::with_capacity(0)
            .member("a\"b", &json!({ "c": null }))
            .unwrap()
            .raw("inner", &inner)
            .string("token", "v1.abc")
            .string("escaped", "\"\\\n\u{1}ä")
            .object("object", |object| object.string("a", "{").object("none", |none| none))
            .array("array", &[inner.clone(), inner.clone()])
            .array("nothing", &[])
            .string("last", "")
            .end();
        let expected = json!({
            "a\"b": { "c": null }, "inner": [1, "ü"], "token": "v1.abc", "escaped": "\"\\\n\u{1}ä",
            "object": { "a": "{", "none": {} }, "array": [[1, "ü"], [1, "ü"]], "nothing": [], "last": "",
        });
        assert_eq!(written.as_str(), expected.to_string());
        assert_eq!(serde_json::to_string(&written).unwrap(), expected.to_string());
        assert_eq!(ObjectWriter::with_capacity(0).end().as_str(), "{}");
        for (object, more) in [("{}", r#"{"x":1}"#), (r#"{"a":2}"#, r#"{"a":2,"x":1}"#)] {
            let object: serde_json::Value = serde_json::from_str(object).unwrap();
            let writer = ObjectWriter::from_object(&object).unwrap();
            assert_eq!(writer.member("x", &1).unwrap().end().as_str(), more);
        }
        assert!(
            ObjectWriter::from_object(&[1]).is_err() && ObjectWriter::from_object(&"}").is_err()
        );
    }
}
