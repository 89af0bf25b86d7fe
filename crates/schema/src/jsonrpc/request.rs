//! Requests and notifications.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{self, CowStr, RawJson, push_quoted};
use crate::jsonrpc::{ErrorObject, Params, RequestId};

/// The literal `"2.0"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version;

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("2.0")
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match CowStr::deserialize(deserializer)? {
            CowStr(version) if version == "2.0" => Ok(Self),
            CowStr(other) => {
                Err(D::Error::custom(format_args!("`jsonrpc` is {other:?}, expected \"2.0\"")))
            }
        }
    }
}

/// A request.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    jsonrpc: Version,
    /// The id, unique among the sender's requests in flight.
    pub id: RequestId,
    /// The method.
    pub method: String,
    /// The parameters, not decoded yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Params>,
}

impl Request {
    /// Creates a request.
    pub fn new(id: RequestId, method: impl Into<String>, params: Option<Params>) -> Self {
        Self { jsonrpc: Version, id, method: method.into(), params }
    }

    /// Decodes the parameters as `T`. Absent parameters are decoded as `{}`.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn decode_params<'r, T: Deserialize<'r>>(&'r self) -> Result<T, ErrorObject> {
        decode(self.params.as_ref().map(Params::as_str))
    }
}

/// A notification: a message without a response.
#[derive(Debug, Clone, Serialize)]
pub struct Notification {
    jsonrpc: Version,
    /// The method.
    pub method: String,
    /// The parameters, not decoded yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Box<RawValue>>,
}

impl Notification {
    /// Creates a notification with parameters.
    ///
    /// # Errors
    ///
    /// Fails if JSON cannot represent `params`.
    pub fn new(
        method: impl Into<String>,
        params: &impl Serialize,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self::from_raw(method, Some(to_raw_value(params)?)))
    }

    /// Creates a notification whose parameters are JSON text already.
    pub fn from_raw(method: impl Into<String>, params: Option<Box<RawValue>>) -> Self {
        Self { jsonrpc: Version, method: method.into(), params }
    }

    /// Decodes the parameters as `T`. Absent parameters are decoded as `{}`.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn decode_params<T: DeserializeOwned>(&self) -> Result<T, ErrorObject> {
        decode(self.params.as_deref().map(RawValue::get))
    }

    /// Writes the message. Faster than `serde_json`, which would parse the raw parameters again.
    pub fn to_json(&self) -> RawJson {
        let params = self.params.as_deref().map_or(0, |params| params.get().len());
        let capacity = ENVELOPE + self.method.len() + params;
        RawJson::written(capacity, |text| self.append_to(text))
    }

    /// Appends the message to `text`.
    ///
    /// For the workspace's own crates. Not covered by semantic versioning.
    #[doc(hidden)]
    pub fn append_to(&self, text: &mut String) {
        text.push_str(r#"{"jsonrpc":"2.0","method":"#);
        push_quoted(text, &self.method);
        if let Some(params) = &self.params {
            text.push_str(r#","params":"#);
            text.push_str(params.get());
        }
        text.push('}');
    }
}

/// Capacity in bytes for the members around `params`.
const ENVELOPE: usize = 128;

fn decode<'r, T: Deserialize<'r>>(params: Option<&'r str>) -> Result<T, ErrorObject> {
    json::from_str(params.unwrap_or("{}"))
        .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_to_json_matches_serde() {
        let with = Notification::new("notifications/\"x\"", &[()]).unwrap();
        let without = Notification { params: None, ..with.clone() };
        for notification in [with, without] {
            let expected = serde_json::to_string(&notification).unwrap();
            assert_eq!(notification.to_json().as_str(), expected);
            let mut text = "{".to_owned();
            notification.append_to(&mut text);
            assert_eq!(text, format!("{{{expected}"));
        }
    }
}
