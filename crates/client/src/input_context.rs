//! The origin of an input request.

use std::sync::Arc;

/// The origin of an input request: the call, the round and the server's key.
///
/// Handlers ([`ClientBuilder::on_form`](crate::ClientBuilder::on_form)), the
/// [policy](crate::ClientBuilder::policy) and the
/// [observer](crate::ClientBuilder::on_event) receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputContext {
    /// The method of the call, such as `tools/call`.
    pub method: String,
    /// The name of the tool or prompt, or the URI of the resource.
    pub target: String,
    /// The server's key of the input request.
    pub key: String,
    /// The number of this round among the call's rounds with input requests, from 1.
    pub input_round: u32,
    /// The label of the call, if it has one: see [`Client::with_label`](crate::Client::with_label).
    pub label: Option<Arc<str>>,
}

impl InputContext {
    /// Creates a context without a label, for tests of handlers.
    pub fn new(
        method: impl Into<String>,
        target: impl Into<String>,
        key: impl Into<String>,
        input_round: u32,
    ) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            key: key.into(),
            input_round,
            label: None,
        }
    }
}
