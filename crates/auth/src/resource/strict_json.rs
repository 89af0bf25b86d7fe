//! JSON objects in which no object has a member twice.
//!
//! RFC 7515, section 4, lets a parser reject duplicate members or take the last one. Two parsers
//! that disagree would read two tokens, so they are rejected at every depth.

use std::borrow::Cow;
use std::{fmt, str};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The largest object whose members are compared each with each. Larger ones are sorted, so that
/// their time stays `n log n`.
const MAX_PAIRWISE: usize = 16;

/// A value. Texts without escapes are borrowed.
#[derive(Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    String(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Object<'a>),
}

/// An object with distinct members, in their order. Tokens have few, so a lookup is a search.
#[derive(Debug, PartialEq)]
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

/// Parses an object. The depth is limited by `serde_json`, to 128 levels.
///
/// # Errors
///
/// If `text` is not an object, or an object has a member twice.
pub(super) fn object(text: &[u8]) -> Result<Object<'_>, serde_json::Error> {
    let text = str::from_utf8(text).map_err(serde_json::Error::custom)?;
    match serde_json::from_str(text)? {
        Json::Object(object) => Ok(object),
        _ => Err(serde_json::Error::custom("not an object")),
    }
}

impl<'a> Object<'a> {
    /// Returns the value of a member.
    pub(super) fn get(&self, name: &str) -> Option<&Json<'a>> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'a> IntoIterator for Object<'a> {
    type Item = (Cow<'a, str>, Json<'a>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> Json<'a> {
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn as_object(&self) -> Option<&Object<'a>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        // No member of a token or a key is negative, so the exact number does not matter.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        Ok(Json::Float(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Float(value))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json<'de>, E> {
        Ok(Json::String(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json<'de>, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json<'de>, A::Error> {
        let mut object = Vec::with_capacity(8);
        while let Some((Name(name), value)) = members.next_entry()? {
            object.push((name, value));
        }
        if has_duplicates(&object) {
            return Err(A::Error::custom("an object has a member twice"));
        }
        Ok(Json::Object(Object(object)))
    }
}

fn has_duplicates(members: &[(Cow<'_, str>, Json<'_>)]) -> bool {
    if members.len() <= MAX_PAIRWISE {
        let mut rest = members;
        while let Some(((name, _), others)) = rest.split_first() {
            if others.iter().any(|(other, _)| other == name) {
                return true;
            }
            rest = others;
        }
        return false;
    }
    let mut names: Vec<_> = members.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.array_windows().any(|[name, next]| name == next)
}

/// The name of a member, borrowed if it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_parsed() {
        let parsed = object(br#"{"a":[1,-2,1.5,null,true,{"b":"\u00e9"}],"c":{},"\u0064":"x"}"#);
        let parsed = parsed.unwrap();
        let inner = Object(vec![("b".into(), Json::String("é".into()))]);
        let items = [
            Json::Unsigned(1),
            Json::Float(-2.0),
            Json::Float(1.5),
            Json::Null,
            Json::Bool(true),
            Json::Object(inner),
        ];
        assert_eq!(parsed.get("a").and_then(Json::as_array), Some(items.as_slice()));
        assert_eq!(parsed.get("c").and_then(Json::as_object).map(Object::len), Some(0));
        assert_eq!(parsed.get("d").and_then(Json::as_str), Some("x"));
        assert_eq!(parsed.get("b"), None);
    }

    #[test]
    fn duplicate_members_are_rejected_at_every_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"c":{"a":1,"a":2}}"#,
            r#"{"c":[{"a":1,"a":2}]}"#,
            "[]",
            "1",
            r#"{"a":1} x"#,
            "",
        ] {
            assert!(object(text.as_bytes()).is_err(), "{text}");
        }
        assert!(object(b"{\"a\":\"\xff\"}").is_err());
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(object(deep.as_bytes()).is_err());
    }

    #[test]
    fn duplicate_members_of_large_objects_are_rejected() {
        for size in [2, MAX_PAIRWISE, MAX_PAIRWISE + 1, 1000] {
            let names = |last: usize| -> Vec<_> {
                (1..size).chain([last]).map(|n| format!("\"m{n}\":{n}")).collect()
            };
            let distinct = format!("{{{}}}", names(size).join(","));
            assert_eq!(object(distinct.as_bytes()).unwrap().len(), size);
            for twice in [1, size - 1] {
                let text = format!("{{{}}}", names(twice).join(","));
                assert!(object(text.as_bytes()).is_err(), "{size}: m{twice}");
            }
        }
    }
}
