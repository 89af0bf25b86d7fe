//! What ends a flow without a result.

use std::fmt;

use mrtr_schema::capabilities::ClientCapabilities;

/// Why a flow cannot go on. The handler does not see it: it is dropped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// A mistake in the handler.
    Handler(String),
    /// The handler asked what the client does not support.
    Capability(Box<ClientCapabilities>),
    /// The code is not the one that recorded the journal.
    Changed(String),
    /// The handler panicked.
    Panicked(String),
}

impl Fault {
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "no message".to_owned()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(why) | Self::Changed(why) => f.write_str(why),
            Self::Capability(_) => {
                f.write_str("the client lacks a capability that the handler needs")
            }
            Self::Panicked(why) => write!(f, "the handler panicked: {why}"),
        }
    }
}
