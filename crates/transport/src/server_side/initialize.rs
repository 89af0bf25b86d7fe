//! Requests of clients that speak an older revision of the protocol.

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::request_head::RequestHead;

/// Returns the error for an `initialize` request of an older revision, if `request` is one: it does
/// not name a version in `_meta`.
///
/// Such a client cannot negotiate upwards. The error is the only hint that its user gets, so it
/// names our version (specification: versioning).
pub(crate) fn reject_older_revision(
    request: &Request,
    mirrored: &RequestHead<'_>,
) -> Option<ErrorObject> {
    let has_version = mirrored.meta.as_ref().is_some_and(|meta| meta.protocol_version.is_some());
    if request.method != "initialize" || has_version {
        return None;
    }
    let requested = request.params.as_ref().and_then(|params| params.string("protocolVersion"));
    let mut error = ErrorObject::unsupported_version(
        requested.as_deref().unwrap_or_default(),
        &[PROTOCOL_VERSION],
    );
    error.message =
        format!("This server speaks MCP {PROTOCOL_VERSION} only, which has no initialize");
    Some(error)
}
