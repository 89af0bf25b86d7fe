//! Request telemetry: a span and a duration metric, named after OpenTelemetry's semantic
//! conventions for MCP. Both cost nothing at the level INFO, the default of subscribers.

use std::borrow::Cow;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use mrtr_schema::jsonrpc::Request;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::{PROTOCOL_VERSION, method, uri};
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, Level, Span};

use crate::middleware::ResultSummary;
use crate::registry::{Outcome, PROTOCOL_METHODS, Registry};
use crate::trace_parent::TraceParent;

/// The telemetry of one request.
pub(crate) struct RequestTelemetry {
    span: Span,
    /// The start of the request, if a subscriber may collect metrics.
    started: Option<Instant>,
    operation: Operation,
    has_ended: bool,
}

/// The method of a request, and the tool or prompt that it names.
///
/// It contains only names that this server knows. Arbitrary names from clients would create an
/// unlimited number of time series.
struct Operation {
    method: String,
    tool: Option<String>,
    prompt: Option<String>,
}

impl Operation {
    fn new(server: &Registry, request: &Request) -> Self {
        let is_known = PROTOCOL_METHODS.contains(&&*request.method)
            || server.methods.contains_key(request.method.as_str());
        let method = if is_known { &*request.method } else { "_OTHER" };
        let name = || request.params.as_ref()?.string("name");
        let tool =
            name().filter(|name| method == method::TOOLS_CALL && server.tool(name).is_some());
        let prompt =
            name().filter(|name| method == method::PROMPTS_GET && server.prompt(name).is_some());
        Self {
            method: method.to_owned(),
            tool: tool.map(Cow::into_owned),
            prompt: prompt.map(Cow::into_owned),
        }
    }
}

impl RequestTelemetry {
    /// Starts the telemetry of a request. Returns `None` if no subscriber enables it.
    pub(crate) fn start(
        server: &Registry,
        request: &Request,
        meta: Option<&RequestMeta>,
    ) -> Option<Self> {
        let level = LevelFilter::current();
        if level < LevelFilter::DEBUG {
            return None;
        }
        let operation = Operation::new(server, request);
        let span = span(&operation, request);
        if let Some(TraceParent(adopt)) = &server.trace_parent
            && let Some(context) = meta.and_then(|meta| TraceContext::from_meta(&meta.other))
        {
            let adopted = catch_unwind(AssertUnwindSafe(|| adopt(&span, &context)));
            if adopted.is_err() {
                tracing::error!(target: "mrtr::server", "the hook `trace_parent` panicked");
            }
        }
        // Only the level is checked. A check that the metric is enabled would itself call the
        // subscribers' filters.
        let started = (level >= LevelFilter::TRACE).then(Instant::now);
        Some(Self { span, started, operation, has_ended: false })
    }

    /// Awaits the response inside the span, and records it.
    pub(crate) async fn observe(self, response: impl Future<Output = Outcome>) -> Outcome {
        let outcome = response.instrument(self.span.clone()).await;
        self.record(outcome)
    }

    /// Records the response, and ends the telemetry.
    pub(crate) fn record(mut self, outcome: Outcome) -> Outcome {
        let ResultSummary { result_type, is_error } = match &outcome {
            Ok(result) => ResultSummary::of(result),
            Err(_) => ResultSummary::default(),
        };
        let code = outcome.as_ref().err().map(|error| error.code.to_string());
        if let Some(code) = &code {
            self.span.record("rpc.response.status_code", code.as_str());
        }
        self.end(result_type, code.as_deref().or(is_error.then_some("tool_error")));
        outcome
    }

    fn end(&mut self, result_type: Option<&str>, error: Option<&str>) {
        self.has_ended = true;
        for (field, value) in [("error.type", error), ("mrtr.result_type", result_type)] {
            if let Some(value) = value {
                self.span.record(field, value);
            }
        }
        if let Some(started) = self.started {
            tracing::event!(
                target: "mrtr::metrics",
                Level::TRACE,
                histogram.mcp.server.operation.duration = started.elapsed().as_secs_f64(),
                mcp.method.name = self.operation.method,
                gen_ai.tool.name = self.operation.tool,
                gen_ai.prompt.name = self.operation.prompt,
                error.type = error,
                mrtr.result_type = result_type,
            );
        }
    }
}

/// A request that is dropped without a response was cancelled, or its client has disconnected.
impl Drop for RequestTelemetry {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(None, Some("cancelled"));
        }
    }
}

/// Maximum number of characters of a resource's URI in a span.
const MAX_URI_CHARS: usize = 1024;

fn span(Operation { method, tool, prompt }: &Operation, request: &Request) -> Span {
    // The span name contains no URI, because there may be too many different URIs.
    let name = match tool.as_ref().or(prompt.as_ref()) {
        Some(name) => format!("{method} {name}"),
        None => method.clone(),
    };
    let uri = || request.params.as_ref()?.string("uri");
    let uri = if method == method::RESOURCES_READ { uri() } else { None };
    let uri =
        uri.map(|uri| uri::without_query(&uri).chars().take(MAX_URI_CHARS).collect::<String>());
    tracing::debug_span!(
        target: "mrtr::server",
        "request",
        otel.name = name,
        otel.kind = "server",
        mcp.method.name = method,
        gen_ai.operation.name = tool.as_ref().map(|_| "execute_tool"),
        gen_ai.tool.name = tool,
        gen_ai.prompt.name = prompt,
        mcp.resource.uri = uri.as_deref(),
        mcp.protocol.version = PROTOCOL_VERSION,
        jsonrpc.request.id = %request.id,
        mrtr.round = tracing::field::Empty,
        mrtr.result_type = tracing::field::Empty,
        rpc.response.status_code = tracing::field::Empty,
        error.type = tracing::field::Empty,
    )
}
