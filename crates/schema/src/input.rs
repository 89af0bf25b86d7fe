//! Multi round-trip requests: what a server asks back, and what a client answers (specification:
//! basic patterns, "Multi Round-Trip Requests").

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::elicitation::ElicitParams;
use crate::json::read;
use crate::result::ResultType;
use crate::sampling::CreateMessageParams;
use crate::{Object, method, uri};

/// A request that a server returns to the client. The variant is picked by `method`.
///
/// It is read by `serde_json`, and by nothing in between, such as an enum of the reader's own that is untagged: its parts are
/// taken as JSON text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum InputRequest {
    /// `elicitation/create`: ask the person.
    Elicit(ElicitParams),
    /// `sampling/createMessage`: ask a model. Deprecated in this revision.
    Sample(Box<CreateMessageParams>),
    /// `roots/list`. Deprecated in this revision.
    Roots,
}

impl InputRequest {
    /// The method's name.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Elicit(_) => method::ELICITATION_CREATE,
            Self::Sample(_) => method::SAMPLING_CREATE_MESSAGE,
            Self::Roots => method::ROOTS_LIST,
        }
    }

    /// Checks what the types do not: see [`uri::check_web`] and [`CreateMessageParams::check`].
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Elicit(ElicitParams::Url(params)) => uri::check_web(&params.url),
            Self::Sample(params) => params.check(),
            _ => Ok(()),
        }
    }
}

impl Serialize for InputRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("method", self.method())?;
        match self {
            Self::Elicit(params) => map.serialize_entry("params", params)?,
            Self::Sample(params) => map.serialize_entry("params", params)?,
            Self::Roots => map.serialize_entry("params", &Object::new())?,
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for InputRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Members are read as text: to be read from values as well, all that sampling has would be compiled twice.
        let members = read_pairs(deserializer, "an input request")?;
        let method: String = member(&members, "method")?;
        match method.as_str() {
            method::ELICITATION_CREATE => member(&members, "params").map(Self::Elicit),
            method::SAMPLING_CREATE_MESSAGE => member(&members, "params").map(Self::Sample),
            method::ROOTS_LIST => Ok(Self::Roots),
            other => Err(D::Error::custom(format_args!("unknown input request method {other:?}"))),
        }
    }
}

fn member<T: DeserializeOwned, E: Error>(
    members: &[(String, Box<RawValue>)],
    key: &'static str,
) -> Result<T, E> {
    let (_, text) =
        members.iter().find(|(name, _)| name == key).ok_or_else(|| E::missing_field(key))?;
    read(text.get()).map_err(|e| E::custom(format_args!("`{key}`: {e}")))
}

/// Input requests under the server's keys, in the server's order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InputRequests(pub Vec<(String, InputRequest)>);

/// Answers under the server's keys. Which type an answer has depends on the request with its key, so
/// it stays raw until it is matched to one.
#[derive(Debug, Clone, Default)]
pub struct InputResponses(pub Vec<(String, Box<RawValue>)>);

impl InputResponses {
    /// The answer under `key`.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// Adds an answer.
    ///
    /// # Errors
    ///
    /// If `answer` cannot be written as JSON.
    pub fn push(
        &mut self,
        key: impl Into<String>,
        answer: &impl Serialize,
    ) -> Result<(), serde_json::Error> {
        self.0.push((key.into(), crate::jsonrpc::raw(answer)?));
        Ok(())
    }

    /// Reads a member that is there: unlike `Option`, `null` is refused.
    pub fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Self::deserialize(deserializer).map(Some)
    }
}

/// Serializes pairs as an object.
fn pairs<S: Serializer, V: Serialize>(
    serializer: S,
    pairs: &[(String, V)],
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

impl Serialize for InputRequests {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        pairs(serializer, &self.0)
    }
}

impl Serialize for InputResponses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        pairs(serializer, &self.0)
    }
}

/// Reads an object as pairs.
fn read_pairs<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Vec<(String, V)>, D::Error> {
    deserializer.deserialize_map(PairsVisitor(expected, PhantomData))
}

struct PairsVisitor<V>(&'static str, PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<V> {
    type Value = Vec<(String, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // Duplicate keys cannot get here from `Message::parse`, which refuses them.
        let mut all = Vec::new();
        while let Some(pair) = map.next_entry()? {
            all.push(pair);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for InputRequests {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_pairs(deserializer, "a map of input requests").map(Self)
    }
}

impl<'de> Deserialize<'de> for InputResponses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all: Vec<(String, Box<RawValue>)> =
            read_pairs(deserializer, "a map of input responses")?;
        match all.iter().find(|(_, answer)| !answer.get().starts_with('{')) {
            Some((key, _)) => {
                Err(D::Error::custom(format_args!("the response to {key:?} must be an object")))
            }
            None => Ok(Self(all)),
        }
    }
}

/// A result that asks for input instead of finishing. At least one of the two fields is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequiredResult {
    /// Always [`ResultType::InputRequired`].
    pub result_type: ResultType,
    /// What the client must answer before it tries again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<InputRequests>,
    /// What the client must send back, byte for byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl InputRequiredResult {
    /// A result with the given questions and state. An empty list of questions is left out.
    pub fn new(requests: Vec<(String, InputRequest)>, state: Option<String>) -> Self {
        Self {
            result_type: ResultType::InputRequired,
            input_requests: (!requests.is_empty()).then_some(InputRequests(requests)),
            request_state: state,
            meta: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_method() {
        let text = r#"{"b":{"method":"roots/list"},"a":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"u:"}}}"#;
        let InputRequests(all) = serde_json::from_str(text).unwrap();
        assert_eq!(
            all.iter().map(|(k, r)| (k.as_str(), r.method())).collect::<Vec<_>>(),
            [("b", "roots/list"), ("a", "elicitation/create")]
        );
        let error =
            serde_json::from_str::<InputRequests>(r#"{"x":{"method":"tools/call"}}"#).unwrap_err();
        assert!(
            error.to_string().contains("unknown input request method \"tools/call\""),
            "{error}"
        );
    }

    #[test]
    fn responses_must_be_objects() {
        let error = serde_json::from_str::<InputResponses>(r#"{"a":{},"b":5}"#).unwrap_err();
        assert!(error.to_string().contains("the response to \"b\" must be an object"), "{error}");
        assert!(serde_json::from_str::<InputResponses>("null").is_err());
    }
}
