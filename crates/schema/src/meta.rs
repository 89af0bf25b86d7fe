//! `_meta`: the per-request protocol fields and whatever else the sender attached
//! (specification: basic, "`_meta`").

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Object;
use crate::capabilities::{ClientCapabilities, Implementation};
use crate::jsonrpc::{RequestId, take};
use crate::notification::LogLevel;

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
        let mut other = Object::deserialize(deserializer)?;
        let mut read = || -> Result<Self, String> {
            Ok(Self {
                protocol_version: take(&mut other, key::PROTOCOL_VERSION)?,
                client_capabilities: take(&mut other, key::CLIENT_CAPABILITIES)?,
                client_info: take(&mut other, key::CLIENT_INFO)?,
                progress_token: take(&mut other, key::PROGRESS_TOKEN)?,
                log_level: take(&mut other, key::LOG_LEVEL)?,
                other: Object::new(),
            })
        };
        let meta = read().map_err(D::Error::custom)?;
        Ok(Self { other, ..meta })
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
pub struct Mirrored {
    /// The request's `_meta`.
    #[serde(rename = "_meta")]
    pub meta: Option<RequestMeta>,
    /// `params.name`, if it is a string.
    #[serde(default, deserialize_with = "string_or_none")]
    pub name: Option<String>,
    /// `params.uri`, if it is a string.
    #[serde(default, deserialize_with = "string_or_none")]
    pub uri: Option<String>,
}

/// A `name` of another type is the method's mistake to report, not the header check's.
fn string_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Some(text),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_it_does_not_know_and_names_what_is_wrong() {
        let text =
            r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"00-x"}"#;
        let meta: RequestMeta = serde_json::from_str(text).unwrap();
        assert_eq!(meta.protocol_version.as_deref(), Some("2026-07-28"));
        assert_eq!(serde_json::to_string(&meta).unwrap(), text);

        let error = serde_json::from_str::<RequestMeta>(
            r#"{"io.modelcontextprotocol/clientCapabilities":{"elicitation":true}}"#,
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("clientCapabilities`: elicitation"), "{error}");
    }
}
