//! Errors and their codes (specification: basic, "Error Codes").

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::capabilities::ClientCapabilities;
use crate::peer_text;

/// Error codes of JSON-RPC and of MCP revision 2026-07-28.
pub mod code {
    /// The body is not JSON, or not the JSON that this crate accepts: it has duplicate keys, lone
    /// surrogates or too deep nesting.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a JSON-RPC message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The server does not implement the method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are missing or malformed, or name something that the server does not have.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The server failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// HTTP headers are missing, malformed or different from the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client did not declare.
    pub const MISSING_REQUIRED_CLIENT_CAPABILITY: i64 = -32021;
    /// The server does not support the protocol version of the request.
    pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
}

/// A JSON-RPC error.
///
/// When it is displayed, the message is one line without control characters: a peer may have sent
/// it.
///
/// # Example
///
/// ```
/// use mrtr_schema::jsonrpc::{ErrorObject, code};
/// use serde_json::json;
///
/// let error = ErrorObject::invalid_params("Unknown tool: \"bok\"")
///     .with_data(json!({ "tool": "bok" }));
/// assert_eq!(error.code, code::INVALID_PARAMS);
/// assert_eq!(error.to_string(), "Unknown tool: \"bok\" (-32602)");
/// assert_eq!(
///     serde_json::to_value(&error)?,
///     json!({ "code": -32602, "message": "Unknown tool: \"bok\"", "data": { "tool": "bok" } }),
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{} ({code})", peer_text::one_line(message))]
pub struct ErrorObject {
    /// One of [`code`], or a code of the application outside `-32768..=-32000`.
    pub code: i64,
    /// A short sentence for people.
    pub message: String,
    /// Details for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

impl ErrorObject {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Creates an [`INVALID_PARAMS`](code::INVALID_PARAMS) error.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// Creates an [`INVALID_REQUEST`](code::INVALID_REQUEST) error.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// Creates the error of a request whose client lacks these capabilities (-32021).
    pub fn missing_client_capability(required: &ClientCapabilities) -> Self {
        let message = "Missing required client capability";
        Self::new(code::MISSING_REQUIRED_CLIENT_CAPABILITY, message)
            .with_data(json!({ "requiredCapabilities": required }))
    }

    /// Creates an [`INTERNAL_ERROR`](code::INTERNAL_ERROR) error. The peer sees the message: it
    /// must not contain internal details.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL_ERROR, message)
    }

    /// Creates a [`METHOD_NOT_FOUND`](code::METHOD_NOT_FOUND) error that names the method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("Method not found: {}", peer_text::truncate(method)),
        )
    }

    /// Creates an [`UNSUPPORTED_PROTOCOL_VERSION`](code::UNSUPPORTED_PROTOCOL_VERSION) error with
    /// the requested version and the supported ones as data.
    pub fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        Self::new(code::UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version").with_data(
            serde_json::json!({ "supported": supported, "requested": peer_text::truncate(requested) }),
        )
    }

    /// Sets [`data`](Self::data).
    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_from_a_peer_are_truncated() {
        assert!(ErrorObject::method_not_found(&"é".repeat(9000)).message.len() < 400);
    }
}
