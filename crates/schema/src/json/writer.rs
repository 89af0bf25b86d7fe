//! Writing JSON into one piece of text.

use std::fmt::{self, Write as _};

use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::scan::is_plain;

/// A JSON value as text. What is long is written once, and copied from then on.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(String);

impl RawJson {
    /// Writes `value`.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON (a map with keys that are no strings, for example).
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut text = Vec::with_capacity(USUAL);
        serde_json::to_writer(&mut text, value)?;
        String::from_utf8(text).map(Self).map_err(serde_json::Error::custom)
    }

    /// The text.
    pub fn get(&self) -> &str {
        &self.0
    }
}

/// Most results are shorter.
const USUAL: usize = 512;

impl From<Box<RawValue>> for RawJson {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Box::<str>::from(raw).into())
    }
}

impl From<RawJson> for String {
    fn from(text: RawJson) -> Self {
        text.0
    }
}

/// Reads the text again: only `RawValue` can be written as it is.
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

/// Writes a JSON object, member by member. No name may come twice.
#[derive(Debug)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    /// An object without members, and room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut text = String::with_capacity(capacity.max(2));
        text.push('{');
        Self { text }
    }

    /// An object with the members of `object`, to which others are added.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON, or is no object.
    pub fn of(object: &impl Serialize) -> Result<Self, serde_json::Error> {
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
    /// If `value` cannot be written as JSON.
    pub fn member(self, name: &str, value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(self.written(name, &RawJson::new(value)?))
    }

    /// Adds a member that is written already.
    pub fn written(self, name: &str, value: &RawJson) -> Self {
        self.json(name, &value.0)
    }

    /// Adds a member with this JSON.
    pub(crate) fn json(mut self, name: &str, json: &str) -> Self {
        self.name(name);
        self.text.push_str(json);
        self
    }

    /// Adds a member that is a text, most often a long one with nothing in it to escape.
    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.quoted(value);
        self
    }

    /// Adds a member that is a number.
    pub(crate) fn number(mut self, name: &str, value: i64) -> Self {
        self.name(name);
        // A `String` takes all that is written to it.
        let _: fmt::Result = write!(self.text, "{value}");
        self
    }

    /// Adds a member that is an object, with the members that `members` adds to it.
    pub fn object(mut self, name: &str, members: impl FnOnce(Self) -> Self) -> Self {
        self.name(name);
        self.text.push('{');
        let mut whole = members(self);
        whole.text.push('}');
        whole
    }

    /// Adds a member that is an array of what is written already.
    pub fn array(mut self, name: &str, items: &[RawJson]) -> Self {
        self.name(name);
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

    fn name(&mut self, name: &str) {
        // No value ends like this.
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        self.quoted(name);
        self.text.push(':');
    }

    fn quoted(&mut self, text: &str) {
        if is_plain(text.as_bytes()) {
            self.text.push('"');
            self.text.push_str(text);
            self.text.push('"');
        } else {
            // A text is always JSON.
            self.text.push_str(&serde_json::to_string(text).unwrap_or_default());
        }
    }

    /// The object.
    pub fn end(mut self) -> RawJson {
        self.text.push('}');
        RawJson(self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_what_was_put_into_it() {
        let inner = RawJson::new(&json!([1, "ü"])).unwrap();
        let written = ObjectWriter::with_capacity(0)
            .member("a\"b", &json!({ "c": null }))
            .unwrap()
            .written("inner", &inner)
            .text("token", "v1.abc")
            .text("escaped", "\"\\\n\u{1}ä")
            .object("object", |object| object.text("a", "{").object("none", |none| none))
            .array("array", &[inner.clone(), inner.clone()])
            .array("nothing", &[])
            .text("last", "")
            .end();
        let expected = json!({
            "a\"b": { "c": null }, "inner": [1, "ü"], "token": "v1.abc", "escaped": "\"\\\n\u{1}ä",
            "object": { "a": "{", "none": {} }, "array": [[1, "ü"], [1, "ü"]], "nothing": [], "last": "",
        });
        assert_eq!(written.get(), expected.to_string());
        assert_eq!(serde_json::to_string(&written).unwrap(), expected.to_string());
        assert_eq!(ObjectWriter::with_capacity(0).end().get(), "{}");
        for (object, more) in [("{}", r#"{"x":1}"#), (r#"{"a":2}"#, r#"{"a":2,"x":1}"#)] {
            let object: serde_json::Value = serde_json::from_str(object).unwrap();
            let writer = ObjectWriter::of(&object).unwrap();
            assert_eq!(writer.member("x", &1).unwrap().end().get(), more);
        }
        assert!(ObjectWriter::of(&[1]).is_err() && ObjectWriter::of(&"}").is_err());
    }
}
