//! What those who look on learn of a request: a span, and how long it took, as OpenTelemetry's semantic conventions for MCP name
//! things. What nobody looks at costs nothing.

use std::future::Future;
use std::time::Instant;

use mrtr_schema::jsonrpc::Request;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::{PROTOCOL_VERSION, method};
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, Level, Span};

use crate::registry::{Outcome, PROTOCOL_METHODS, Registry};
use crate::trace_parent::TraceParent;

/// A request that somebody looks at.
pub(crate) struct RequestTelemetry {
    span: Span,
    /// If its time is of interest.
    started: Option<Instant>,
    operation: Operation,
    has_ended: bool,
}

/// A request's method and what it is about, as far as they are this server's: what a client makes up is no name for a metric.
struct Operation {
    method: String,
    tool: Option<String>,
    prompt: Option<String>,
}

impl Operation {
    fn of(server: &Registry, request: &Request) -> Self {
        let is_known = PROTOCOL_METHODS.contains(&&*request.method)
            || server.methods.contains_key(request.method.as_str());
        let method = if is_known { &*request.method } else { "_OTHER" };
        let name = || request.params.as_ref()?.string("name");
        let tool =
            name().filter(|name| method == method::TOOLS_CALL && server.tool(name).is_some());
        let prompt =
            name().filter(|name| method == method::PROMPTS_GET && server.prompt(name).is_some());
        let owned =
            |name: Option<std::borrow::Cow<'_, str>>| name.map(std::borrow::Cow::into_owned);
        Self { method: method.to_owned(), tool: owned(tool), prompt: owned(prompt) }
    }
}

impl RequestTelemetry {
    /// `None` if nobody looks on.
    pub(crate) fn of(
        server: &Registry,
        request: &Request,
        meta: Option<&RequestMeta>,
    ) -> Option<Self> {
        let level = LevelFilter::current();
        if level < LevelFilter::INFO {
            return None;
        }
        let operation = Operation::of(server, request);
        let span = span(&operation, request);
        if let Some(TraceParent(adopt)) = &server.trace_parent
            && let Some(context) = meta.and_then(|meta| TraceContext::from_meta(&meta.other))
        {
            adopt(&span, &context);
        }
        // Whether the metric is of interest cannot be asked without a word to those who filter.
        let started = (level >= LevelFilter::TRACE).then(Instant::now);
        Some(Self { span, started, operation, has_ended: false })
    }

    /// Looks on.
    pub(crate) async fn observe(self, answer: impl Future<Output = Outcome>) -> Outcome {
        let answer = answer.instrument(self.span.clone()).await;
        self.record(answer)
    }

    /// There is nothing more to see.
    pub(crate) fn record(mut self, answer: Outcome) -> Outcome {
        let ResultSummary { result_type, is_error } = match &answer {
            Ok(result) => serde_json::from_str(result.as_str()).unwrap_or_default(),
            Err(_) => ResultSummary::default(),
        };
        let code = answer.as_ref().err().map(|error| error.code.to_string());
        self.span.record("rpc.response.status_code", code.as_deref());
        self.end(result_type, code.as_deref().or(is_error.then_some("tool_error")));
        answer
    }

    fn end(&mut self, result_type: Option<&str>, error: Option<&str>) {
        self.has_ended = true;
        self.span.record("error.type", error);
        self.span.record("mrtr.result_type", result_type);
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

/// Its client has gone, or it was cancelled: that is an end, too.
impl Drop for RequestTelemetry {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(None, Some("cancelled"));
        }
    }
}

/// What a result says of itself.
#[derive(Default, Deserialize)]
struct ResultSummary<'a> {
    #[serde(borrow, default, rename = "resultType")]
    result_type: Option<&'a str>,
    #[serde(default, rename = "isError")]
    is_error: bool,
}

/// How many characters of a URI are shown.
const LONGEST_URI: usize = 1024;

fn span(Operation { method, tool, prompt }: &Operation, request: &Request) -> Span {
    // A URI is not a name: there are too many.
    let name = match tool.as_ref().or(prompt.as_ref()) {
        Some(name) => format!("{method} {name}"),
        None => method.clone(),
    };
    let uri = || request.params.as_ref()?.string("uri");
    let uri = if method == method::RESOURCES_READ { uri() } else { None };
    let uri: Option<String> = uri.map(|uri| uri.chars().take(LONGEST_URI).collect());
    tracing::info_span!(
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
