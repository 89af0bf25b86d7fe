//! Raw requests, one round at a time.

use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use mrtr_testkit::Replicas;
use mrtr_transport::{OutgoingRequest, Transport as _};
use serde_json::{Value, json};

/// Sends `tools/call` with the parameters in `more`, such as `requestState`.
///
/// Returns the result, or the error under `error`.
pub(crate) async fn call_tool(
    fleet: &Replicas,
    tool: &str,
    arguments: Value,
    more: Value,
) -> Value {
    let mut params = with_meta(json!({ "name": tool, "arguments": arguments }));
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    send_request(fleet, "tools/call", params).await
}

/// Adds the `_meta` of a client that supports forms.
pub(crate) fn with_meta(mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    params.as_object_mut().unwrap().insert("_meta".to_owned(), meta);
    params
}

/// Sends a request. Returns the result, or the error under `error`.
pub(crate) async fn send_request(fleet: &Replicas, method: &str, params: Value) -> Value {
    let response = fleet.send(OutgoingRequest::new(request(method, &params))).await.unwrap();
    match response.outcome {
        Ok(result) => serde_json::from_str(result.get()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

/// Creates a request with the id 1.
pub(crate) fn request(method: &str, params: &Value) -> Request {
    Request::new(RequestId::Number(1), method, Some(Params::new(params).unwrap()))
}

/// The response to every request state that the server rejects. Its text never changes, so that it
/// tells an attacker nothing.
pub(crate) fn invalid_state() -> Value {
    json!({ "error": {
        "code": -32602,
        "message": "Invalid or expired requestState",
        "data": { "reason": "invalid_request_state" },
    } })
}
