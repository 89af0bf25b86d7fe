//! Batches: arrays of messages (2025-03-26, basic: "Batching").

use mrtr_schema::jsonrpc::{ErrorObject, Message, code};
use serde_json::value::RawValue;

/// The most messages in a batch.
const MAX_BATCH: usize = 64;

/// Returns true if the text is an array.
pub fn is_batch(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"[")
}

/// Splits a batch into its messages, which are not parsed.
///
/// # Errors
///
/// If it is not JSON, or has no message, or more than 64.
pub fn split(text: &[u8]) -> Result<Vec<Box<RawValue>>, ErrorObject> {
    let messages: Vec<Box<RawValue>> = serde_json::from_slice(text)
        .map_err(|error| ErrorObject::new(code::PARSE_ERROR, format!("Parse error: {error}")))?;
    if messages.is_empty() || messages.len() > MAX_BATCH {
        let message = format!("a batch has 1 to {MAX_BATCH} messages");
        return Err(ErrorObject::invalid_request(message));
    }
    Ok(messages)
}

/// Parses a message, or all messages of a batch. Servers of 2025-03-26 send batches, and clients
/// must understand them.
///
/// # Errors
///
/// Those of [`split`] and of [`Message::parse`].
pub fn parse(text: &[u8]) -> Result<Vec<Message>, ErrorObject> {
    if !is_batch(text) {
        return Ok(vec![Message::parse(text)?]);
    }
    split(text)?.iter().map(|message| Message::parse(message.get().as_bytes())).collect()
}
