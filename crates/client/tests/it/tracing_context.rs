//! The trace context that joins the rounds of a call, and the isolation of concurrent calls.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mrtr_client::TraceContext;
use mrtr_schema::elicitation::ElicitResult;
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Instrument as _, Level};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{LogBuffer, Reply, ScriptedServer};

fn input_required(state: &str, key: &str) -> Value {
    let form = json!({ "type": "object", "properties": { "n": { "type": "string" } } });
    let params = json!({ "message": "?", "requestedSchema": form });
    json!({ "resultType": "input_required", "requestState": state,
        "inputRequests": { key: { "method": "elicitation/create", "params": params } } })
}

/// Collects the log of this thread until the guard is dropped, with a line for each span that ends.
fn closed_spans(level: Level) -> (LogBuffer, (DefaultGuard, Dispatch)) {
    let buffer = LogBuffer::default();
    let writer = buffer.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    // With a single dispatcher, `tracing` caches the interest of the first thread that logs here,
    // which may be another test's thread without a subscriber. With a second one it asks each.
    let second = Dispatch::new(tracing_subscriber::registry());
    (buffer, (tracing::subscriber::set_default(subscriber), second))
}

/// Without the span of the request, a failure is recorded nowhere: the current span is one of the
/// application.
#[tokio::test]
async fn failure_is_not_recorded_on_the_span_of_the_application() {
    let (buffer, _guard) = closed_spans(Level::INFO);
    let server = ScriptedServer::new(|_| {
        Reply::Error(mrtr_schema::jsonrpc::ErrorObject::invalid_params("no"))
    });
    let client = server.client().build();
    let of_application = tracing::info_span!(
        "application",
        error.type = tracing::field::Empty,
        rpc.response.status_code = tracing::field::Empty,
    );
    client.call_tool("book", json!({})).instrument(of_application).await.unwrap_err();
    let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("application") && log.contains("close"), "{log}");
    assert!(!log.contains("32602"), "{log}");
}

/// Each request has a span inside the span of its call, and its `_meta` names the trace.
#[tokio::test]
async fn all_rounds_of_a_call_belong_to_one_trace() {
    let (buffer, _guard) = closed_spans(Level::DEBUG);
    let server = ScriptedServer::new(|received| {
        if received.params.get("requestState").is_none() {
            return Reply::Result(input_required("s", "a"));
        }
        Reply::Error(mrtr_schema::jsonrpc::ErrorObject::invalid_params("no"))
    });
    let requests = AtomicUsize::new(0);
    let client = server
        .client()
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({}))?))
        .trace_context(move || {
            let span = tracing::Span::current();
            assert_eq!(span.metadata().map(tracing::Metadata::name), Some("request"));
            let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
            let traceparent = format!("00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01");
            Some(TraceContext::new(traceparent).with_baggage("a=b"))
        })
        .build();
    client.call_tool("book", json!({})).await.unwrap_err();
    let traces: Vec<_> =
        server.received().iter().map(|received| received.meta["traceparent"].clone()).collect();
    assert_eq!(
        traces,
        [1, 2].map(|number| format!("00-0af7651916cd43dd8448eb211c80319c-{number:016x}-01"))
    );
    let log = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
    let closed: Vec<&str> = log.lines().filter(|line| line.contains("close")).collect();
    assert_eq!(closed.len(), 3, "{log}");
    for (line, id) in closed.iter().zip(["1", "2"]) {
        for part in [
            r#"call{otel.name="tools/call book (all rounds)" otel.kind="internal""#,
            r#":request{otel.name="tools/call book" otel.kind="client" mcp.method.name="tools/call""#,
            r#"gen_ai.tool.name="book""#,
            &format!("jsonrpc.request.id={id}"),
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
    assert!(
        closed[1].contains(r#"error.type="-32602""#) && !closed[0].contains("error.type"),
        "{log}"
    );
}

/// The server checks that no state, response or id of one call turns up in another.
#[tokio::test]
async fn concurrent_calls_do_not_share_state_responses_or_ids() {
    let ids = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&ids);
    let server = ScriptedServer::new(move |received| {
        let name = received.params["arguments"]["name"].as_str().unwrap_or_default().to_owned();
        assert!(seen.lock().unwrap().insert(received.id.clone()), "an id is used twice");
        let state = received.params.get("requestState").and_then(Value::as_str);
        let round = match state {
            None => 0,
            Some(state) => {
                let (of, round) = state.split_once('/').unwrap();
                assert_eq!(of, name, "state of another call");
                let responses = received.params["inputResponses"].as_object().unwrap();
                let key = format!("{name}-{round}");
                assert_eq!(
                    responses.keys().collect::<Vec<_>>(),
                    [&key],
                    "responses of another call or round"
                );
                assert_eq!(responses[&key]["content"]["n"], json!(format!("{name} {key}")));
                round.parse::<u32>().unwrap() + 1
            }
        };
        if round == 5 {
            return Reply::Result(json!({ "content": [{ "type": "text", "text": name }] }));
        }
        Reply::Result(input_required(&format!("{name}/{round}"), &format!("{name}-{round}")))
    });
    let client = server.client().on_form(async |context, _| {
        // The calls are answered in another order than they requested input.
        for _ in 0..context.key.len() % 7 {
            tokio::task::yield_now().await;
        }
        let name = context.key.split('-').next().unwrap_or_default();
        Ok(ElicitResult::accept(json!({ "n": format!("{name} {}", context.key) }))?)
    });
    let client = client.build();
    let calls = (0..100).map(|n| {
        let client = client.clone();
        async move {
            let name = format!("{:b}", n * 7);
            let result = client.call_tool("t", json!({ "name": name })).await.unwrap();
            assert_eq!(result.text(), name);
        }
    });
    futures_util::future::join_all(calls).await;
    assert_eq!(ids.lock().unwrap().len(), 600);
}
