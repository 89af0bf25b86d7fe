//! Requests of clients that speak an older revision of the protocol.

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::request_head::RequestHead;

/// Returns the error for an `initialize` request of an older revision, if `request` is one: it
/// names a version other than ours, and does so in its parameters instead of `_meta`.
///
/// Such a client cannot negotiate upwards. The error is the only hint that its user gets.
pub(crate) fn reject_older_revision(
    request: &Request,
    mirrored: &RequestHead<'_>,
) -> Option<ErrorObject> {
    let has_version = mirrored.meta.as_ref().is_some_and(|meta| meta.protocol_version.is_some());
    if request.method != "initialize" || has_version {
        return None;
    }
    let params: serde_json::Value = serde_json::from_str(request.params.as_ref()?.as_str()).ok()?;
    let requested = params.get("protocolVersion")?.as_str()?;
    if requested == PROTOCOL_VERSION {
        return None;
    }
    let mut error = ErrorObject::unsupported_version(requested, &[PROTOCOL_VERSION]);
    error.message =
        format!("This server speaks MCP {PROTOCOL_VERSION} only, which has no initialize");
    Some(error)
}
