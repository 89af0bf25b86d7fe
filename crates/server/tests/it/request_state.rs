//! Rejected requests: their responses, and their reasons in the log.

use std::sync::Arc;

use mrtr_schema::content::Annotations;
use mrtr_schema::resource::{Resource as WireResource, ResourceTemplate as WireTemplate};
use mrtr_server::manual::{ManualContext, ManualOutput};
use mrtr_server::{
    Context, KeyRing, Principal, Prompt, Resource, ResourceTemplate, Server, Tool, ToolOutput,
};
use mrtr_testkit::{Replicas, TestClock};
use mrtr_transport::{IncomingRequest, NotificationSender, RequestHandler as _};
use serde_json::{Value, json};

use crate::support::{
    LogLines, Text, alice, call_tool, invalid_state, replica, request, ring, secret, send_request,
    with_meta,
};

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

/// All causes share one response; only the log names the cause.
#[tokio::test]
async fn rejected_states_get_one_response_and_the_log_names_the_reason() {
    let (lines, _guard) = LogLines::collect();

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
    let first = call_tool(&home, "t", arguments.clone(), json!({})).await;
    let state = first["requestState"].as_str().unwrap();
    let answer = json!({ "a": { "action": "accept", "content": { "text": "x" } } });
    let retry = |state: &str| json!({ "requestState": state, "inputResponses": answer });

    let mut expect = Vec::new();
    let mut refused = |outcome: Value, reason: &'static str| {
        assert_eq!(outcome, invalid_state(), "{reason}");
        expect.push(reason);
    };
    // One letter changed in the middle, and a cut at a whole number of bytes.
    let letter = if state.as_bytes()[90] == b'A' { "B" } else { "A" };
    let flipped = format!("{}{letter}{}", &state[..90], &state[91..]);
    refused(call_tool(&home, "t", arguments.clone(), retry(&flipped)).await, "forged");
    let cut = 6 + (state.len() - 6) / 4 * 4 - 4;
    refused(call_tool(&home, "t", arguments.clone(), retry(&state[..cut])).await, "forged");
    refused(call_tool(&home, "t", arguments.clone(), retry("x")).await, "malformed");
    refused(call_tool(&home, "t", arguments.clone(), retry("")).await, "malformed");
    refused(call_tool(&home, "u", arguments.clone(), retry(state)).await, "wrong_target");
    // The two numbers would be equal as doubles.
    refused(
        call_tool(&home, "t", json!({ "n": 9_007_199_254_740_992_u64 }), retry(state)).await,
        "wrong_arguments",
    );
    refused(call_tool(&home, "t", json!({}), retry(state)).await, "wrong_arguments");

    let bob = fleet(replica(&clock), Some(Principal::new("https://login.example", "bob")));
    refused(call_tool(&bob, "t", arguments.clone(), retry(state)).await, "wrong_principal");
    let anonymous = fleet(replica(&clock).allow_anonymous(), None);
    refused(call_tool(&anonymous, "t", arguments.clone(), retry(state)).await, "wrong_principal");

    let other = |ring: KeyRing| {
        Server::builder("test", "1").require_principal().key_ring(ring).clock(clock.clone())
    };
    let audience = KeyRing::builder("https://other.example/mcp").active(secret(0)).build().unwrap();
    refused(
        call_tool(&fleet(other(audience), Some(alice())), "t", arguments.clone(), retry(state))
            .await,
        "unknown_key",
    );
    let key = KeyRing::builder("https://test.example/mcp").active(secret(9)).build().unwrap();
    refused(
        call_tool(&fleet(other(key), Some(alice())), "t", arguments.clone(), retry(state)).await,
        "unknown_key",
    );

    assert_eq!(
        call_tool(&home, "t", arguments.clone(), retry(state)).await["content"][0]["text"],
        "x Some(9007199254740993)"
    );
    clock.advance(600);
    refused(call_tool(&home, "t", arguments.clone(), retry(state)).await, "expired");

    let log = lines.text();
    let logged: Vec<_> =
        log.lines().filter_map(|line| line.split("reason=\"").nth(1)?.split('"').next()).collect();
    assert_eq!(logged, expect);
    assert!(!log.contains(state), "a state must not be logged");
    let docs = include_str!("../../../mrtr/src/guide/deploying.md");
    let row = docs.lines().find(|line| line.starts_with("| `mrtr.state.rejections`")).unwrap();
    for reason in expect {
        assert!(row.contains(&format!("`{reason}`")), "{reason} is missing in docs/deploying.md");
    }
}

#[tokio::test]
async fn call_timeout_ends_a_call_however_fresh_its_state() {
    let clock = TestClock::default();
    let tool = Tool::new("t", "", async |cx: Context| -> mrtr_server::Result<_> {
        for n in 0..20 {
            cx.elicit::<Text>(format!("q{n}"), "?").await?;
        }
        Ok("done")
    });
    let server = replica(&clock).tool(tool).build().unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    let mut last = call_tool(&fleet, "t", json!({}), json!({})).await;
    for n in 0..6 {
        clock.advance(599);
        let answer = json!({ format!("q{n}"): { "action": "accept", "content": { "text": "x" } } });
        last = call_tool(
            &fleet,
            "t",
            json!({}),
            json!({ "requestState": last["requestState"], "inputResponses": answer }),
        )
        .await;
    }
    assert!(last["inputRequests"].is_object(), "59 min 54 s are within the hour");
    clock.advance(6);
    assert_eq!(
        call_tool(&fleet, "t", json!({}), json!({ "requestState": last["requestState"] })).await,
        invalid_state()
    );
}

#[tokio::test]
async fn invalid_requests_get_an_error_that_names_the_mistake() {
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
        let (got, message) = error(send_request(&fleet, method, params).await);
        assert_eq!(got, code, "{method}: {message}");
        assert!(message.contains(part), "{method}: {message}");
    }
    let outcome = send_request(
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
        let (got, message) = error(call_tool(&fleet, tool, json!({}), more).await);
        assert_eq!(got, code, "{message}");
        assert!(message.contains(part), "{message}");
    }
    // Arguments of the wrong type are a tool error, which the model can correct.
    let result = call_tool(&fleet, "t", json!({ "n": "three" }), json!({})).await;
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Invalid arguments: n: invalid type: string \"three\""), "{text}");
}

#[tokio::test]
async fn anonymous_callers_are_rejected_unless_the_server_allows_them() {
    let clock = TestClock::default();
    let closed = Replicas::new([tools(replica(&clock))]);
    let outcome = call_tool(&closed, "t", json!({}), json!({})).await;
    assert_eq!(outcome["error"]["code"], -32600);
    let open = Replicas::new([tools(replica(&clock).allow_anonymous())]);
    assert!(call_tool(&open, "t", json!({}), json!({})).await["requestState"].is_string());
}

#[test]
fn debug_output_hides_keys() {
    let server = tools(Server::builder("test", "1").key_ring(ring()).allow_anonymous());
    let printed = format!("{server:?} {:?} {:?}", ring(), secret(0));
    assert!(!printed.contains("[0, 1, 2"), "{printed}");
    assert!(printed.contains("Secret(…)"), "{printed}");
}

/// Layers and handlers may log what they see.
#[tokio::test]
async fn debug_output_hides_answers_and_credentials() {
    let show = async |cx: ManualContext| -> mrtr_server::Result<ManualOutput<ToolOutput>> {
        Ok(format!("{:?} {:?} {:?}", cx.parts(), cx.answers(), cx.unsolicited_answers()).into())
    };
    let server = replica(&TestClock::default()).allow_anonymous();
    let server = server.tool(Tool::manual("t", "", show)).build().unwrap();
    let answers = json!({ "a": { "action": "accept", "content": { "text": "an answer" } } });
    let call = json!({ "name": "t", "arguments": {}, "inputResponses": answers });
    let params = with_meta(call);
    let meta = Some(Arc::new(serde_json::from_value(params["_meta"].clone()).unwrap()));
    let request = request("tools/call", &params);
    let mut call = IncomingRequest::new(request, meta, NotificationSender::closed());
    call.headers.insert("authorization", "Bearer a-token".parse().unwrap());
    let printed = format!("{call:?}");
    let outcome = Arc::new(server).handle(call).await.outcome.unwrap();
    let printed = format!("{printed} {}", outcome.as_str());
    assert!(printed.contains("inputResponses") && printed.contains("RequestParts"), "{printed}");
    assert!(!printed.contains("an answer") && !printed.contains("a-token"), "{printed}");
}

#[test]
fn build_rejects_invalid_names_schemas_icons_and_uris() {
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
    with_schema(json!({ "$schema": "http://json-schema.org/draft-07/schema#" })).build().unwrap();
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
        (with_schema(json!({ "$schema": "https://a.example/dialect" })), "dialect"),
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

#[test]
fn build_rejects_invalid_annotations() {
    let server = || Server::builder("s", "1").require_principal().ephemeral_key();
    let priority = |priority| Annotations::default().with_priority(priority);
    for wrong in [5.0, f64::NAN] {
        let definition = WireResource::new("a:1", "r").with_annotations(priority(wrong));
        let resource = Resource::new("a:1", "r", async |_: Context| "x").definition(definition);
        let error = server().resource(resource).build().unwrap_err().to_string();
        assert_eq!(error, "\"a:1\": invalid annotations: /priority: must be between 0 and 1");
        let definition = WireTemplate::new("a:{b}", "r").with_annotations(priority(wrong));
        let template = ResourceTemplate::new("a:{b}", "r", async |_: Context| "x");
        let server = server().resource_template(template.definition(definition));
        let error = server.build().unwrap_err().to_string();
        assert_eq!(error, "\"a:{b}\": invalid annotations: /priority: must be between 0 and 1");
    }
}
