//! The parameters of a request.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::CowStr;
use crate::json::scan::{self, Span, is_plain};
use crate::jsonrpc::{ErrorObject, Request};
use crate::{completion, prompt, resource, subscription, tool};

/// The parameters of a request: a JSON object, unread, of which it is known what members it has.
#[derive(Clone)]
pub struct Params {
    text: Box<str>,
    members: Vec<Span>,
    /// What the members' keys mean, if one of them is not written as it is meant.
    keys: Option<Vec<Box<str>>>,
}

impl Params {
    /// Writes `params`.
    ///
    /// # Errors
    ///
    /// If they cannot be written as JSON, or are no object.
    pub fn new(params: &impl Serialize) -> Result<Self, serde_json::Error> {
        Self::of(serde_json::to_string(params)?)
    }

    /// Reads an object.
    pub(crate) fn of(text: String) -> Result<Self, serde_json::Error> {
        match scan::of_params(&text) {
            Some(members) => Ok(Self::outlined(&text, members)),
            None => Self::searched(text),
        }
    }

    /// An object whose members are known.
    pub(crate) fn outlined(text: &str, members: Vec<Span>) -> Self {
        Self { text: text.into(), members, keys: None }
    }

    fn searched(text: String) -> Result<Self, serde_json::Error> {
        let Members(found) = serde_json::from_str(&text)?;
        let (mut members, mut keys) = (Vec::new(), Vec::new());
        for (CowStr(key), value) in found {
            let start = value.get().as_ptr().addr() - text.as_ptr().addr();
            members.push(Span { key: 0..0, value: start..start + value.get().len() });
            keys.push(key.into());
        }
        Ok(Self { text: text.into(), members, keys: Some(keys) })
    }

    /// The text.
    pub fn get(&self) -> &str {
        &self.text
    }

    /// A member, as JSON.
    pub fn member(&self, name: &str) -> Option<&str> {
        let bytes = self.text.as_bytes();
        let at = match &self.keys {
            None => {
                let is_it = |member: &Span| bytes.get(member.key.clone()) == Some(name.as_bytes());
                self.members.iter().position(is_it)
            }
            Some(keys) => keys.iter().position(|key| **key == *name),
        };
        self.text.get(self.members.get(at?)?.value.clone())
    }

    /// A member that is a string; `None` if there is none, or it is something else.
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
        f.debug_tuple("Params").field(&self.text).finish()
    }
}

struct Members<'a>(Vec<(CowStr<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Parameters that are read here, so that what reads them is compiled once and not in every crate that does.
macro_rules! read_here {
    ($($params:ty),* $(,)?) => {$(
        impl $params {
            /// Those of a request, as [`params`](crate::params) reads them.
            ///
            /// # Errors
            ///
            /// [`code::INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS) that names the field.
            pub fn of(request: &Request) -> Result<Self, ErrorObject> {
                crate::params(request)
            }
        }
    )*};
}
read_here!(
    tool::ListParams,
    prompt::GetPromptParams,
    resource::ReadResourceParams,
    completion::CompleteParams,
    subscription::ListenParams,
);

#[cfg(test)]
mod tests {
    use crate::jsonrpc::request_params::*;

    /// However they are written.
    #[test]
    fn members_are_found() {
        for text in [
            r#"{"a":"x","b":[1, 2],"c":"\"é\"","d":null}"#,
            r#"{ "\u0061" : "x", "b":[1, 2] ,"c":"\"\u00e9\"", "d":null }"#,
        ] {
            let params = Params::of(text.to_owned()).unwrap();
            assert_eq!(params.get(), text);
            assert_eq!(params.member("b"), Some("[1, 2]"), "{text}");
            assert_eq!(params.member("d"), Some("null"), "{text}");
            assert_eq!(params.member("e"), None, "{text}");
            let strings = ["a", "b", "c", "d"].map(|name| params.string(name));
            assert_eq!(strings, [Some("x".into()), None, Some("\"é\"".into()), None], "{text}");
            assert_eq!(serde_json::to_string(&params).unwrap(), text);
        }
        assert!(Params::new(&[1]).is_err() && Params::new(&"x").is_err(), "no object");
    }
}
