//! What those who look on learn of a request: a span, and how long it took, as OpenTelemetry's semantic conventions for MCP name
//! things. What nobody looks at costs nothing.

use std::fmt;
use std::future::Future;
use std::time::Instant;

use mrtr_schema::jsonrpc::Request;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::{PROTOCOL_VERSION, method};
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument as _, Level, Span};

use crate::dispatch::Outcome;
use crate::dispatch::methods::OF_PROTOCOL;
use crate::server::Inner;

/// Takes a request's span into the trace of its client.
pub(crate) struct TraceParent(Adopt);

type Adopt = Box<dyn Fn(&Span, &TraceContext) + Send + Sync>;

impl TraceParent {
    pub(crate) fn new(adopt: impl Fn(&Span, &TraceContext) + Send + Sync + 'static) -> Self {
        Self(Box::new(adopt))
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceParent")
    }
}

/// A request that somebody looks at.
pub(crate) struct RequestTelemetry {
    span: Span,
    /// If its time is of interest.
    begun: Option<Instant>,
    what: What,
    has_ended: bool,
}

/// A request's method and what it is about, as far as they are this server's: what a client makes up is no name for a metric.
struct What {
    method: String,
    tool: Option<String>,
    prompt: Option<String>,
}

impl What {
    fn of(server: &Inner, request: &Request) -> Self {
        let is_known = OF_PROTOCOL.contains(&&*request.method)
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
        server: &Inner,
        request: &Request,
        meta: Option<&RequestMeta>,
    ) -> Option<Self> {
        let level = LevelFilter::current();
        if level < LevelFilter::INFO {
            return None;
        }
        let what = What::of(server, request);
        let span = span(&what, request);
        if let Some(TraceParent(adopt)) = &server.trace_parent
            && let Some(context) = meta.and_then(|meta| TraceContext::from_meta(&meta.other))
        {
            adopt(&span, &context);
        }
        // Whether the metric is of interest cannot be asked without a word to those who filter.
        let begun = (level >= LevelFilter::TRACE).then(Instant::now);
        Some(Self { span, begun, what, has_ended: false })
    }

    /// Looks on.
    pub(crate) async fn see(self, answer: impl Future<Output = Outcome>) -> Outcome {
        let answer = answer.instrument(self.span.clone()).await;
        self.saw(answer)
    }

    /// There is nothing more to see.
    pub(crate) fn saw(mut self, answer: Outcome) -> Outcome {
        let Kind { result_type, is_error } = match &answer {
            Ok(result) => serde_json::from_str(result.as_str()).unwrap_or_default(),
            Err(_) => Kind::default(),
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
        if let Some(begun) = self.begun {
            tracing::event!(
                target: "mrtr::metrics",
                Level::TRACE,
                histogram.mcp.server.operation.duration = begun.elapsed().as_secs_f64(),
                mcp.method.name = self.what.method,
                gen_ai.tool.name = self.what.tool,
                gen_ai.prompt.name = self.what.prompt,
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
struct Kind<'a> {
    #[serde(borrow, default, rename = "resultType")]
    result_type: Option<&'a str>,
    #[serde(default, rename = "isError")]
    is_error: bool,
}

/// How many characters of a URI are shown.
const LONGEST_URI: usize = 1024;

fn span(What { method, tool, prompt }: &What, request: &Request) -> Span {
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
