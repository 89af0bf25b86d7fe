//! Responses.

use std::fmt::{self, Write as _};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{RawJson, push_quoted};
use crate::jsonrpc::{ErrorObject, RequestId};

/// A response: a result as JSON text, or an error.
#[derive(Debug, Clone)]
pub struct Response<R = Box<RawValue>> {
    /// The id of the request. `None` only in an error about a message whose id cannot be read.
    pub id: Option<RequestId>,
    /// The result or the error.
    pub outcome: Result<R, ErrorObject>,
}

impl<R> Response<R> {
    /// Creates an error response.
    pub fn error(id: Option<RequestId>, error: ErrorObject) -> Self {
        Self { id, outcome: Err(error) }
    }
}

impl Response<RawJson> {
    /// Writes the message. Faster than `serde_json`, which would parse the raw result again.
    pub fn to_json(&self) -> RawJson {
        let length = self.outcome.as_ref().map_or(0, |result| result.as_str().len());
        RawJson::written(ENVELOPE + length, |text| self.append_to(text))
    }

    /// Appends the message to `text`.
    ///
    /// For the workspace's own crates. Not covered by semantic versioning.
    #[doc(hidden)]
    pub fn append_to(&self, text: &mut String) {
        text.push_str(r#"{"jsonrpc":"2.0""#);
        match &self.id {
            Some(RequestId::Number(id)) => {
                // Writing to a `String` cannot fail.
                let _: fmt::Result = write!(text, r#","id":{id}"#);
            }
            Some(RequestId::Unsigned(id)) => {
                let _: fmt::Result = write!(text, r#","id":{id}"#);
            }
            Some(RequestId::String(id)) => {
                text.push_str(r#","id":"#);
                push_quoted(text, id);
            }
            None => {}
        }
        match &self.outcome {
            Ok(result) => {
                text.push_str(r#","result":"#);
                text.push_str(result.as_str());
            }
            Err(error) => {
                // An error consists of JSON values, so serializing it cannot fail.
                if let Ok(error) = RawJson::new(error) {
                    text.push_str(r#","error":"#);
                    text.push_str(error.as_str());
                }
            }
        }
        text.push('}');
    }
}

/// Capacity in bytes for the members around the result.
const ENVELOPE: usize = 128;

impl<R: Serialize> Serialize for Response<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("jsonrpc", "2.0")?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        match &self.outcome {
            Ok(result) => map.serialize_entry("result", result)?,
            Err(error) => map.serialize_entry("error", error)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_to_json_matches_serde() {
        let ids = [
            RequestId::Number(i64::MIN),
            RequestId::Unsigned(u64::MAX),
            RequestId::String("a\"\n".to_owned()),
        ];
        let ids = ids.map(Some).into_iter().chain([None]);
        let outcomes = [Ok(RawJson::new(&[1]).unwrap()), Err(ErrorObject::internal("what\\?"))];
        for id in ids {
            for outcome in outcomes.clone() {
                let response = Response { id: id.clone(), outcome };
                let expected = serde_json::to_string(&response).unwrap();
                assert_eq!(response.to_json().as_str(), expected);
                let mut text = "data: ".to_owned();
                response.append_to(&mut text);
                assert_eq!(text, format!("data: {expected}"));
            }
        }
    }
}
