//! A fake collector, which prints what it receives by OTLP over HTTP as JSON, and a fake load balancer.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use mrtr::client::{OutgoingRequest, Transport, TransportError};
use mrtr::http::HttpClient;
use mrtr::schema::jsonrpc::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Got = Arc<Mutex<Vec<(String, Value)>>>;

pub struct Collector {
    pub url: String,
    got: Got,
}

impl Collector {
    pub async fn start() -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let got = Got::default();
        let router = Router::new().route("/v1/{what}", post(take)).with_state(Arc::clone(&got));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, got })
    }

    /// Prints what was received, and fails if a span or metric is missing.
    pub fn show(&self) -> Result<(), Box<dyn Error>> {
        let got = std::mem::take(&mut *self.got.lock().map_err(|_| "the collector failed")?);
        let (mut spans, mut metrics) = (Vec::new(), Vec::new());
        for (what, body) in &got {
            match what.as_str() {
                "traces" => all(body, &["resourceSpans", "scopeSpans", "spans"], &mut spans),
                _ => all(body, &["resourceMetrics", "scopeMetrics", "metrics"], &mut metrics),
            }
        }
        let first = spans.iter().find(|span| span["name"] == "tools/call book (all rounds)");
        let trace = first.ok_or("no span of the call")?["traceId"].clone();
        println!("one trace, {}:", trace.as_str().unwrap_or_default());
        let ours: Vec<_> = spans.iter().copied().filter(|span| span["traceId"] == trace).collect();
        let known: BTreeSet<_> = ours.iter().filter_map(|span| span["spanId"].as_str()).collect();
        let roots = ours.iter().filter(|span| {
            !span["parentSpanId"].as_str().is_some_and(|parent| known.contains(parent))
        });
        roots.for_each(|root| show_span(root, &ours, 1));
        println!("\nmetrics:");
        let mut counts = BTreeMap::new();
        for metric in &metrics {
            let name = metric["name"].as_str().unwrap_or_default();
            for point in ["sum", "histogram"].iter().flat_map(|kind| points(&metric[*kind])) {
                let value =
                    if point["count"].is_null() { &point["asInt"] } else { &point["count"] };
                counts.insert(format!("{name} {}", attributes(point, &[])), text(value));
            }
        }
        for (name, count) in &counts {
            println!("  {count:>3} × {name}");
        }
        let servers = ours.iter().filter(|span| !attributes(span, &["mrtr.round"]).is_empty()).count();
        let refused = counts.keys().any(|name| name.starts_with("mrtr.state.rejections"));
        if servers == 2 && refused { Ok(()) } else { Err("something is missing".into()) }
    }
}

async fn take(
    Path(what): Path<String>,
    State(got): State<Got>,
    Json(body): Json<Value>,
) -> Json<Value> {
    if let Ok(mut got) = got.lock() {
        got.push((what, body));
    }
    Json(json!({}))
}

/// Collects the elements of nested lists, level by level.
fn all<'a>(value: &'a Value, levels: &[&str], into: &mut Vec<&'a Value>) {
    let Some((level, rest)) = levels.split_first() else { return into.push(value) };
    let inside = value[*level].as_array();
    inside.into_iter().flatten().for_each(|value| all(value, rest, into));
}

fn points(kind: &Value) -> impl Iterator<Item = &Value> {
    kind["dataPoints"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Formats the attributes with these names, or all.
fn attributes(of: &Value, names: &[&str]) -> String {
    let all = of["attributes"].as_array().into_iter().flatten();
    let wanted = all.filter(|it| names.is_empty() || names.iter().any(|name| it["key"] == *name));
    let shown = wanted.map(|it| {
        let value = it["value"].as_object().and_then(|value| value.values().next());
        format!("{}={}", text(&it["key"]), value.map(text).unwrap_or_default())
    });
    shown.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

fn show_span(span: &Value, all: &[&Value], depth: usize) {
    let kind = match text(&span["kind"]).as_str() {
        "2" => "server",
        "3" => "client",
        _ => "",
    };
    let more = attributes(span, &["mrtr.round", "mrtr.result_type", "error.type"]);
    println!("{:indent$}{} {kind} {more}", "", text(&span["name"]), indent = depth * 2);
    let mut inside: Vec<_> =
        all.iter().filter(|other| other["parentSpanId"] == span["spanId"]).collect();
    inside.sort_by_key(|span| text(&span["startTimeUnixNano"]));
    inside.into_iter().for_each(|span| show_span(span, all, depth + 1));
}

/// Sends each request to the next connection.
pub struct RoundRobin {
    connections: [HttpClient; 2],
    next: AtomicUsize,
}

impl RoundRobin {
    pub fn new(connections: [HttpClient; 2]) -> Self {
        Self { connections, next: AtomicUsize::new(0) }
    }
}

impl Transport for RoundRobin {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[at].send(outgoing).await
    }
}
