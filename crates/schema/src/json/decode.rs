//! JSON as types, and where in it a mistake is.
//!
//! Where it is, is only looked for when there is one, and by the position that `serde_json` gives: the types are compiled
//! once, for reading alone.

use std::fmt;
use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// How much of a key is shown.
const KEY: usize = 64;

/// Why JSON does not read as a type.
#[derive(Debug)]
pub struct DecodeError {
    path: String,
    error: Error,
}

impl DecodeError {
    /// Which member or item it is, such as `a.b[0]`; empty if it is the whole.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong with it, without the line and the column, which are of no use to whoever wrote it in another way.
    #[must_use]
    pub fn why(&self) -> String {
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

/// Reads JSON.
///
/// # Errors
///
/// [`DecodeError`], if it is no JSON, or does not read as `T`.
pub fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, DecodeError> {
    serde_json::from_str(text).map_err(|error| misfit(text, error))
}

/// Reads a value.
///
/// # Errors
///
/// [`DecodeError`], if it does not read as `T`.
pub fn read_value<T: DeserializeOwned>(value: &Value) -> Result<T, DecodeError> {
    T::deserialize(value).map_err(|error| {
        let text = value.to_string();
        // Read again as text, the mistake has a position.
        let positioned = serde_json::from_str::<T>(&text).err().unwrap_or(error);
        misfit(&text, positioned)
    })
}

fn misfit(text: &str, error: Error) -> DecodeError {
    let before: usize =
        text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    // Without a line it was made by hand.
    let is_somewhere = error.line() > 0;
    let path = is_somewhere.then(|| path_at(text.as_bytes(), before + error.column()));
    DecodeError { path: path.unwrap_or_default(), error }
}

/// The path of the value that begins or ends at this offset; if there is none, of the one around it.
fn path_at(text: &[u8], offset: usize) -> String {
    let mut open: Vec<Container> = Vec::new();
    let mut at = 0;
    let mut is_key = false;
    while let Some(&byte) = text.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        match byte {
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
            // Where a value begins.
            _ if at >= offset && !is_key => break,
            b'{' => {
                open.push(Container::Object(String::new()));
                is_key = true;
            }
            b'[' => open.push(Container::Array(0)),
            _ => {
                let end = at + length(text.get(at..).unwrap_or_default());
                if is_key {
                    if let Some(Container::Object(key)) = open.last_mut() {
                        let raw = text.get(at + 1..end - 1).unwrap_or_default();
                        *key = String::from_utf8_lossy(raw).chars().take(KEY).collect();
                    }
                    if end >= offset {
                        // A mistake in a key is one of the object's.
                        open.pop();
                        break;
                    }
                } else if end >= offset {
                    break;
                }
                at = end;
                continue;
            }
        }
        at += 1;
    }
    let mut path = String::new();
    for container in open {
        match container {
            Container::Array(index) => drop(write!(path, "[{index}]")),
            Container::Object(key) if path.is_empty() => path = key,
            Container::Object(key) => {
                path.push('.');
                path += &key;
            }
        }
    }
    path
}

/// Which of its members it is about: none yet, or the last that was come to.
enum Container {
    Object(String),
    Array(usize),
}

/// How long the string, number or word is that this begins with.
fn length(text: &[u8]) -> usize {
    if text.first() != Some(&b'"') {
        let end =
            |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace();
        return text.iter().position(end).unwrap_or(text.len()).max(1);
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
    #[expect(dead_code, reason = "what is read is not looked at")]
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
    #[expect(dead_code, reason = "what is read is not looked at")]
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
    fn mistakes_are_found_where_they_are() {
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
            let misfit = read::<Outer>(text).unwrap_err();
            assert_eq!(misfit.path(), path, "{text}: {misfit}");
            assert!(!misfit.why().contains(" at line "), "{misfit}");
            let value: Value = serde_json::from_str(text).unwrap();
            let misfit = read_value::<Outer>(&value).unwrap_err();
            assert_eq!(misfit.path(), path, "{value}: {misfit}");
        }
        // What is no JSON has a position, too.
        let broken = read::<Outer>(r#"{"n":1,"many":[{"text":"#).unwrap_err();
        assert_eq!(broken.path(), "many[0].text");
        assert!(broken.to_string().contains("line 1 column 23"), "{broken}");
        let long = format!(r#"{{"n":1,"map":{{"{}":5}}}}"#, "k".repeat(1000));
        assert_eq!(read::<Outer>(&long).unwrap_err().path().len(), "map.".len() + KEY);
    }
}
