//! `server/discover` (specification: server, "Discovery").

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::capabilities::ServerCapabilities;
use crate::result::{CacheScope, ResultType, ttl_ms};
use crate::setters::setters;

/// Result of `server/discover`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DiscoverResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The protocol versions that the server supports.
    pub supported_versions: Vec<String>,
    /// The server's capabilities.
    pub capabilities: ServerCapabilities,
    /// Guidance for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The time in milliseconds for which the result is fresh.
    #[serde(default, deserialize_with = "ttl_ms")]
    pub ttl_ms: u64,
    /// The clients that may reuse the result.
    #[serde(default)]
    pub cache_scope: CacheScope,
    /// Metadata, with `serverInfo`.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(DiscoverResult { with_instructions(instructions: String), with_meta(meta: Object) });

impl DiscoverResult {
    /// Creates a result that may not be cached.
    pub fn new(supported_versions: Vec<String>, capabilities: ServerCapabilities) -> Self {
        Self { supported_versions, capabilities, ..Self::default() }
    }
}
