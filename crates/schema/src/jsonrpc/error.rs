//! Errors of JSON-RPC, and the codes that MCP gives them (specification: basic, "Error Codes").

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Error codes of JSON-RPC and of MCP revision 2026-07-28.
pub mod code {
    /// The body is not JSON, or has duplicate keys.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a JSON-RPC request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The server does not implement the method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are missing, malformed or unknown to the server.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The server failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// HTTP headers are missing, malformed or differ from the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request needs a capability that the client did not declare on it.
    pub const MISSING_REQUIRED_CLIENT_CAPABILITY: i64 = -32021;
    /// The server does not speak the protocol version of the request.
    pub const UNSUPPORTED_PROTOCOL_VERSION: i64 = -32022;
}

/// A JSON-RPC error, as it stands on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ErrorObject {
    /// One of [`code`], or a number of the application's own outside `-32768..=-32000`.
    pub code: i64,
    /// One short sentence.
    pub message: String,
    /// What a program needs to know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// `-32602`: the caller's parameters are wrong.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// `-32600`: the message is no request.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_REQUEST, message)
    }

    /// `-32603`: the server failed. Say nothing here that the peer should not read.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL_ERROR, message)
    }

    /// `-32601`: the server does not implement `method`.
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("Method not found: {}", shorten(method)))
    }

    /// `-32022`: the server does not speak `requested`, but it speaks `supported`.
    pub fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        Self::new(code::UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version").with_data(
            serde_json::json!({ "supported": supported, "requested": shorten(requested) }),
        )
    }

    /// Adds data.
    pub fn with_data(mut self, data: serde_json::Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Text from a peer, cut to a length that is fit for an error message.
    pub fn quote(text: &str) -> String {
        format!("{:?}", shorten(text))
    }
}

/// The first 128 characters.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(128) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
        None => text.into(),
    }
}
