//! What tells a message of a legacy client from one of the current revision.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{Message, Request, RequestId};
use mrtr_schema::meta::{RequestMeta, key};
use mrtr_schema::request_head::RequestHead;
use mrtr_schema::{PROTOCOL_VERSION, method};

use crate::legacy_method;

/// Returns true if the message is an `initialize` request without the `_meta` of the current
/// revision.
pub(crate) fn opens_session(body: &[u8]) -> bool {
    matches!(Message::parse(body), Ok(Message::Request(request))
        if is_legacy(&request, legacy_method::INITIALIZE))
}

/// Returns true if the message is a request with the `_meta` of the current revision.
pub(crate) fn names_current_revision(body: &[u8]) -> bool {
    matches!(Message::parse(body), Ok(Message::Request(request)) if has_current_meta(&request))
}

/// What a message means for a stream whose client may still choose its era.
pub(crate) enum Opening {
    /// An `initialize` request of a legacy client.
    Session,
    /// A request by which a client finds out what the server speaks, and its `_meta`. The client
    /// may choose either era afterwards.
    Probe(Request, Option<Arc<RequestMeta>>),
    /// A `ping` of a legacy client, which may precede the session.
    Ping(RequestId),
    /// A notification, which decides nothing.
    Notification,
    /// Anything else is for the current revision.
    Current,
}

impl Opening {
    pub(crate) fn of(line: &[u8]) -> Self {
        let request = match Message::parse(line) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification(_)) => return Self::Notification,
            _ => return Self::Current,
        };
        if is_legacy(&request, legacy_method::INITIALIZE) {
            return Self::Session;
        }
        if is_legacy(&request, legacy_method::PING) {
            return Self::Ping(request.id);
        }
        let Ok(RequestHead { meta, .. }) = RequestHead::from_request(&request) else {
            return Self::Current;
        };
        let version = meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
        let is_other_version = version.is_some_and(|version| version != PROTOCOL_VERSION);
        if request.method == method::DISCOVER || is_other_version {
            return Self::Probe(request, meta);
        }
        Self::Current
    }
}

/// Returns true if the request has this method, and not the `_meta` of the current revision.
fn is_legacy(request: &Request, method: &str) -> bool {
    request.method == method && !has_current_meta(request)
}

fn has_current_meta(request: &Request) -> bool {
    let meta = request.params.as_ref().and_then(|params| params.member("_meta"));
    meta.is_some_and(|meta| meta.contains(key::PROTOCOL_VERSION))
}
