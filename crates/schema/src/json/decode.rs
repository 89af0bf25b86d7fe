//! Deserialization with the path of the offending member in the error.
//!
//! The path is searched for only after an error, from the line and column that `serde_json`
//! reports. So each type is compiled once, without a path-tracking deserializer around it.

use std::fmt;
use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Error, Map, Value};

/// Maximum number of characters of a key in a path.
const MAX_KEY: usize = 64;

/// An error from [`from_str`] or [`from_value`].
#[derive(Debug)]
pub struct DecodeError {
    path: String,
    error: Error,
}

impl DecodeError {
    /// Returns the path of the offending member or item, such as `a.b[0]`; empty for the root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the message without line and column. They are meaningless to a peer if its text was
    /// re-serialized on the way.
    #[must_use]
    pub fn reason(&self) -> String {
        let position = format!(" at line {} column {}", self.error.line(), self.error.column());
        self.error.to_string().replace(&position, "")
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.path {
            "" => write!(f, "{}", self.error),
            path => write!(f, "{path}: {}", self.error),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Deserializes `text`.
///
/// # Errors
///
/// [`DecodeError`] if `text` is not valid JSON or does not have the form of `T`.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, DecodeError> {
    serde_json::from_str(text).map_err(|error| locate(text, error))
}

/// Deserializes `value`.
///
/// # Errors
///
/// [`DecodeError`] if `value` does not have the form of `T`.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    T::deserialize(value).map_err(|error| {
        // Only an error about text has a position.
        let text = value.to_string();
        let positioned = serde_json::from_str::<T>(&text).err().unwrap_or(error);
        locate(&text, positioned)
    })
}

/// Deserializes a member that is present, as `deserialize_with`. Unlike with a plain `Option`,
/// `null` is a value: it is decoded as `T` and is not the same as absence.
///
/// # Errors
///
/// The error of `T`.
pub fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Removes a member from `object` and deserializes it. An error names the member.
pub(crate) fn take_member<T: DeserializeOwned>(
    object: &mut Map<String, Value>,
    key: &str,
) -> Result<Option<T>, String> {
    match object.shift_remove(key) {
        None => Ok(None),
        Some(value) => from_value(&value).map(Some).map_err(|e| format!("`{key}`: {e}")),
    }
}

fn locate(text: &str, error: Error) -> DecodeError {
    // Line 0 marks an error that was not made by the parser.
    if error.line() == 0 {
        return DecodeError { path: String::new(), error };
    }
    let lines_before = text.split_inclusive('\n').take(error.line() - 1);
    let offset = lines_before.map(str::len).sum::<usize>() + error.column();
    DecodeError { path: path_at(text.as_bytes(), offset), error }
}

/// Returns the path of the value that begins or ends at `offset`, or else of the one around it.
fn path_at(text: &[u8], offset: usize) -> String {
    let mut open: Vec<Container> = Vec::new();
    let mut at = 0;
    let mut is_key = false;
    while let Some(&byte) = text.get(at) {
        match byte {
            byte if byte.is_ascii_whitespace() => {}
            b':' => is_key = false,
            b',' => match open.last_mut() {
                Some(Container::Array(index)) => *index += 1,
                Some(Container::Object(_)) => is_key = true,
                None => break,
            },
            b'}' | b']' => {
                open.pop();
                is_key = false;
                if at + 1 >= offset {
                    break;
                }
            }
            // A value begins here.
            _ if at >= offset && !is_key => break,
            b'{' => {
                open.push(Container::Object(String::new()));
                is_key = true;
            }
            b'[' => open.push(Container::Array(0)),
            _ => {
                let end = at + scalar_length(text.get(at..).unwrap_or_default());
                if is_key && let Some(Container::Object(key)) = open.last_mut() {
                    let raw = text.get(at + 1..end - 1).unwrap_or_default();
                    *key = String::from_utf8_lossy(raw).chars().take(MAX_KEY).collect();
                }
                if end >= offset {
                    if is_key {
                        // An error in a key is an error of the object.
                        open.pop();
                    }
                    break;
                }
                at = end;
                continue;
            }
        }
        at += 1;
    }
    write_path(&open)
}

/// An array or object that is open at some offset.
enum Container {
    /// With the last key that was read.
    Object(String),
    /// With the index of the current item.
    Array(usize),
}

fn write_path(open: &[Container]) -> String {
    let mut path = String::new();
    for container in open {
        match container {
            Container::Array(index) => {
                // Writing to a `String` cannot fail.
                let _: fmt::Result = write!(path, "[{index}]");
            }
            Container::Object(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
        }
    }
    path
}

/// Returns the length of the string, number or literal at the start of `text`.
fn scalar_length(text: &[u8]) -> usize {
    if text.first() != Some(&b'"') {
        let is_end =
            |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace();
        return text.iter().position(is_end).unwrap_or(text.len()).max(1);
    }
    let mut at = 1;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the error matters")]
    #[serde(deny_unknown_fields)]
    struct Outer {
        n: u8,
        #[serde(default)]
        many: Vec<Inner>,
        #[serde(default)]
        map: HashMap<String, Vec<Inner>>,
        #[serde(default)]
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the error matters")]
    struct Inner {
        text: String,
        #[serde(default)]
        flag: bool,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        A,
    }

    #[test]
    fn decode_errors_have_the_path_of_the_offending_member() {
        for (text, path) in [
            ("5", ""),
            ("[]", ""),
            ("{}", ""),
            (r#"{"n":300}"#, "n"),
            (r#"{"n":"1"}"#, "n"),
            (r#"{"n":[1]}"#, "n"),
            (r#"{"n":{}}"#, "n"),
            (r#"{"n":null,"many":[]}"#, "n"),
            (r#"{"n":true , "many":[]}"#, "n"),
            (r#"{"n":-1.5e3}"#, "n"),
            (r#"{"n":1,"other":2}"#, ""),
            (r#"{"n":1,"many":5}"#, "many"),
            (r#"{"n":1,"many":[{"text":"a"},{"text":[]}]}"#, "many[1].text"),
            (r#"{"n":1,"many":[{"text":"a"},{}]}"#, "many[1]"),
            (r#"{"n":1,"many":[[],{"text":"a"}]}"#, "many[0]"),
            (r#"{"n":1,"many":[{"text":"a"},7]}"#, "many[1]"),
            (r#"{"n":1,"many":[{"text":"a","flag":"\"}]"}]}"#, "many[0].flag"),
            (
                "{\n \"n\": 1,\n \"map\": {\"a\": [], \"b\\n\": [ {\"text\": 5} ]}\n}",
                "map.b\\n[0].text",
            ),
            (r#"{"n":1,"map":{"ä":[{"text":"ö"},{"text":1}]}}"#, "map.ä[1].text"),
            (r#"{"n":1,"kind":"B"}"#, "kind"),
            (r#"{"n":1,"kind":5}"#, "kind"),
        ] {
            let error = from_str::<Outer>(text).unwrap_err();
            assert_eq!(error.path(), path, "{text}: {error}");
            assert!(!error.reason().contains(" at line "), "{error}");
            let value: Value = serde_json::from_str(text).unwrap();
            let error = from_value::<Outer>(&value).unwrap_err();
            assert_eq!(error.path(), path, "{value}: {error}");
        }
        // An error of syntax has a position, too.
        let broken = from_str::<Outer>(r#"{"n":1,"many":[{"text":"#).unwrap_err();
        assert_eq!(broken.path(), "many[0].text");
        assert!(broken.to_string().contains("line 1 column 23"), "{broken}");
        let long = format!(r#"{{"n":1,"map":{{"{}":5}}}}"#, "k".repeat(1000));
        assert_eq!(from_str::<Outer>(&long).unwrap_err().path().len(), "map.".len() + MAX_KEY);
    }
}
