//! `server/discover` (specification: server, "Discovery").

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::capabilities::ServerCapabilities;
use crate::result::{CacheScope, ResultType, ttl_ms};

/// What a server is and can do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The protocol versions that the server speaks.
    pub supported_versions: Vec<String>,
    /// What it offers.
    pub capabilities: ServerCapabilities,
    /// Guidance for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// For how many milliseconds this stays fresh.
    #[serde(default, deserialize_with = "ttl_ms")]
    pub ttl_ms: u64,
    /// Who may reuse it.
    #[serde(default)]
    pub cache_scope: CacheScope,
    /// Metadata, `serverInfo` among it.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}
