//! Spans and metrics of requests.

use std::sync::{Arc, Mutex};

use mrtr_client::TraceContext;
use mrtr_server::{Context, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;
use tracing::Level;

use crate::support::{LogLines, Text, alice, call_tool, client, replica, send_request, with_meta};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

fn asking() -> Tool {
    Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        Ok(cx.elicit::<Text>("a", "?").await?.text)
    })
}

/// Each round is a span in the trace of its client, on every replica.
#[tokio::test]
async fn every_round_is_a_span_in_the_trace_of_the_client() {
    let (lines, _guard) = LogLines::collect_from(Level::DEBUG);
    let (clock, adopted) = (TestClock::default(), Arc::new(Mutex::new(Vec::new())));
    let server = || {
        let adopted = Arc::clone(&adopted);
        let adopt = move |span: &tracing::Span, context: &TraceContext| {
            assert_eq!(span.metadata().map(tracing::Metadata::name), Some("request"));
            adopted.lock().unwrap().push(context.clone());
        };
        replica(&clock).tool(asking()).trace_parent(adopt).build().unwrap()
    };
    let fleet = Replicas::new([server(), server()]).as_principal(alice());
    let context = TraceContext::new(PARENT).with_tracestate("a=b");
    let sent = context.clone();
    let (client, _) = client(fleet);
    let client = client.trace_context(move || Some(sent.clone())).build();
    client.call_tool("t", json!({})).await.unwrap();
    assert_eq!(*adopted.lock().unwrap(), [context.clone(), context]);
    let log = lines.text();
    let spans: Vec<&str> =
        log.lines().filter(|line| line.contains("mrtr::server: close")).collect();
    assert_eq!(spans.len(), 2, "{log}");
    for (line, (round, kind)) in spans.iter().zip([(1, "input_required"), (2, "complete")]) {
        for part in [
            r#"otel.name="tools/call t" otel.kind="server" mcp.method.name="tools/call""#,
            r#"gen_ai.operation.name="execute_tool" gen_ai.tool.name="t""#,
            r#"mcp.protocol.version="2026-07-28""#,
            &format!("mrtr.round={round}"),
            &format!("mrtr.result_type={kind:?}"),
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains("error.type"), "{line}");
    }

    // A malformed trace context is not adopted.
    let mut params = with_meta(json!({ "name": "t", "arguments": {} }));
    params["_meta"]["traceparent"] = json!("00-malformed");
    let fleet = Replicas::new([server()]).as_principal(alice());
    send_request(&fleet, "tools/call", params).await;
    assert_eq!(adopted.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_panic_of_the_trace_parent_hook_does_not_fail_the_request() {
    let (lines, _guard) = LogLines::collect_from(Level::DEBUG);
    let server = replica(&TestClock::default())
        .tool(Tool::new("t", "", async || "x"))
        .trace_parent(|_: &tracing::Span, _: &TraceContext| panic!("no exporter"));
    let fleet = Replicas::new([server.build().unwrap()]).as_principal(alice());
    let mut params = with_meta(json!({ "name": "t", "arguments": {} }));
    params["_meta"]["traceparent"] = json!(PARENT);
    let result = send_request(&fleet, "tools/call", params).await;
    assert_eq!(result["content"][0]["text"], "x", "{result}");
    assert!(lines.text().contains("the hook `trace_parent` panicked"), "{}", lines.text());
}

/// Subscribers at their default level, INFO, pay for no spans of requests of the server or the
/// client.
#[tokio::test]
async fn requests_are_no_spans_at_the_level_info() {
    for (level, closed) in [(Level::INFO, 0), (Level::DEBUG, 5)] {
        let (lines, _guard) = LogLines::collect_from(level);
        let server = replica(&TestClock::default()).tool(asking()).build().unwrap();
        let (client, _) = client(Replicas::new([server]).as_principal(alice()));
        client.build().call_tool("t", json!({})).await.unwrap();
        let log = lines.text();
        assert_eq!(log.lines().filter(|line| line.contains(" close ")).count(), closed, "{log}");
    }
}

/// Rejections are counted by reason and requests timed by kind; a client cannot invent label
/// values.
#[tokio::test]
async fn metrics_have_reasons_and_known_names_only() {
    let clock = TestClock::default();
    let failing = Tool::new("f", "", async |_: Context| -> mrtr_server::Result<_> {
        Err::<String, _>(mrtr_server::Error::new("It cannot be done."))
    });
    let server = replica(&clock).tool(asking()).tool(failing).build().unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let (lines, _guard) = LogLines::collect_from(Level::TRACE);
    let metrics = |what: &str| {
        let text = lines.text();
        let of_ours = text.lines().filter(|line| line.contains("mrtr::metrics: "));
        of_ours.filter(|line| line.contains(what)).map(str::to_owned).collect::<Vec<_>>()
    };
    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    let state = first["requestState"].as_str().unwrap();
    clock.advance(86_400);
    for (state, reason) in [("v1.AAAA", "malformed"), (state, "expired")] {
        call_tool(&fleet, "t", json!({}), json!({ "requestState": state })).await;
        let counted = metrics("monotonic_counter.mrtr.state.rejections=1");
        let counted: Vec<_> =
            counted.iter().filter(|line| line.contains(&format!("reason={reason:?}"))).collect();
        assert_eq!(counted.len(), 1, "{reason}: {}", lines.text());
    }
    call_tool(&fleet, "f", json!({}), json!({})).await;
    call_tool(&fleet, "made-up", json!({}), json!({})).await;
    send_request(&fleet, "made/up", with_meta(json!({}))).await;
    let timed = metrics("histogram.mcp.server.operation.duration=");
    let expected = [
        r#"mcp.method.name="tools/call" gen_ai.tool.name="t" mrtr.result_type="input_required""#,
        r#"mcp.method.name="tools/call" gen_ai.tool.name="t" error.type="-32602""#,
        r#"mcp.method.name="tools/call" gen_ai.tool.name="t" error.type="-32602""#,
        r#"mcp.method.name="tools/call" gen_ai.tool.name="f" error.type="tool_error" mrtr.result_type="complete""#,
        r#"mcp.method.name="tools/call" error.type="-32602""#,
        r#"mcp.method.name="_OTHER" error.type="-32601""#,
    ];
    assert_eq!(timed.len(), expected.len(), "{timed:#?}");
    for (line, end) in timed.iter().zip(expected) {
        assert!(line.ends_with(end), "{end} in {line}");
    }
    assert!(!timed.concat().contains("made"), "{timed:#?}");
}

/// Requests whose clients disconnect are measured, too.
#[tokio::test]
async fn cancelled_request_is_measured() {
    let clock = TestClock::default();
    let slow = Tool::new("s", "", async |_: Context| -> mrtr_server::Result<_> {
        std::future::pending::<()>().await;
        Ok("never")
    });
    let fleet = Replicas::new([replica(&clock).tool(slow).build().unwrap()]).as_principal(alice());
    let (lines, _guard) = LogLines::collect_from(Level::TRACE);
    let given_up = async { tokio::task::yield_now().await };
    tokio::select! {
        biased;
        _ = call_tool(&fleet, "s", json!({}), json!({})) => unreachable!(),
        () = given_up => {}
    }
    let log = lines.text();
    let timed = log.lines().find(|line| line.contains("histogram.mcp.server.operation.duration="));
    assert!(timed.is_some_and(|line| line.ends_with(r#"error.type="cancelled""#)), "{log}");
}
