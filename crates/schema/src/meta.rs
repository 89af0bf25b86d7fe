//! `_meta`: the protocol fields of each request, and further metadata of the sender (specification:
//! basic, "`_meta`").

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Object;
use crate::capabilities::{ClientCapabilities, Implementation};
use crate::json::CowStr;
use crate::jsonrpc::RequestId;
use crate::notification::LogLevel;
use crate::setters::setters;
pub use crate::trace_context::TraceContext;

/// The reserved keys of `_meta` that this crate reads.
pub mod key {
    /// The protocol version of a request. Required.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// The client's capabilities for this request. Required.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The name and version of the server, in results.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The minimum level of log messages for the request. Deprecated in this revision.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// The token of progress notifications. A client that sends it requests such notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";
}

/// The `_meta` of a request.
///
/// The two required fields are optional in the type, so that a server can report their absence with
/// the error that the specification demands.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RequestMeta {
    /// [`key::PROTOCOL_VERSION`]
    pub protocol_version: Option<String>,
    /// [`key::CLIENT_CAPABILITIES`]
    pub client_capabilities: Option<ClientCapabilities>,
    /// [`key::CLIENT_INFO`]: self-reported, for display and logs only.
    pub client_info: Option<Implementation>,
    /// [`key::PROGRESS_TOKEN`]
    pub progress_token: Option<RequestId>,
    /// [`key::LOG_LEVEL`]
    pub log_level: Option<LogLevel>,
    /// All other keys, unchanged.
    pub other: Object,
}

setters!(RequestMeta {
    with_client_info(client_info: Implementation),
    with_progress_token(progress_token: RequestId),
    with_log_level(log_level: LogLevel),
});

impl RequestMeta {
    /// Creates metadata with the two required fields.
    pub fn new(
        protocol_version: impl Into<String>,
        client_capabilities: ClientCapabilities,
    ) -> Self {
        Self {
            protocol_version: Some(protocol_version.into()),
            client_capabilities: Some(client_capabilities),
            ..Self::default()
        }
    }
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
                _ => {
                    meta.other.insert(name.into_owned(), members.next_value()?);
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_meta_keeps_unknown_keys() {
        let text =
            r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","traceparent":"00-x"}"#;
        let meta: RequestMeta = serde_json::from_str(text).unwrap();
        assert_eq!(meta.protocol_version.as_deref(), Some("2026-07-28"));
        assert_eq!(serde_json::to_string(&meta).unwrap(), text);
    }
}
