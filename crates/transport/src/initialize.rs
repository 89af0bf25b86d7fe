//! Clients of older revisions.

use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::request_head::RequestHead;

/// The answer to an `initialize` of an older revision, if this is one: it names another
/// version, and not in `_meta`. Such a client cannot go forward by
/// itself: the answer is the only hint that its user gets.
pub(crate) fn refuse(request: &Request, mirrored: &RequestHead<'_>) -> Option<ErrorObject> {
    let modern = mirrored.meta.as_ref().is_some_and(|meta| meta.protocol_version.is_some());
    if request.method != "initialize" || modern {
        return None;
    }
    let asked = request.params.as_ref().and_then(|p| {
        let params: serde_json::Value = serde_json::from_str(p.as_str()).ok()?;
        Some(params.get("protocolVersion")?.as_str()?.to_owned())
    });
    let asked = asked.filter(|asked| asked != PROTOCOL_VERSION)?;
    let mut error = ErrorObject::unsupported_version(&asked, &[PROTOCOL_VERSION]);
    error.message =
        format!("This server speaks MCP {PROTOCOL_VERSION} only, which has no initialize");
    Some(error)
}
