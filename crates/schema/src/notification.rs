//! Notifications (specification: basic patterns, "Progress" and "Cancellation"; server utilities,
//! "Logging").

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jsonrpc::RequestId;
use crate::setters::setters;

/// The methods of notifications.
pub mod name {
    /// Progress of a request; see [`Progress`](super::Progress).
    pub const PROGRESS: &str = "notifications/progress";
    /// A log message; see [`LogMessage`](super::LogMessage).
    pub const MESSAGE: &str = "notifications/message";
    /// Cancellation of a request; see [`Cancelled`](super::Cancelled).
    pub const CANCELLED: &str = "notifications/cancelled";
}

/// Cancels a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Cancelled {
    /// The id of the request.
    pub request_id: RequestId,
    /// The reason, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

setters!(Cancelled { with_reason(reason: String) });

impl Cancelled {
    /// Cancels a request without a reason.
    pub fn new(request_id: RequestId) -> Self {
        Self { request_id, reason: None }
    }
}

/// Reports the progress of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Progress {
    /// The progress token of the request.
    pub progress_token: RequestId,
    /// The progress so far, in a unit of the server's choice; greater each time.
    pub progress: f64,
    /// The progress at the end, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// A description of the current work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

setters!(Progress { with_total(total: f64), with_message(message: String) });

impl Progress {
    /// Creates a progress notification.
    pub fn new(progress_token: RequestId, progress: f64) -> Self {
        Self { progress_token, progress, total: None, message: None }
    }
}

/// A log message. Deprecated in this revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogMessage {
    /// The severity.
    pub level: LogLevel,
    /// The name of the logger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// The logged value: text or any other JSON.
    pub data: Value,
}

setters!(LogMessage { with_logger(logger: String) });

impl LogMessage {
    /// Creates a log message.
    pub fn new(level: LogLevel, data: impl Into<Value>) -> Self {
        Self { level, logger: None, data: data.into() }
    }
}

/// The severity of a log message, from least to most: the levels of syslog (RFC 5424). Deprecated
/// in this revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Details for debugging.
    Debug,
    /// Information.
    Info,
    /// A normal but significant condition.
    Notice,
    /// A warning.
    Warning,
    /// An error.
    Error,
    /// A critical condition.
    Critical,
    /// A condition that requires immediate action.
    Alert,
    /// The system is unusable.
    Emergency,
}
