//! Traces and metrics by OTLP: a call of two rounds, and what a collector receives.
//!
//! In a real service, leave out the collector, and export to `OTEL_EXPORTER_OTLP_ENDPOINT`.

mod collector;

use std::collections::HashMap;
use std::error::Error;

use mrtr::http::{HttpClient, ServeOptions};
use mrtr::{Client, Context, ElicitResult, KeyRing, Secret, Server, Tool, TraceContext};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tracing::Instrument as _;
use tracing_opentelemetry::{MetricsLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use collector::Collector;

#[derive(Deserialize, JsonSchema)]
struct Seat {
    place: String,
}

async fn book(cx: Context) -> mrtr::Result<String> {
    // Spans inside a step are part of the trace.
    let look = async |_| Ok(async { 5 }.instrument(tracing::info_span!("look for a table")).await);
    let table: u8 = cx.step("table", look).await?;
    let seat: Seat = cx.elicit("seat", "Inside or outside?").await?;
    Ok(format!("Table {table}, {}.", seat.place))
}

/// Starts a replica, and returns its URL.
async fn replica(secret: &Secret) -> Result<String, Box<dyn Error>> {
    let ring = KeyRing::builder("https://booking.example/mcp").active(secret.clone()).build()?;
    let server = Server::builder("booking", "1")
        .key_ring(ring)
        .tool(Tool::new("book", "Books a table", book))
        // The span of each request becomes a child of its client's.
        .trace_parent(|span, context| {
            let carrier = HashMap::from([
                ("traceparent".to_owned(), context.traceparent.clone()),
                ("tracestate".to_owned(), context.tracestate.clone().unwrap_or_default()),
            ]);
            let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
        })
        .allow_anonymous()
        .build()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let forever = std::future::pending();
    tokio::spawn(mrtr::http::serve(
        listener,
        mrtr::endpoint(server)?,
        ServeOptions::default(),
        forever,
    ));
    Ok(url)
}

/// Returns the context of the current span, for the next request.
fn current() -> Option<TraceContext> {
    let mut carrier = HashMap::new();
    let context = tracing::Span::current().context();
    TraceContextPropagator::new().inject_context(&context, &mut carrier);
    let tracestate = carrier.remove("tracestate").filter(|state| !state.is_empty());
    let mut context = TraceContext::new(carrier.remove("traceparent")?);
    context.tracestate = tracestate;
    Some(context)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let collector = Collector::start().await?;
    let spans = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("{}/v1/traces", collector.url))
        .build()?;
    let metrics = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("{}/v1/metrics", collector.url))
        .build()?;
    let tracers = SdkTracerProvider::builder().with_batch_exporter(spans).build();
    let meters = SdkMeterProvider::builder().with_periodic_exporter(metrics).build();
    // Requests are spans of the level DEBUG; metrics are events of the target `mrtr::metrics`.
    let traces = tracing_opentelemetry::layer()
        .with_tracer(tracers.tracer("booking"))
        .with_filter(EnvFilter::new("info,mrtr::server=debug,mrtr::client=debug"));
    let counts =
        MetricsLayer::new(meters.clone()).with_filter(EnvFilter::new("mrtr::metrics=trace"));
    tracing_subscriber::registry().with(traces).with(counts).init();

    let secret = Secret::generate()?;
    let replicas = [replica(&secret).await?, replica(&secret).await?];
    // Rounds alternate between the replicas, as behind a load balancer.
    let connections = replicas.map(|url| HttpClient::builder(url).build());
    let [first, second] = connections;
    let client = Client::builder(collector::RoundRobin::new([first?, second?]))
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "place": "outside" }))?))
        .trace_context(current)
        .build();
    let result = client.call_tool("book", json!({})).await?;
    println!("{}\n", result.text());
    // One request is rejected: its state is forged.
    let forged = json!({ "name": "book", "arguments": {}, "requestState": "v1.forged" });
    let _ = client.request::<serde_json::Value>("tools/call", forged).await;

    // Exports what is left. This blocks.
    tokio::task::spawn_blocking(move || {
        let _ = tracers.shutdown();
        let _ = meters.shutdown();
    })
    .await?;
    collector.show()
}
