//! Notifications (specification: basic patterns, "Progress"; server utilities, "Logging").

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jsonrpc::RequestId;

/// The names of notifications.
pub mod name {
    /// How far a request has come.
    pub const PROGRESS: &str = "notifications/progress";
    /// A log message.
    pub const MESSAGE: &str = "notifications/message";
    /// A request is not wanted any more.
    pub const CANCELLED: &str = "notifications/cancelled";
}

/// A request is not wanted any more (specification: basic patterns, "Cancellation").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// The request.
    pub request_id: RequestId,
    /// Why, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The token of the request.
    pub progress_token: RequestId,
    /// How far; greater each time.
    pub progress: f64,
    /// How far it will be at the end, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A log message. Deprecated in this revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogMessage {
    /// How severe.
    pub level: LogLevel,
    /// Who logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// What is logged.
    pub data: Value,
}

/// How severe a log message is, from least to most. Deprecated in this revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// For debugging.
    Debug,
    /// Information.
    Info,
    /// Normal, but significant.
    Notice,
    /// A warning.
    Warning,
    /// An error.
    Error,
    /// A component fails.
    Critical,
    /// Something must be done at once.
    Alert,
    /// Nothing works.
    Emergency,
}
