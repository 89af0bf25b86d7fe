//! The parts of a request that a transport reads before it dispatches the request.
//!
//! For the sibling crates; not covered by semantic versioning.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::CowStr;
use crate::jsonrpc::{ErrorObject, Request};
use crate::meta::RequestMeta;
use crate::{PROTOCOL_VERSION, method};

/// The parameters that HTTP headers mirror, for all methods.
#[derive(Debug, Default, Deserialize)]
pub struct RequestHead<'a> {
    /// The request's `_meta`.
    #[serde(rename = "_meta", default, deserialize_with = "shared")]
    pub meta: Option<Arc<RequestMeta>>,
    /// `params.name`, if it is a string.
    #[serde(borrow, default, deserialize_with = "string_or_none")]
    pub name: Option<Cow<'a, str>>,
    /// `params.uri`, if it is a string.
    #[serde(borrow, default, deserialize_with = "string_or_none")]
    pub uri: Option<Cow<'a, str>>,
    /// `params.taskId`, if it is a string.
    #[serde(rename = "taskId", borrow, default, deserialize_with = "string_or_none")]
    pub task_id: Option<Cow<'a, str>>,
}

impl<'r> RequestHead<'r> {
    /// Reads the head of a request.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field of
    /// `_meta`.
    pub fn from_request(request: &'r Request) -> Result<Self, ErrorObject> {
        let meta = match request.params.as_ref().and_then(|params| params.member("_meta")) {
            None => None,
            Some(meta) => match serde_json::from_str::<Option<RequestMeta>>(meta) {
                Ok(meta) => meta.map(Arc::new),
                Err(_) => match other_version(meta) {
                    Some(other) => Some(Arc::new(other)),
                    // Decoding all parameters gives an error with the path of the offending field.
                    None => return request.decode_params(),
                },
            },
        };
        Ok(Self::with_meta(meta, request))
    }

    /// Reads the head of a request whose `_meta` was read before. Of the other members, it has the
    /// one that requests of this method mirror.
    pub fn with_meta(meta: Option<Arc<RequestMeta>>, request: &'r Request) -> Self {
        let member = |name| request.params.as_ref()?.string(name);
        let mut head = Self { meta, ..Self::default() };
        match &*request.method {
            method::RESOURCES_READ => head.uri = member("uri"),
            other if other.starts_with("tasks/") => head.task_id = member("taskId"),
            _ => head.name = member("name"),
        }
        head
    }
}

/// Returns the `_meta` of a request in another revision, reduced to its version: the types of the
/// other members may differ. The handler rejects the request.
fn other_version(meta: &str) -> Option<RequestMeta> {
    #[derive(Deserialize)]
    struct Version {
        #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
        version: String,
    }
    let Version { version } = serde_json::from_str(meta).ok()?;
    let is_other = version != PROTOCOL_VERSION;
    is_other.then(|| RequestMeta { protocol_version: Some(version), ..RequestMeta::default() })
}

fn shared<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<RequestMeta>>, D::Error> {
    let meta = Option::<RequestMeta>::deserialize(deserializer)?;
    Ok(meta.map(Arc::new))
}

/// A `name` of another type is an error of the method's own parameters, not of the header check.
fn string_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'de, str>>, D::Error> {
    let value = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(value.get()).ok().map(|CowStr(text)| text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{Params, RequestId};

    #[test]
    fn request_head_names_the_offending_field_of_meta() {
        let params =
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":true}}}"#;
        let params = Params::from_text(params.to_owned()).unwrap();
        let request = Request::new(RequestId::Number(1), "x", Some(params));
        let error = RequestHead::from_request(&request).unwrap_err().message;
        assert!(error.contains("/clientCapabilities.elicitation: invalid type"), "{error}");
    }

    #[test]
    fn meta_of_another_revision_has_its_version() {
        let head = |version: &str| {
            let params = format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/logLevel":5}}}}"#
            );
            let params = Params::from_text(params).unwrap();
            let request = Request::new(RequestId::Number(1), "x", Some(params));
            RequestHead::from_request(&request).map(|head| head.meta.unwrap())
        };
        assert_eq!(head("2027-06-30").unwrap().protocol_version.as_deref(), Some("2027-06-30"));
        assert!(head(PROTOCOL_VERSION).is_err());
    }
}
