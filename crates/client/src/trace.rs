//! Spans of calls and requests, and the trace context that requests carry in `_meta`.

use mrtr_schema::jsonrpc::RequestId;
use mrtr_schema::meta::TraceContext;
use mrtr_schema::{Object, PROTOCOL_VERSION, method, uri};
use tracing::Span;

/// The application's source of trace contexts.
pub(crate) type TraceSource = dyn Fn() -> Option<TraceContext> + Send + Sync;

/// Returns the members of the current trace context for `_meta`.
pub(crate) fn meta_members(source: Option<&TraceSource>) -> Object {
    let Some(context) = source.and_then(|source| source()) else { return Object::new() };
    context.to_meta().unwrap_or_else(|| {
        tracing::warn!(target: "mrtr::client", ?context, "ignoring invalid trace context");
        Object::new()
    })
}

/// Returns the target of a call for logs: the query of a URI may have secret values.
pub(crate) fn loggable<'t>(method: &str, target: &'t str) -> &'t str {
    match method {
        method::TOOLS_CALL | method::PROMPTS_GET => target,
        _ => uri::without_query(target),
    }
}

/// Creates the span of a call with all its rounds.
pub(crate) fn call_span(method: &str, target: &str) -> Span {
    let target = loggable(method, target);
    tracing::debug_span!(
        target: "mrtr::client",
        "call",
        otel.name = format!("{method} {target} (all rounds)").trim(),
        otel.kind = "internal",
        mcp.method.name = method,
    )
}

/// Creates the span of one request, with the fields of OpenTelemetry's semantic conventions.
pub(crate) fn request_span(method: &str, target: &str, id: &RequestId) -> Span {
    let tool = (method == method::TOOLS_CALL).then_some(target);
    let prompt = (method == method::PROMPTS_GET).then_some(target);
    let resource = (method == method::RESOURCES_READ).then(|| loggable(method, target));
    // The URI stays out of the span's name: names must have a low cardinality.
    let name = tool.or(prompt).map_or_else(|| method.to_owned(), |name| format!("{method} {name}"));
    tracing::debug_span!(
        target: "mrtr::client",
        "request",
        otel.name = name,
        otel.kind = "client",
        mcp.method.name = method,
        gen_ai.operation.name = tool.map(|_| "execute_tool"),
        gen_ai.tool.name = tool,
        gen_ai.prompt.name = prompt,
        mcp.resource.uri = resource,
        mcp.protocol.version = PROTOCOL_VERSION,
        jsonrpc.request.id = %id,
        rpc.response.status_code = tracing::field::Empty,
        error.type = tracing::field::Empty,
    )
}

/// Records on the span of a request that the server responded with this JSON-RPC error code.
///
/// Not on the current span: if that of the request is disabled, it is one of the application.
pub(crate) fn record_server_error(request: &Span, code: i64) {
    let code = code.to_string();
    request.record("rpc.response.status_code", &code);
    request.record("error.type", code);
}

/// Records on the span of a request that the transport failed.
pub(crate) fn record_transport_error(request: &Span) {
    request.record("error.type", "transport");
}
