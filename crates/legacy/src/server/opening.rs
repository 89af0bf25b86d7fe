//! What tells a message of a legacy client from one of the current revision.

use mrtr_schema::jsonrpc::{Message, Request};
use mrtr_schema::meta::key;

use crate::legacy_method;

/// Returns true if the message is an `initialize` request without the `_meta` of the current
/// revision.
pub(crate) fn opens_session(body: &[u8]) -> bool {
    matches!(Message::parse(body), Ok(Message::Request(request))
        if request.method == legacy_method::INITIALIZE && !has_current_meta(&request))
}

/// Returns true if the message is a request with the `_meta` of the current revision.
pub(crate) fn names_current_revision(body: &[u8]) -> bool {
    matches!(Message::parse(body), Ok(Message::Request(request)) if has_current_meta(&request))
}

fn has_current_meta(request: &Request) -> bool {
    let meta = request.params.as_ref().and_then(|params| params.member("_meta"));
    meta.is_some_and(|meta| meta.contains(key::PROTOCOL_VERSION))
}
