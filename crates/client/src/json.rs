//! Conversions between typed values and JSON text, with the client's errors.

use std::fmt::Display;

use mrtr_schema::peer_text::truncate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::error::CallError;

/// Writes a parameter of a request.
pub(crate) fn encode_param(value: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(value)
        .map_err(|e| CallError::request(format!("cannot write the parameters as JSON: {e}")))
}

/// Writes the response to an input request.
pub(crate) fn encode_response(response: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(response)
        .map_err(|e| CallError::handler(format!("cannot write the response as JSON: {e}"), None))
}

/// Reads the result of `method`.
pub(crate) fn decode_result<R: DeserializeOwned>(
    method: &str,
    result: &RawValue,
) -> Result<R, CallError> {
    let malformed = |error| malformed(&format!("result of {method}"), &error);
    serde_json::from_str(result.get()).map_err(malformed)
}

/// Returns the error for a message of the server that cannot be read.
pub(crate) fn malformed(what: &str, error: &impl Display) -> CallError {
    // It may quote the server's text.
    let why = error.to_string();
    CallError::protocol(format!("malformed {what}: {}", truncate(&why)))
}
