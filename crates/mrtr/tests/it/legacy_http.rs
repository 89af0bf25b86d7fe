//! Legacy clients over HTTP, beside clients of the current revision: the handshake and calls.

use std::sync::atomic::Ordering;

use http::{Request, StatusCode};
use mrtr::http::RequestLimits;
use mrtr::legacy::LegacyOptions;
use mrtr::{Context, Principal, Result, Tool};
use serde_json::{Value, json};

use crate::legacy_client::{LegacyClient, request};
use crate::legacy_server::{
    Runs, Text, builder, endpoint, endpoint_with_hidden_tool, replica, replicas, text,
};

#[tokio::test]
async fn initialize_negotiates_the_version_and_declares_capabilities() {
    let endpoint = endpoint();
    for (requested, negotiated) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0", "2025-11-25"),
    ] {
        let mut client = LegacyClient::new(&endpoint);
        let result = client.initialize(requested, json!({})).await["result"].clone();
        assert_eq!(result["protocolVersion"], negotiated);
        assert_eq!(result["serverInfo"], json!({ "name": "test", "version": "1" }));
        let capabilities = &result["capabilities"];
        for name in ["tools", "resources", "logging"] {
            assert!(capabilities[name].is_object(), "{name}: {result}");
        }
        assert!(result.get("_meta").is_none() && result.get("resultType").is_none(), "{result}");
        let session = client.session.unwrap();
        assert!(session.bytes().all(|byte| byte.is_ascii_graphic()), "{session}");
    }
}

/// The list lets a client of another revision choose a common one, even if the rest of its request
/// is invalid in the current revision.
#[tokio::test]
async fn all_revisions_are_announced() {
    let client = LegacyClient::new(&endpoint());
    let all = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"]);
    let discover = async |version: &str, meta: Value| {
        let head = Request::post("/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", version);
        let head = match version {
            "2026-07-28" => head.header("mcp-method", "server/discover"),
            _ => head.header("mcp-operation", "discover"),
        };
        let params = json!({ "_meta": meta });
        client.send(head, request_with("server/discover", params)).await
    };
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = discover("2026-07-28", meta).await.json().await;
    assert_eq!(found["result"]["supportedVersions"], all);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2027-06-30",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": true },
    });
    let refused = discover("2027-06-30", meta).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json().await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["supported"]), (&json!(-32022), &all));
}

#[tokio::test]
async fn depth_limit_applies_to_legacy_clients() {
    let endpoint = endpoint().limits(RequestLimits::default().with_max_depth(5));
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let call = |meta| request(1, "tools/call", json!({ "name": "version", "_meta": meta }));
    let accepted = client.post(&call(json!({ "a": { "b": {} } }))).await;
    assert_eq!(text(&accepted.response().await), "2025-11-25");
    let refused = client.post(&call(json!({ "a": { "b": { "c": {} } } }))).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json().await;
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(1), &json!(-32700)));
}

#[tokio::test]
async fn one_endpoint_serves_the_current_revision_and_legacy_ones() {
    let endpoint = endpoint();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let client = LegacyClient::open(&endpoint, version).await;
        assert_eq!(text(&client.call(1, "version").await.response().await), version);
    }
    let modern = LegacyClient::new(&endpoint);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = |method: &str, params| {
        let request = Request::post("/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-method", method)
            .header("mcp-name", "version");
        (request, request_with(method, params))
    };
    let params = json!({ "name": "version", "arguments": {}, "_meta": meta });
    let (head, body) = call("tools/call", params.clone());
    let head = head.header("mcp-protocol-version", "2026-07-28");
    let response = modern.send(head, body).await.response().await;
    assert_eq!(text(&response), "2026-07-28");
    assert_eq!(response["result"]["resultType"], "complete");
    // Without the header or with the wrong one, the `_meta` still says which revision it is.
    let (head, body) = call("tools/call", params.clone());
    assert_eq!(modern.send(head, body).await.json().await["error"]["code"], -32020);
    let (head, body) = call("tools/call", params);
    let head = head.header("mcp-protocol-version", "2025-11-25");
    assert_eq!(modern.send(head, body).await.json().await["error"]["code"], -32020);
    let (head, body) = call("initialize", json!({ "_meta": meta }));
    assert_eq!(modern.send(head, body).await.json().await["error"]["code"], -32020);
    // An unknown version gets the error of the current revision.
    let (head, body) = call("tools/call", json!({ "_meta": meta }));
    let head = head.header("mcp-protocol-version", "1900-01-01");
    assert_eq!(modern.send(head, body).await.json().await["error"]["code"], -32020);
}

fn request_with(method: &str, params: Value) -> String {
    request(1, method, params).to_string()
}

#[tokio::test]
async fn rules_about_who_can_see_a_tool_hold_for_legacy_clients() {
    let endpoint = endpoint_with_hidden_tool();
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        for (name, is_visible) in [("alice", true), ("bob", false)] {
            let mut client = LegacyClient::new(&endpoint);
            client.principal = Some(Principal::new("https://login.example", name));
            client.version = version;
            client.initialize(version, json!({})).await;
            let list = client.post(&request(1, "tools/list", json!({}))).await.response().await;
            let tools = list["result"]["tools"].as_array().unwrap();
            assert_eq!(tools.iter().any(|tool| tool["name"] == "hidden"), is_visible, "{list}");
            let called = client.call(2, "hidden").await.response().await;
            if is_visible {
                assert_eq!(text(&called), "found");
            } else {
                assert_eq!(called["error"]["message"], r#"Unknown tool: "hidden""#, "{called}");
            }
        }
    }
}

#[tokio::test]
async fn questions_are_requests_and_answers_continue_the_call() {
    let ([endpoint, _], runs) = replicas();
    for (n, version) in ["2025-11-25", "2025-06-18"].into_iter().enumerate() {
        let client = LegacyClient::open(&endpoint, version).await;
        let mut stream = client.call(7, "book").await;
        let first = stream.event().await.data;
        assert_eq!(first["method"], "elicitation/create");
        assert_eq!(first["params"]["message"], "Where?");
        assert_eq!(first["params"].get("mode").is_some(), version == "2025-11-25", "{first}");
        assert_eq!(client.accept(&first, "outside").await, StatusCode::ACCEPTED);
        let second = stream.event().await.data;
        assert_eq!(second["params"]["message"], format!("Table {n}. What?"));
        assert_eq!(client.accept(&second, "fish").await, StatusCode::ACCEPTED);
        let response = stream.response().await;
        assert_eq!((&response["id"], text(&response)), (&json!(7), &*format!("outside {n} fish")));
        assert!(response["result"].get("resultType").is_none(), "{response}");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2, "a step ran again");
}

#[tokio::test]
async fn joined_questions_are_asked_together_and_answered_in_any_order() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "both").await;
    let (a, b) = (stream.event().await.data, stream.event().await.data);
    assert_eq!(
        (&a["params"]["message"], &b["params"]["message"]),
        (&json!("First?"), &json!("Second?"))
    );
    client.accept(&b, "B").await;
    client.accept(&a, "A").await;
    assert_eq!(text(&stream.response().await), "AB");
}

#[tokio::test]
async fn invalid_answer_is_asked_again_and_a_declined_one_is_a_tool_error() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let first = stream.event().await.data;
    let wrong = json!({ "action": "accept", "content": { "text": 5 } });
    assert_eq!(client.answer(&first, wrong).await, StatusCode::ACCEPTED);
    let again = stream.event().await.data;
    let message = again["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("Where?") && message.contains("text"), "{message}");
    assert_ne!(again["id"], first["id"]);
    client.answer(&again, json!({ "action": "decline" })).await;
    assert_eq!(stream.response().await["result"]["isError"], true);
}

#[tokio::test]
async fn client_error_and_non_object_answers_end_the_call_with_an_error() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    for (answer, part) in [
        (json!({ "error": { "code": -1, "message": "User rejected" } }), "-1: User rejected"),
        (json!({ "result": [] }), "not an object"),
    ] {
        let mut stream = client.call(1, "both").await;
        let (first, second) = (stream.event().await.data, stream.event().await.data);
        let mut message = json!({ "jsonrpc": "2.0", "id": first["id"] });
        message.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        assert_eq!(client.post(&message).await.status, StatusCode::ACCEPTED);
        // The other question is withdrawn.
        let mut cancelled = Vec::new();
        let response = loop {
            let event = stream.event().await.data;
            if event.get("method").is_none() {
                break event;
            }
            assert_eq!(event["method"], "notifications/cancelled");
            cancelled.push(event["params"]["requestId"].clone());
        };
        assert_eq!(cancelled, [second["id"].clone()]);
        let message = response["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn questions_need_the_capability_of_the_revision() {
    let endpoint = endpoint();
    for (version, tool, is_asked) in [
        ("2025-11-25", "page", true),
        ("2025-06-18", "page", false),
        ("2025-06-18", "book", true),
        ("2025-03-26", "book", false),
    ] {
        let client = LegacyClient::open(&endpoint, version).await;
        let mut stream = client.call(1, tool).await;
        if is_asked {
            let question = stream.event().await.data;
            assert_eq!(question["method"], "elicitation/create", "{version} {tool}");
            let is_url = question["params"]["url"].is_string();
            assert_eq!(question["params"]["elicitationId"].is_string(), is_url, "{question}");
        } else {
            let response = stream.response().await;
            assert_eq!(response["error"]["code"], -32021, "{version} {tool}: {response}");
        }
    }
}

/// Otherwise users would answer questions of a call that has failed.
#[tokio::test]
async fn no_question_is_sent_if_one_of_its_round_cannot_be_asked() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    enum Topping {
        Ham,
        Olives,
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Toppings {
        toppings: Vec<Topping>,
    }
    let mixed = Tool::new("mixed", "", async |cx: Context| -> Result<String> {
        let text = cx.elicit::<Text>("a", "First?");
        let (text, many) = tokio::try_join!(text, cx.elicit::<Toppings>("b", "Which?"))?;
        Ok(format!("{} {}", text.text, many.toppings.len()))
    });
    let server = builder(&Runs::default()).tool(mixed).allow_anonymous().ephemeral_key();
    let endpoint = replica(server.build().unwrap(), LegacyOptions::default());
    let client = LegacyClient::open(&endpoint, "2025-06-18").await;
    let response = client.call(1, "mixed").await;
    // A question would have begun a stream.
    assert!(!response.is_stream());
    let response = response.response().await;
    assert_eq!(response["error"]["code"], -32603, "{response}");
}

#[tokio::test]
async fn checkpoints_and_the_manual_form_work_on_a_legacy_session() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let response = client.call(1, "checkpoint").await.response().await;
    assert_eq!(text(&response), "after the checkpoint");
    let mut stream = client.call(2, "manual").await;
    let question = stream.event().await.data;
    client.accept(&question, "by hand").await;
    assert_eq!(text(&stream.response().await), "by hand");
}

#[tokio::test]
async fn progress_and_log_messages_precede_the_response() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-06-18").await;
    let logged = async |level: Option<&str>| {
        if let Some(level) = level {
            let params = json!({ "level": level });
            let set = client.post(&request(8, "logging/setLevel", params)).await.json().await;
            assert_eq!(set["result"], json!({}));
        }
        let meta = json!({ "progressToken": "token" });
        let params = json!({ "name": "notify", "arguments": {}, "_meta": meta });
        let mut stream = client.post(&request(9, "tools/call", params)).await;
        let mut all = Vec::new();
        while let Some(event) = stream.next().await {
            let params = &event.data["params"];
            match event.data["method"].as_str() {
                Some("notifications/progress") => {
                    assert_eq!(params["progressToken"], "token");
                    all.push(params["progress"].to_string());
                }
                Some("notifications/message") => all.push(params["data"].to_string()),
                _ => assert_eq!(text(&event.data), "notified"),
            }
        }
        all
    };
    assert_eq!(logged(None).await, ["1.0", "2.0", "\"message\""], "the default level is info");
    assert_eq!(logged(Some("debug")).await.len(), 4);
    assert_eq!(logged(Some("error")).await, ["1.0", "2.0"]);
}
