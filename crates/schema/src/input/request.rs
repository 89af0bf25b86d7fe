//! Input requests.

use serde::de::{DeserializeOwned, Error};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::capabilities::ClientCapabilities;
use crate::elicitation::ElicitParams;
use crate::json::{self, read_pairs, write_pairs};
use crate::sampling::CreateMessageParams;
use crate::{InvalidValue, Object, method, uri};

/// A request for input that a server returns to the client. The variant is picked by `method`.
///
/// Deserializes from `serde_json` only, and not through a buffering layer such as an untagged enum:
/// its members are taken as raw JSON.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum InputRequest {
    /// `elicitation/create`: asks the user.
    Elicit(ElicitParams),
    /// `sampling/createMessage`: asks a model. Deprecated in this revision.
    Sample(Box<CreateMessageParams>),
    /// `roots/list`: asks for the client's roots. Deprecated in this revision.
    Roots,
}

impl InputRequest {
    /// Returns the method.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Elicit(_) => method::ELICITATION_CREATE,
            Self::Sample(_) => method::SAMPLING_CREATE_MESSAGE,
            Self::Roots => method::ROOTS_LIST,
        }
    }

    /// Returns the first capability that the request requires and `declared` lacks, such as
    /// `elicitation.url`. `None` means that the server may send the request (specification: basic,
    /// "Multi Round-Trip Requests").
    pub fn undeclared_capability(&self, declared: &ClientCapabilities) -> Option<&'static str> {
        let needed = match self {
            Self::Elicit(ElicitParams::Form(_)) => vec![("elicitation.form", declared.has_form())],
            Self::Elicit(ElicitParams::Url(_)) => vec![("elicitation.url", declared.has_url())],
            Self::Sample(params) => vec![
                ("sampling", declared.has_sampling()),
                ("sampling.tools", !params.uses_tools() || declared.has_sampling_tools()),
            ],
            Self::Roots => vec![("roots", declared.has_roots())],
        };
        needed.into_iter().find_map(|(name, is_declared)| (!is_declared).then_some(name))
    }

    /// Removes what a client may ignore without the capability for it: `includeContext` of a
    /// sampling request (specification: client, "Sampling", "Context Inclusion").
    pub fn remove_undeclared(&mut self, declared: &ClientCapabilities) {
        if let Self::Sample(params) = self
            && !declared.has_sampling_context()
        {
            params.include_context = None;
        }
    }

    /// Checks the rules that the types do not express.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if a URL to visit is not an `http` or `https` URL with a host, or by the
    /// rules of [`CreateMessageParams::validate`].
    pub fn validate(&self) -> Result<(), InvalidValue> {
        match self {
            Self::Elicit(ElicitParams::Url(params)) => {
                uri::validate_web_url(&params.url).map_err(|e| e.at("url"))
            }
            Self::Sample(params) => params.validate(),
            Self::Elicit(ElicitParams::Form(_)) | Self::Roots => Ok(()),
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
        // Members are read as raw JSON. Reading them as values, too, would compile every type of
        // sampling for a second deserializer.
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
    json::from_str(text.get()).map_err(|e| E::custom(format_args!("`{key}`: {e}")))
}

/// Input requests under the server's keys, in the server's order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InputRequests(pub Vec<(String, InputRequest)>);

impl Serialize for InputRequests {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_pairs(serializer, &self.0)
    }
}

impl<'de> Deserialize<'de> for InputRequests {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_pairs(deserializer, "a map of input requests").map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_picks_the_variant_of_an_input_request() {
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
}
