//! `_meta`: the per-request protocol fields and whatever else the sender attached
//! (specification: basic, "`_meta`").

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Object;
use crate::capabilities::{ClientCapabilities, Implementation};
use crate::json::CowStr;
use crate::jsonrpc::{ErrorObject, Request, RequestId};
use crate::notification::LogLevel;
pub use crate::trace::TraceContext;

/// The reserved `_meta` keys that this crate reads.
pub mod key {
    /// The protocol version of a request. Required.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// Name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The client's capabilities for this request. Required.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Name and version of the server, in results.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Asks for log messages from this level on. Deprecated in this revision.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Asks for progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// The `_meta` of a request.
///
/// The two required fields are options here, so that their absence can be reported as the
/// specification asks rather than as a parse error.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestMeta {
    /// [`key::PROTOCOL_VERSION`]
    pub protocol_version: Option<String>,
    /// [`key::CLIENT_CAPABILITIES`]
    pub client_capabilities: Option<ClientCapabilities>,
    /// [`key::CLIENT_INFO`]: self-reported; for display and logs only.
    pub client_info: Option<Implementation>,
    /// [`key::PROGRESS_TOKEN`]
    pub progress_token: Option<RequestId>,
    /// [`key::LOG_LEVEL`]
    pub log_level: Option<LogLevel>,
    /// Every other key, untouched.
    pub other: Object,
}

impl<'de> Deserialize<'de> for RequestMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetaVisitor)
    }
}

struct MetaVisitor;

impl<'de> Visitor<'de> for MetaVisitor {
    type Value = RequestMeta;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RequestMeta, A::Error> {
        let mut meta = RequestMeta::default();
        while let Some(CowStr(name)) = members.next_key()? {
            match &*name {
                key::PROTOCOL_VERSION => meta.protocol_version = Some(members.next_value()?),
                key::CLIENT_CAPABILITIES => meta.client_capabilities = Some(members.next_value()?),
                key::CLIENT_INFO => meta.client_info = Some(members.next_value()?),
                key::PROGRESS_TOKEN => meta.progress_token = Some(members.next_value()?),
                key::LOG_LEVEL => meta.log_level = Some(members.next_value()?),
                _ => drop(meta.other.insert(name.into_owned(), members.next_value()?)),
            }
        }
        Ok(meta)
    }
}

impl Serialize for RequestMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(version) = &self.protocol_version {
            map.serialize_entry(key::PROTOCOL_VERSION, version)?;
        }
        if let Some(capabilities) = &self.client_capabilities {
            map.serialize_entry(key::CLIENT_CAPABILITIES, capabilities)?;
        }
        if let Some(info) = &self.client_info {
            map.serialize_entry(key::CLIENT_INFO, info)?;
        }
        if let Some(token) = &self.progress_token {
            map.serialize_entry(key::PROGRESS_TOKEN, token)?;
        }
        if let Some(level) = &self.log_level {
            map.serialize_entry(key::LOG_LEVEL, level)?;
        }
        for (name, value) in &self.other {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// What a transport needs of the parameters of any request to compare its headers with.
#[derive(Debug, Default, Deserialize)]
pub struct Mirrored<'a> {
    /// The request's `_meta`.
    #[serde(rename = "_meta", default, deserialize_with = "shared")]
    pub meta: Option<Arc<RequestMeta>>,
    /// `params.name`, if it is a string.
    #[serde(borrow, default, deserialize_with = "string_or_none")]
    pub name: Option<Cow<'a, str>>,
    /// `params.uri`, if it is a string.
    #[serde(borrow, default, deserialize_with = "string_or_none")]
    pub uri: Option<Cow<'a, str>>,
}

impl<'r> Mirrored<'r> {
    /// That of a request.
    ///
    /// # Errors
    ///
    /// [`code::INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS) that names the field.
    pub fn of(request: &'r Request) -> Result<Self, ErrorObject> {
        let Some(params) = &request.params else { return Ok(Self::default()) };
        let meta = match params.member("_meta") {
            None => None,
            Some(meta) => match serde_json::from_str::<Option<RequestMeta>>(meta) {
                Ok(meta) => meta.map(Arc::new),
                // To say where the mistake is.
                Err(_) => return crate::params(request),
            },
        };
        Ok(Self { meta, name: params.string("name"), uri: params.string("uri") })
    }
}

fn shared<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<RequestMeta>>, D::Error> {
    let meta = Option::<RequestMeta>::deserialize(deserializer)?;
    Ok(meta.map(Arc::new))
}

/// A `name` of another type is the method's mistake to report, not the header check's.
fn string_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'de, str>>, D::Error> {
    let value = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(value.get()).ok().map(|CowStr(text)| text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{Params, Version};

    #[test]
    fn keeps_what_it_does_not_know_and_names_what_is_wrong() {
        let text =
            r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"00-x"}"#;
        let meta: RequestMeta = serde_json::from_str(text).unwrap();
        assert_eq!(meta.protocol_version.as_deref(), Some("2026-07-28"));
        assert_eq!(serde_json::to_string(&meta).unwrap(), text);

        let params =
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":true}}}"#;
        let request = Request {
            jsonrpc: Version,
            id: RequestId::Number(1),
            method: "x".to_owned(),
            params: Some(Params::of(params.to_owned()).unwrap()),
        };
        let error = Mirrored::of(&request).unwrap_err().message;
        assert!(error.contains("/clientCapabilities.elicitation: invalid type"), "{error}");
    }
}
