//! The message that opens a session.

use mrtr_schema::jsonrpc::Message;
use mrtr_schema::meta::key;

use crate::legacy_method;

/// Returns true if the message is an `initialize` request without the `_meta` of the current
/// revision.
pub(crate) fn opens_session(body: &[u8]) -> bool {
    match Message::parse(body) {
        Ok(Message::Request(request)) if request.method == legacy_method::INITIALIZE => {
            let meta = request.params.as_ref().and_then(|params| params.member("_meta"));
            !meta.is_some_and(|meta| meta.contains(key::PROTOCOL_VERSION))
        }
        _ => false,
    }
}
