//! The parameters of a request, before they are decoded.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::scan::{self, MemberSpan, is_plain};
use crate::json::{CowStr, read_pairs};

/// The parameters of a request: the text of a JSON object, with an index of its members.
///
/// Their [`Debug`](fmt::Debug) form has the names of the members only: the values may be answers.
#[derive(Clone)]
pub struct Params {
    text: Box<str>,
    members: Vec<MemberSpan>,
    /// The unescaped keys, if any key in the text contains an escape.
    keys: Option<Vec<Box<str>>>,
}

impl Params {
    /// Serializes `params`.
    ///
    /// # Errors
    ///
    /// Fails if `params` does not serialize to a JSON object.
    pub fn new(params: &impl Serialize) -> Result<Self, serde_json::Error> {
        Self::from_text(serde_json::to_string(params)?)
    }

    /// Indexes the members of a valid JSON object.
    pub(crate) fn from_text(text: String) -> Result<Self, serde_json::Error> {
        match scan::scan_object(&text) {
            Some(members) => Ok(Self::from_spans(&text, members)),
            None => Self::index(text),
        }
    }

    /// Takes an object whose members were found by the scanner.
    pub(crate) fn from_spans(text: &str, members: Vec<MemberSpan>) -> Self {
        Self { text: text.into(), members, keys: None }
    }

    /// Indexes an object in a form that the scanner does not accept.
    fn index(text: String) -> Result<Self, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(&text);
        let found: Vec<(CowStr<'_>, &RawValue)> = read_pairs(&mut deserializer, "an object")?;
        deserializer.end()?;
        let mut members = Vec::new();
        let mut keys = Vec::new();
        for (CowStr(key), value) in found {
            let start = value.get().as_ptr().addr() - text.as_ptr().addr();
            members.push(MemberSpan { key: 0..0, value: start..start + value.get().len() });
            keys.push(key.into());
        }
        Ok(Self { text: text.into(), members, keys: Some(keys) })
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the JSON text of a member.
    pub fn member(&self, name: &str) -> Option<&str> {
        let bytes = self.text.as_bytes();
        let at = match &self.keys {
            None => {
                let matches =
                    |member: &MemberSpan| bytes.get(member.key.clone()) == Some(name.as_bytes());
                self.members.iter().position(matches)
            }
            Some(keys) => keys.iter().position(|key| **key == *name),
        };
        self.text.get(self.members.get(at?)?.value.clone())
    }

    /// Returns a member that is a string, or `None` if it is absent or has another type.
    pub fn string(&self, name: &str) -> Option<Cow<'_, str>> {
        let value = self.member(name)?;
        let inner = value.strip_prefix('"')?.strip_suffix('"')?;
        if !is_plain(inner.as_bytes()) {
            return serde_json::from_str(value).ok().map(|CowStr(text)| text);
        }
        Some(inner.into())
    }
}

impl Serialize for Params {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.text).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = f.debug_set();
        match &self.keys {
            Some(keys) => names.entries(keys),
            None => {
                let name = |member: &MemberSpan| self.text.get(member.key.clone());
                names.entries(self.members.iter().filter_map(name))
            }
        };
        names.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn params_members_are_found_however_they_are_written() {
        for text in [
            r#"{"a":"x","b":[1, 2],"c":"\"é\"","d":null}"#,
            r#"{ "\u0061" : "x", "b":[1, 2] ,"c":"\"\u00e9\"", "d":null }"#,
        ] {
            let params = Params::from_text(text.to_owned()).unwrap();
            assert_eq!(params.as_str(), text);
            assert_eq!(params.member("b"), Some("[1, 2]"), "{text}");
            assert_eq!(params.member("d"), Some("null"), "{text}");
            assert_eq!(params.member("e"), None, "{text}");
            let strings = ["a", "b", "c", "d"].map(|name| params.string(name));
            assert_eq!(strings, [Some("x".into()), None, Some("\"é\"".into()), None], "{text}");
            assert_eq!(format!("{params:?}"), r#"{"a", "b", "c", "d"}"#);
            assert_eq!(serde_json::to_string(&params).unwrap(), text);
        }
        assert!(Params::new(&[1]).is_err() && Params::new(&"x").is_err(), "not an object");
    }
}
