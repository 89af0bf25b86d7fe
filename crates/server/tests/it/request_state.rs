//! What a server refuses, and what it says then.

use std::io::Write;
use std::sync::{Arc, Mutex};

use mrtr_schema::jsonrpc::{Params, Request, RequestId};
use mrtr_server::{Context, KeyRing, Principal, Prompt, Resource, Server, Tool};
use mrtr_testkit::{Replicas, TestClock};
use mrtr_transport::{OutgoingRequest, Transport as _};
use serde_json::{Value, json};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::format::FmtSpan;

use crate::replicas::{Text, alice, replica, ring, secret};

/// Sends one leg, and returns the result, or the error under `error`.
pub(crate) async fn send(fleet: &Replicas, tool: &str, arguments: Value, more: Value) -> Value {
    let mut params = with_meta(json!({ "name": tool, "arguments": arguments }));
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    raw_send(fleet, "tools/call", params).await
}

/// Parameters with the `_meta` of a client that shows forms.
pub(crate) fn with_meta(mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    params.as_object_mut().unwrap().insert("_meta".to_owned(), meta);
    params
}

pub(crate) async fn raw_send(fleet: &Replicas, method: &str, params: Value) -> Value {
    let params = Params::new(&params).unwrap();
    let request = Request::new(RequestId::Number(1), method, Some(params));
    let response = fleet.send(OutgoingRequest::new(request)).await.unwrap();
    match response.outcome {
        Ok(result) => serde_json::from_str(result.get()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

fn tools(builder: mrtr_server::ServerBuilder) -> Server {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Args {
        /// Any number
        n: Option<u64>,
    }
    let ask = |name: &str| {
        Tool::new(name, "", async |cx: Context, args: Args| -> mrtr_server::Result<_> {
            let text = cx.elicit::<Text>("a", "?").await?.text;
            Ok(format!("{text} {:?}", args.n))
        })
    };
    builder.tool(ask("t")).tool(ask("u")).build().unwrap()
}

/// Collects what is logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Collects until the guard is dropped.
    pub(crate) fn collect() -> (Self, (DefaultGuard, Dispatch)) {
        Self::collect_from(Level::INFO)
    }

    /// The same, from this level on, with a line for the end of each span.
    pub(crate) fn collect_from(level: Level) -> (Self, (DefaultGuard, Dispatch)) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_span_events(FmtSpan::CLOSE)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .finish();
        // With a single subscriber, `tracing` lets the thread that comes first decide for all whether a line is
        // of interest.
        let second = Dispatch::new(tracing_subscriber::registry());
        (lines, (tracing::subscriber::set_default(subscriber), second))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn frozen() -> Value {
    json!({ "error": {
        "code": -32602,
        "message": "Invalid or expired requestState",
        "data": { "reason": "invalid_request_state" },
    } })
}

/// Every cause gets one answer, and only the log says which it was.
#[tokio::test]
async fn a_state_that_is_not_accepted_is_refused_with_one_answer_and_named_in_the_log() {
    let (lines, _guard) = Lines::collect();

    let clock = TestClock::default();
    let fleet = |builder: mrtr_server::ServerBuilder, principal: Option<Principal>| {
        let fleet = Replicas::new([tools(builder)]);
        match principal {
            Some(principal) => fleet.as_principal(principal),
            None => fleet,
        }
    };
    let home = fleet(replica(&clock), Some(alice()));
    let arguments = json!({ "n": 9_007_199_254_740_993_u64 });
    let first = send(&home, "t", arguments.clone(), json!({})).await;
    let state = first["requestState"].as_str().unwrap();
    let answer = json!({ "a": { "action": "accept", "content": { "text": "x" } } });
    let retry = |state: &str| json!({ "requestState": state, "inputResponses": answer });

    let mut expect = Vec::new();
    let mut refused = |outcome: Value, reason: &'static str| {
        assert_eq!(outcome, frozen(), "{reason}");
        expect.push(reason);
    };
    // In the middle, and cut where a whole number of bytes ends.
    let letter = if state.as_bytes()[90] == b'A' { "B" } else { "A" };
    let flipped = format!("{}{letter}{}", &state[..90], &state[91..]);
    refused(send(&home, "t", arguments.clone(), retry(&flipped)).await, "forged");
    let cut = 6 + (state.len() - 6) / 4 * 4 - 4;
    refused(send(&home, "t", arguments.clone(), retry(&state[..cut])).await, "forged");
    refused(send(&home, "t", arguments.clone(), retry("x")).await, "malformed");
    refused(send(&home, "t", arguments.clone(), retry("")).await, "malformed");
    refused(send(&home, "u", arguments.clone(), retry(state)).await, "wrong_target");
    // As doubles the two numbers would be equal.
    refused(
        send(&home, "t", json!({ "n": 9_007_199_254_740_992_u64 }), retry(state)).await,
        "wrong_arguments",
    );
    refused(send(&home, "t", json!({}), retry(state)).await, "wrong_arguments");

    let bob = fleet(replica(&clock), Some(Principal::new("https://login.example", "bob")));
    refused(send(&bob, "t", arguments.clone(), retry(state)).await, "wrong_principal");
    let nobody = fleet(replica(&clock).allow_anonymous(), None);
    refused(send(&nobody, "t", arguments.clone(), retry(state)).await, "wrong_principal");

    let other = |ring: KeyRing| {
        Server::builder("test", "1").require_principal().key_ring(ring).clock(clock.clone())
    };
    let audience = KeyRing::builder("https://other.example/mcp").active(secret(0)).build().unwrap();
    refused(
        send(&fleet(other(audience), Some(alice())), "t", arguments.clone(), retry(state)).await,
        "unknown_key",
    );
    let key = KeyRing::builder("https://test.example/mcp").active(secret(9)).build().unwrap();
    refused(
        send(&fleet(other(key), Some(alice())), "t", arguments.clone(), retry(state)).await,
        "unknown_key",
    );

    assert_eq!(
        send(&home, "t", arguments.clone(), retry(state)).await["content"][0]["text"],
        "x Some(9007199254740993)"
    );
    clock.advance(600);
    refused(send(&home, "t", arguments.clone(), retry(state)).await, "expired");

    let log = lines.text();
    let logged: Vec<_> =
        log.lines().filter_map(|line| line.split("reason=\"").nth(1)?.split('"').next()).collect();
    assert_eq!(logged, expect);
    assert!(!log.contains(state), "a state must not be logged");
    let book = include_str!("../../../../docs/deploying.md");
    let row = book.lines().find(|line| line.starts_with("| `mrtr.state.refusals`")).unwrap();
    for reason in expect {
        assert!(row.contains(&format!("`{reason}`")), "{reason} is not in the book");
    }
}

#[tokio::test]
async fn a_flow_ends_with_its_lifetime_however_fresh_its_state() {
    let clock = TestClock::default();
    let tool = Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        for n in 0..20 {
            cx.elicit::<Text>(format!("q{n}"), "?").await?;
        }
        Ok("done")
    });
    let server = replica(&clock).tool(tool).build().unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let mut last = send(&fleet, "t", json!({}), json!({})).await;
    for n in 0..6 {
        clock.advance(599);
        let answer = json!({ format!("q{n}"): { "action": "accept", "content": { "text": "x" } } });
        last = send(
            &fleet,
            "t",
            json!({}),
            json!({ "requestState": last["requestState"], "inputResponses": answer }),
        )
        .await;
    }
    assert!(last["inputRequests"].is_object(), "59 minutes and 54 seconds are within the hour");
    clock.advance(6);
    assert_eq!(
        send(&fleet, "t", json!({}), json!({ "requestState": last["requestState"] })).await,
        frozen()
    );
}

#[tokio::test]
async fn requests_that_are_wrong_are_told_what_is_wrong() {
    let clock = TestClock::default();
    let fleet = Replicas::new([tools(replica(&clock).allow_anonymous())]);
    let meta = |key: &str| {
        let mut meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        meta.as_object_mut().unwrap().shift_remove(key);
        json!({ "_meta": meta })
    };
    let error = |outcome: Value| {
        let error = outcome["error"].clone();
        (
            error["code"].as_i64().unwrap_or_default(),
            error["message"].as_str().unwrap_or_default().to_owned(),
        )
    };
    for (method, params, code, part) in [
        ("server/discover", json!({}), -32602, "io.modelcontextprotocol/protocolVersion"),
        (
            "server/discover",
            meta("io.modelcontextprotocol/protocolVersion"),
            -32602,
            "protocolVersion",
        ),
        (
            "server/discover",
            meta("io.modelcontextprotocol/clientCapabilities"),
            -32602,
            "clientCapabilities",
        ),
        ("nothing/here", meta(""), -32601, "nothing/here"),
        ("prompts/list", meta(""), -32601, "prompts/list"),
        ("initialize", meta(""), -32601, "2026-07-28"),
    ] {
        let (got, message) = error(raw_send(&fleet, method, params).await);
        assert_eq!(got, code, "{method}: {message}");
        assert!(message.contains(part), "{method}: {message}");
    }
    let outcome = raw_send(
        &fleet,
        "server/discover",
        json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "1900-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    } }),
    )
    .await;
    assert_eq!(outcome["error"]["code"], -32022);
    assert_eq!(
        outcome["error"]["data"],
        json!({ "supported": ["2026-07-28"], "requested": "1900-01-01" })
    );

    for (tool, more, code, part) in [
        ("nope", json!({}), -32602, "Unknown tool: \"nope\""),
        ("t", json!({ "arguments": [1] }), -32602, "`arguments` must be an object"),
        ("t", json!({ "inputResponses": null }), -32602, "inputResponses"),
        (
            "t",
            json!({ "inputResponses": { "a": 5 } }),
            -32602,
            "the response to \"a\" must be an object",
        ),
        ("t", json!({ "requestState": 5 }), -32602, "requestState"),
    ] {
        let (got, message) = error(send(&fleet, tool, json!({}), more).await);
        assert_eq!(got, code, "{message}");
        assert!(message.contains(part), "{message}");
    }
    // Arguments of the wrong type are for the model to mend.
    let result = send(&fleet, "t", json!({ "n": "three" }), json!({})).await;
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Invalid arguments: n: invalid type: string \"three\""), "{text}");
}

#[tokio::test]
async fn anonymous_callers_are_served_only_where_that_was_said() {
    let clock = TestClock::default();
    let closed = Replicas::new([tools(replica(&clock))]);
    let outcome = send(&closed, "t", json!({}), json!({})).await;
    assert_eq!(outcome["error"]["code"], -32600);
    let open = Replicas::new([tools(replica(&clock).allow_anonymous())]);
    assert!(send(&open, "t", json!({}), json!({})).await["requestState"].is_string());
}

#[test]
fn keys_and_states_are_not_printed() {
    let server = tools(Server::builder("test", "1").key_ring(ring()).allow_anonymous());
    let printed = format!("{server:?} {:?} {:?}", ring(), secret(0));
    assert!(!printed.contains("[0, 1, 2"), "{printed}");
    assert!(printed.contains("Secret(…)"), "{printed}");
}

#[test]
fn servers_that_cannot_work_are_not_built() {
    let server = || Server::builder("s", "1").require_principal().ephemeral_key();
    let tool = |name: &str| Tool::new(name, "", async |_: Context| "x");
    let text = Tool::new("t", "", async |_: Context, text: String| text);
    let prompt = || Prompt::new("p", "", async |_: Context| "x");
    let resource = |uri: &str| Resource::new(uri, "r", async |_: Context| "x");
    let with_schema = |more: Value| {
        let mut schema = json!({ "type": "object" }).as_object().unwrap().clone();
        schema.extend(more.as_object().unwrap().clone());
        server().tool(tool("t").input_schema(schema))
    };
    let with_icon = |src: &str, size: &str, theme: &str| {
        let icon = json!({ "src": src, "sizes": [size], "theme": theme });
        server().tool(tool("t").icons([serde_json::from_value(icon).unwrap()]))
    };
    with_icon("data:image/png;base64,AA==", "any", "dark").build().unwrap();
    let whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": { "a": {} },
        "properties": { "a": { "$ref": "#/$defs/a" }, "b": { "const": { "$ref": "https://a.example" } } },
    });
    with_schema(whole).tool(tool(&"a".repeat(128))).build().unwrap();
    for (builder, part) in [
        (server().tool(tool("a")).tool(tool("a")), "duplicate tool \"a\""),
        (server().tool(tool("a b")), "invalid tool name \"a b\": use 1 to 128"),
        (server().tool(tool("")), "invalid tool name \"\": use 1 to 128"),
        (server().tool(tool(&"a".repeat(129))), "use 1 to 128"),
        (server().tool(text), "must be a struct"),
        (server().prompt(prompt()).prompt(prompt()), "duplicate prompt \"p\""),
        (
            with_schema(
                json!({ "properties": { "a": { "type": "object", "x-mcp-header": "A" } } }),
            ),
            "invalid `x-mcp-header`",
        ),
        (with_schema(json!({ "$schema": "http://json-schema.org/draft-07/schema#" })), "draft-07"),
        (with_schema(json!({ "$schema": 5 })), "dialect"),
        (
            with_schema(json!({ "properties": { "a": { "$ref": "https://a.example/s.json" } } })),
            "external reference \"https://a.example/s.json\"",
        ),
        (
            with_schema(json!({ "allOf": [{ "$ref": "https://a.example/s.json" }] })),
            "external reference \"https://a.example/s.json\"",
        ),
        (with_icon("javascript:alert(1)", "48x48", "light"), "neither https nor data"),
        (with_icon("i.png", "48x48", "light"), "no scheme"),
        (with_icon("https://a.example/i", "large", "light"), "size \"large\" is neither"),
        (with_icon("https://a.example/i", "any", "blue"), "theme \"blue\""),
        (server().resource(resource("no uri")), "invalid resource URI"),
        (server().resource(resource("a:b c")), "invalid resource URI"),
        (server().resource(resource("/relative")), "invalid resource URI"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
