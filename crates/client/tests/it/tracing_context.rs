//! What joins the rounds of a call for whoever looks on, and what keeps calls apart.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mrtr_client::TraceContext;
use mrtr_schema::elicitation::ElicitResult;
use serde_json::{Value, json};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{Answer, Lines, Scripted};

fn asks(state: &str, key: &str) -> Value {
    let form = json!({ "type": "object", "properties": { "n": { "type": "string" } } });
    let params = json!({ "message": "?", "requestedSchema": form });
    json!({ "resultType": "input_required", "requestState": state,
        "inputRequests": { key: { "method": "elicitation/create", "params": params } } })
}

/// Each request has a span in the span of its call, and says in `_meta` which trace that is.
#[tokio::test]
async fn all_rounds_of_a_call_are_one_trace() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // With a single subscriber, the thread that comes first decides for all whether a span is of interest.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let server = Scripted::new(|asked| {
        if asked.params.get("requestState").is_none() {
            return Answer::Result(asks("s", "a"));
        }
        Answer::Error(mrtr_schema::jsonrpc::ErrorObject::invalid_params("no"))
    });
    let legs = AtomicUsize::new(0);
    let client = server
        .client()
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({}))?))
        .trace_context(move || {
            let span = tracing::Span::current();
            assert_eq!(span.metadata().map(tracing::Metadata::name), Some("request"));
            let leg = legs.fetch_add(1, Ordering::SeqCst) + 1;
            let traceparent = format!("00-0af7651916cd43dd8448eb211c80319c-{leg:016x}-01");
            Some(TraceContext::new(traceparent).with_baggage("a=b"))
        })
        .build();
    client.call_tool("book", json!({})).await.unwrap_err();
    let traces: Vec<_> =
        server.asked().iter().map(|asked| asked.meta["traceparent"].clone()).collect();
    assert_eq!(
        traces,
        [1, 2].map(|leg| format!("00-0af7651916cd43dd8448eb211c80319c-{leg:016x}-01"))
    );
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
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

/// A hundred calls at once over one connection: no state, answer or id of one turns up in another. The server looks for it.
#[tokio::test]
async fn a_hundred_calls_keep_apart() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let ids = Arc::clone(&seen);
    let server = Scripted::new(move |asked| {
        let who = asked.params["arguments"]["who"].as_str().unwrap_or_default().to_owned();
        assert!(ids.lock().unwrap().insert(asked.id.clone()), "an id is used twice");
        let state = asked.params.get("requestState").and_then(Value::as_str);
        let round = match state {
            None => 0,
            Some(state) => {
                let (of, round) = state.split_once('/').unwrap();
                assert_eq!(of, who, "a state of another call");
                let responses = asked.params["inputResponses"].as_object().unwrap();
                let key = format!("{who}-{round}");
                assert_eq!(
                    responses.keys().collect::<Vec<_>>(),
                    [&key],
                    "answers of another call or round"
                );
                assert_eq!(responses[&key]["content"]["n"], json!(format!("{who} {key}")));
                round.parse::<u32>().unwrap() + 1
            }
        };
        if round == 5 {
            return Answer::Result(json!({ "content": [{ "type": "text", "text": who }] }));
        }
        Answer::Result(asks(&format!("{who}/{round}"), &format!("{who}-{round}")))
    });
    let client = server.client().on_form(async |question, _| {
        // The answers of all calls come in another order than the questions.
        for _ in 0..question.key.len() % 7 {
            tokio::task::yield_now().await;
        }
        let who = question.key.split('-').next().unwrap_or_default();
        Ok(ElicitResult::accept(json!({ "n": format!("{who} {}", question.key) }))?)
    });
    let client = client.build();
    let calls = (0..100).map(|n| {
        let client = client.clone();
        async move {
            let who = format!("{:b}", n * 7);
            let result = client.call_tool("t", json!({ "who": who })).await.unwrap();
            assert_eq!(result.text(), who);
        }
    });
    futures_util::future::join_all(calls).await;
    assert_eq!(seen.lock().unwrap().len(), 600);
}
