//! The audit log.

use std::sync::{Arc, Mutex};

use mrtr_middleware::audit::{Audit, AuditOutcome, AuditRecord};
use mrtr_schema::jsonrpc::Params;
use mrtr_server::middleware::from_fn;
use mrtr_server::{Context, Error, Result, Tool};
use mrtr_testkit::LogLines;
use serde_json::json;
use serde_json::value::RawValue;

use crate::support::{Name, answer, ask, call, principal, send, send_raw, server};

#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<AuditRecord>>>);

impl Records {
    fn layer(&self) -> Audit {
        let records = self.clone();
        Audit::new().sink(move |record| records.0.lock().unwrap().push(record.clone()))
    }

    fn take(&self) -> Vec<AuditRecord> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn outcomes(&self) -> Vec<(bool, AuditOutcome)> {
        self.take().iter().map(|record| (record.is_first_round, record.outcome)).collect()
    }
}

fn fails() -> Tool {
    Tool::new("fails", "", async |_: Context| -> Result<String> { Err(Error::new("no")) })
}

#[tokio::test]
async fn each_round_is_recorded_with_its_end() {
    let records = Records::default();
    let server = server(|server| server.tool(ask()).tool(fails()).layer(records.layer()));
    let first = call(&server, Some("alice"), "ask", json!({})).await.unwrap();
    call(&server, Some("alice"), "ask", answer(&first)).await.unwrap();
    call(&server, Some("bob"), "ask", answer(&first)).await.unwrap_err();
    call(&server, None, "fails", json!({})).await.unwrap();
    let seen = records.take();
    let outcomes: Vec<_> = seen.iter().map(|record| record.outcome).collect();
    assert_eq!(
        outcomes,
        [
            AuditOutcome::InputRequired,
            AuditOutcome::Complete { is_error: false },
            AuditOutcome::Error { code: -32602 },
            AuditOutcome::Complete { is_error: true },
        ]
    );
    assert_eq!(seen[0].principal, Some(principal("alice")));
    assert_eq!(seen[3].principal, None);
    let names: Vec<_> = seen.iter().map(|record| record.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["ask", "ask", "ask", "fails"]);
    let first: Vec<_> = seen.iter().map(|record| record.is_first_round).collect();
    assert_eq!(first, [true, false, false, true]);
}

#[tokio::test]
async fn a_request_that_is_dropped_was_cancelled() {
    let records = Records::default();
    let slow = Tool::new("slow", "", async || {
        std::future::pending::<()>().await;
        "never"
    });
    let server = server(|server| server.tool(slow.layer(records.layer())));
    let mut pending = Box::pin(call(&server, None, "slow", json!({})));
    std::future::poll_fn(|cx| {
        assert!(pending.as_mut().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    assert!(records.take().is_empty());
    drop(pending);
    assert_eq!(records.outcomes(), [(true, AuditOutcome::Cancelled)]);
}

#[tokio::test]
async fn a_panic_behind_the_layer_is_an_error_and_one_of_the_sink_changes_nothing() {
    let records = Records::default();
    let inner = from_fn(|_, _| async { panic!("oops") });
    let tool = Tool::new("t", "", async || "x").layer(inner).layer(records.layer());
    let panics = Audit::new().sink(|_| panic!("no disk"));
    let other = Tool::new("other", "", async || "x").layer(panics.clone());
    let both = Tool::new("both", "", async || "x").layer(from_fn(|_, _| async { panic!("oops") }));
    let server = server(|server| server.tool(tool).tool(other).tool(both.layer(panics)));
    let error = call(&server, None, "t", json!({})).await.unwrap_err();
    assert_eq!(error.code, -32603);
    assert_eq!(records.outcomes(), [(true, AuditOutcome::Error { code: -32603 })]);
    assert!(call(&server, None, "other", json!({})).await.is_ok());
    assert_eq!(call(&server, None, "both", json!({})).await.unwrap_err().code, -32603);
}

#[tokio::test]
async fn only_named_arguments_are_recorded_and_long_ones_are_cut() {
    let records = Records::default();
    let audit = records.layer().arguments(["to", "note", "absent"]);
    let tool = Tool::new("t", "", async |_: Context| "x").layer(audit);
    let server = server(|server| server.tool(tool));
    let note = "n".repeat(1024);
    let arguments = json!({ "to": ["a", 1], "password": "hunter2", "note": note });
    call(&server, None, "t", json!({ "arguments": arguments })).await.unwrap();
    let recorded = records.take().remove(0).arguments;
    assert_eq!(json!(recorded), json!({ "to": ["a", 1], "note": "[too long]" }));
}

/// Otherwise a caller could hide an argument by spaces between its tokens.
#[tokio::test]
async fn padded_arguments_are_recorded() {
    let records = Records::default();
    let tool = Tool::new("t", "", async |_: Context| "x").layer(records.layer().arguments(["to"]));
    let server = server(|server| server.tool(tool));
    let padding = " ".repeat(2_000);
    let params = format!(
        r#"{{"name":"t","arguments":{{"to":[{padding}"mallory"]}},"_meta":{{
            "io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
    );
    let params: Box<RawValue> = serde_json::from_str(&params).unwrap();
    send_raw(&server, None, "tools/call", Params::new(&params).unwrap()).await.unwrap();
    let recorded = records.take().remove(0).arguments;
    assert_eq!(json!(recorded), json!({ "to": ["mallory"] }));
}

/// The tool may get the digits: two callers must not look the same.
#[tokio::test]
async fn numbers_with_many_digits_are_recorded_as_text() {
    let records = Records::default();
    let audit = records.layer().arguments(["a", "b", "c", "d"]);
    let tool = Tool::new("t", "", async |_: Context| "x").layer(audit);
    let server = server(|server| server.tool(tool));
    let params = r#"{"name":"t","arguments":{
            "a":100000000000000000001,"b":[ 1.0, { "x": "\" 1", "y": -0.1234567890123456789e5 } ],
            "c":[18446744073709551615,-9223372036854775808,1.5e300,0.30000000000000004,
                "123456789012345678901"],
            "d":true},
        "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{}}}"#;
    let params: Box<RawValue> = serde_json::from_str(params).unwrap();
    send_raw(&server, None, "tools/call", Params::new(&params).unwrap()).await.unwrap();
    let recorded = records.take().remove(0).arguments;
    let expected = json!({
        "a": "100000000000000000001",
        "b": r#"[1.0,{"x":"\" 1","y":-0.1234567890123456789e5}]"#,
        "c": [u64::MAX, i64::MIN, 1.5e300, 0.300_000_000_000_000_04, "123456789012345678901"],
        "d": true,
    });
    assert_eq!(json!(recorded), expected);
}

/// The member name makes a JSON library fail where it builds a tree.
#[tokio::test]
async fn unreadable_arguments_do_not_hide_the_others() {
    let records = Records::default();
    let audit = records.layer().arguments(["to", "note"]);
    let tool = Tool::new("t", "", async |_: Context| "x").layer(audit);
    let server = server(|server| server.tool(tool));
    let trap = json!({ "$serde_json::private::RawValue": 1 });
    let arguments = json!({ "to": "mallory", "note": trap, "other": trap });
    let _ = call(&server, None, "t", json!({ "arguments": arguments })).await;
    let recorded = records.take().remove(0).arguments;
    assert_eq!(json!(recorded), json!({ "to": "mallory", "note": "[unreadable]" }));
}

/// It has variables of templates, which may be secret.
#[tokio::test]
async fn query_of_a_resource_is_not_recorded() {
    let (lines, _collecting) = LogLines::collect_from(tracing::Level::DEBUG);
    let records = Records::default();
    let server = server(|server| server.layer(records.layer()).layer(Audit::new()));
    for (uri, recorded) in [
        ("patients://search?ssn=1&token=x", "patients://search"),
        ("patients://a#b", "patients://a"),
        ("patients://a", "patients://a"),
    ] {
        send(&server, "resources/read", json!({ "uri": uri })).await.unwrap_err();
        assert_eq!(records.take()[0].name.as_deref(), Some(recorded));
    }
    // Nor by the spans around the lines.
    let log = lines.text();
    assert!(log.contains("patients://search") && !log.contains("token=x"), "{log}");
}

/// They are no arguments.
#[tokio::test]
async fn arguments_that_are_null_are_not_recorded() {
    let records = Records::default();
    let tool = Tool::new("t", "", async |_: Context| "x").layer(records.layer().arguments(["to"]));
    let server = server(|server| server.tool(tool));
    call(&server, None, "t", json!({ "arguments": null })).await.unwrap();
    assert_eq!(json!(records.take().remove(0).arguments), json!({}));
}

/// Names come from clients, even of tools that do not exist.
#[tokio::test]
async fn long_names_are_cut() {
    let records = Records::default();
    let server = server(|server| server.tool(ask()).layer(records.layer()));
    call(&server, None, &"ü".repeat(10_000), json!({})).await.unwrap_err();
    assert_eq!(records.take()[0].name.as_deref(), Some(&*"ü".repeat(256)));
}

#[tokio::test]
async fn log_lines_have_fields_and_no_answers() {
    let (lines, _collecting) = LogLines::collect();
    let audit = Audit::new().arguments(["name"]);
    let greet = Tool::new("greet", "", async |_: Context, name: Name| name.name);
    let server = server(|server| server.tool(greet).tool(ask()).layer(audit));
    let arguments = json!({ "arguments": { "name": "Zoe\nlevel=ERROR" } });
    call(&server, Some("alice"), "greet", arguments).await.unwrap();
    let first = call(&server, Some("alice"), "ask", json!({})).await.unwrap();
    call(&server, Some("alice"), "ask", answer(&first)).await.unwrap();
    let log = lines.text();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("mrtr::audit")).collect();
    assert_eq!(lines.len(), 3, "{log}");
    for part in [
        r#"method="tools/call" name="greet""#,
        r#"issuer="https://login.example" subject="alice""#,
        "first_round=true",
        r#"arguments="{\"name\":\"Zoe\\nlevel=ERROR\"}""#,
        r#"outcome="complete" duration_ms="#,
    ] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    assert!(lines[1].contains(r#"outcome="input_required""#));
    assert!(lines[2].contains("first_round=false") && !log.contains("Ann"), "{log}");
}
