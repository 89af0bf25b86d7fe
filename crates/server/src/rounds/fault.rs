//! Faults: errors that end a call and that the handler does not see.

use std::fmt;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::peer_text::quote;

/// The reason why a call cannot continue. The handler is dropped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// A mistake in the handler.
    Handler(String),
    /// The handler needs features that the client does not support.
    Capability(Box<ClientCapabilities>),
    /// The client's answer to the question with this key is too long to be kept, with its length
    /// and the limit in bytes.
    AnswerTooLong(String, usize, usize),
    /// The journal was recorded by different code.
    Changed(String),
    /// The handler panicked.
    Panicked(String),
}

impl Fault {
    /// Creates the fault of a call that needs more rounds than it may have.
    pub(crate) fn too_many_rounds(limit: u32) -> Self {
        Self::Handler(format!("the call needs more than {limit} rounds"))
    }

    /// Creates the fault of a caught panic, with the panic's message if it is a string.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let message = match panic.downcast_ref::<&str>() {
            Some(message) => Some((*message).to_owned()),
            None => panic.downcast_ref::<String>().cloned(),
        };
        Self::Panicked(message.unwrap_or_else(|| "no message".to_owned()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(why) | Self::Changed(why) => f.write_str(why),
            Self::Capability(_) => f.write_str("the client lacks a capability the handler needs"),
            Self::AnswerTooLong(key, length, limit) => write!(
                f,
                "the response to {} has {length} bytes; at most {limit} can be kept",
                quote(key)
            ),
            Self::Panicked(message) => write!(f, "the handler panicked: {message}"),
        }
    }
}
