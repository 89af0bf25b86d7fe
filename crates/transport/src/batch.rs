//! Batches: arrays of messages (2025-03-26, basic: "Batching").

use std::fmt;

use mrtr_schema::jsonrpc::{ErrorObject, Message, code};
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
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
    let wrong_size =
        || ErrorObject::invalid_request(format!("a batch has 1 to {MAX_BATCH} messages"));
    let Batch(messages) = serde_json::from_slice(text).map_err(|error| {
        // All that the visitor refuses is the number of messages.
        if error.is_data() {
            return wrong_size();
        }
        ErrorObject::new(code::PARSE_ERROR, format!("Parse error: {error}"))
    })?;
    if messages.is_empty() { Err(wrong_size()) } else { Ok(messages) }
}

/// The messages of a batch. It is read to the first message that is too many.
struct Batch(Vec<Box<RawValue>>);

impl<'de> Deserialize<'de> for Batch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Messages;

        impl<'de> Visitor<'de> for Messages {
            type Value = Batch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Batch, A::Error> {
                let mut messages = Vec::new();
                while let Some(message) = all.next_element()? {
                    if messages.len() == MAX_BATCH {
                        return Err(A::Error::custom("too many messages"));
                    }
                    messages.push(message);
                }
                Ok(Batch(messages))
            }
        }

        deserializer.deserialize_seq(Messages)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_messages_is_limited_before_they_are_read() {
        let of = |count: usize| format!("[{}0", "0,".repeat(count - 1));
        for (text, expected) in [
            ("[]".to_owned(), Err(code::INVALID_REQUEST)),
            (of(64) + "]", Ok(64)),
            (of(65) + "]", Err(code::INVALID_REQUEST)),
            // The end is not read.
            (of(65) + "}", Err(code::INVALID_REQUEST)),
            (of(64) + "}", Err(code::PARSE_ERROR)),
            (of(1) + "] 0", Err(code::PARSE_ERROR)),
            ("5".to_owned(), Err(code::INVALID_REQUEST)),
        ] {
            let split = split(text.as_bytes());
            let split = split.map(|messages| messages.len()).map_err(|error| error.code);
            assert_eq!(split, expected, "{text}");
        }
    }
}
