//! The `initialize` handshake (2025-11-25, basic: lifecycle).

use mrtr_schema::capabilities::{ClientCapabilities, Implementation, ServerCapabilities};
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::meta::key;
use mrtr_schema::{Object, apps};
use serde::{Deserialize, Serialize};

use crate::LegacyVersion;

/// Parameters of `initialize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InitializeParams {
    /// The latest version that the client supports.
    pub protocol_version: String,
    /// The capabilities of the client, for the whole session.
    #[serde(default)]
    pub capabilities: ClientCapabilities,
    /// The name and version of the client.
    pub client_info: Implementation,
}

impl InitializeParams {
    /// Creates the parameters.
    pub fn new(
        version: LegacyVersion,
        capabilities: ClientCapabilities,
        client_info: Implementation,
    ) -> Self {
        Self { protocol_version: version.as_str().to_owned(), capabilities, client_info }
    }
}

/// Result of `initialize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InitializeResult {
    /// The version of the session.
    pub protocol_version: String,
    /// The capabilities of the server, for the whole session.
    pub capabilities: ServerCapabilities,
    /// The name and version of the server.
    pub server_info: Implementation,
    /// Guidance for models on how to use the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

impl InitializeResult {
    /// Creates the result from what the server answers to `server/discover`.
    pub fn from_discovery(version: LegacyVersion, discovered: DiscoverResult) -> Self {
        let DiscoverResult { mut capabilities, instructions, meta, .. } = discovered;
        // MCP Apps is for all versions. Others are for the current one.
        if let Some(extensions) = &mut capabilities.extensions {
            extensions.retain(|identifier, _| identifier == apps::EXTENSION);
        }
        capabilities.extensions = capabilities.extensions.filter(|all| !all.is_empty());
        let info = meta.and_then(|mut meta| meta.remove(key::SERVER_INFO));
        let info = info.and_then(|info| serde_json::from_value(info).ok());
        Self {
            protocol_version: version.as_str().to_owned(),
            capabilities,
            server_info: info.unwrap_or_else(|| Implementation::new("", "")),
            instructions,
        }
    }

    /// Creates what a server would answer to `server/discover`.
    pub fn into_discovery(self) -> DiscoverResult {
        let Self { protocol_version, capabilities, server_info, instructions } = self;
        let mut discovered = DiscoverResult::new(vec![protocol_version], capabilities);
        discovered.instructions = instructions;
        let info = serde_json::to_value(server_info).unwrap_or_default();
        discovered.meta = Some(Object::from_iter([(key::SERVER_INFO.to_owned(), info)]));
        discovered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn initialize_result_is_made_of_the_discovery() {
        let discovered: DiscoverResult = serde_json::from_value(json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": { "listChanged": true }, "extensions": { "com.example/x": {} } },
            "instructions": "Ask first.",
            "_meta": { key::SERVER_INFO: { "name": "booking", "version": "1" } },
        }))
        .unwrap();
        let result = InitializeResult::from_discovery(LegacyVersion::V2025_06_18, discovered);
        assert_eq!(
            serde_json::to_value(result).unwrap(),
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "booking", "version": "1" },
                "instructions": "Ask first.",
            })
        );
    }
}
