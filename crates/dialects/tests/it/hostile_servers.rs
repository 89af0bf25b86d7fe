//! Our client against servers that break the rules, or are overloaded.

use mrtr_client::Client;
use mrtr_dialects::{Dialect, DialectClient};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{self, Params, RequestId};
use mrtr_transport::http::HttpClient;
use mrtr_transport::{OutgoingRequest, Transport as _};
use serde_json::json;

use crate::client_messages::{Fleet, Reply, Script, client, json_reply, new_york, start};
use crate::support::{World, github_login};

/// The answer to `initialize`, and to the notification after it.
fn handshake() -> [Reply; 2] {
    let initialized = json!({ "jsonrpc": "2.0", "id": "$id", "result": {
        "protocolVersion": "DRAFT-SEP-1858", "capabilities": {}, "serverInfo": {} } });
    [json_reply(&initialized), (202, "text/plain", String::new())]
}

#[tokio::test]
async fn a_server_that_breaks_the_dialect_is_named() {
    let asked = json!({ "a": github_login() });
    let stream = |text: &str| (200, "text/event-stream", text.to_owned());
    for (dialect, reply, why) in [
        (Dialect::Incomplete, json_reply(&json!({ "jsonrpc": "2.0", "id": "$id" })), "malformed"),
        (
            Dialect::Incomplete,
            json_reply(&json!({ "jsonrpc": "2.0", "id": 99, "input_requests": asked })),
            "answered another request",
        ),
        (
            Dialect::Incomplete,
            json_reply(&json!({ "jsonrpc": "2.0", "id": "$id", "dependent_requests": asked })),
            "malformed",
        ),
        (
            Dialect::Dependent,
            json_reply(&json!({ "jsonrpc": "2.0", "id": "$id", "dependent_requests": [] })),
            "malformed `dependent_requests`",
        ),
        (
            Dialect::Tasks2322,
            json_reply(&json!({ "jsonrpc": "2.0", "id": "$id", "result": { "requestState": 5 } })),
            "malformed result",
        ),
        (Dialect::Tasks2322, (202, "text/plain", String::new()), "did not answer"),
        (Dialect::Incomplete, stream(": nothing\n\n"), "ended the stream"),
        (Dialect::Incomplete, (502, "text/html", String::new()), "502"),
    ] {
        let url = start(Script::new([reply])).await;
        let error = client(dialect, &url).build().call_tool("t", json!({})).await.unwrap_err();
        assert!(error.to_string().contains(why), "{dialect}: {error}");
    }
    for (events, why) in [
        ("event: input_required\nid: 4\n\n", "without buffer_input"),
        ("event: buffer_input\nid: 1\n\nevent: input_required\n\n", "without an id"),
        (
            "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n",
            "without buffer_input",
        ),
        ("data: {\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}\n\n", "another request"),
        ("event: buffer_input\nid: 1\n\n", "ended the stream"),
    ] {
        let url = start(Script::new(handshake().into_iter().chain([stream(events)]))).await;
        let client = client(Dialect::MultiTurnSse, &url).build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(error.to_string().contains(why), "{events}: {error}");
    }
}

/// Ids may differ only behind their 128th character, or in their type.
#[tokio::test]
async fn each_question_of_a_turn_gets_its_own_answer() {
    let long = "x".repeat(200);
    let ids = [json!(format!("{long}1")), json!(format!("{long}2")), json!(1), json!("1")];
    let mut events = "event: buffer_input\nid: 1\n\n".to_owned();
    for id in &ids {
        let mut question = github_login();
        (question["jsonrpc"], question["id"]) = (json!("2.0"), id.clone());
        events.push_str("data: ");
        events.push_str(&question.to_string());
        events.push_str("\n\n");
    }
    events += "event: input_required\nid: 2\n\n";
    let [opened, accepted] = handshake();
    let end = (200, "text/event-stream", "data: none\n\n".to_owned());
    let script = Script::new([opened, accepted, (200, "text/event-stream", events), end]);
    let url = start(script.clone()).await;
    let http = HttpClient::builder(&url).build().unwrap();
    let asked = std::sync::atomic::AtomicU32::new(0);
    let client = Client::builder(DialectClient::new(Dialect::MultiTurnSse, http))
        .on_form(move |_, _| {
            let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move { Ok(ElicitResult::accept(json!({ "name": number.to_string() }))?) }
        })
        .build();
    client.call_tool("get_weather", new_york()).await.unwrap_err();
    let answers = script.bodies()[3].as_array().unwrap().clone();
    assert_eq!(answers.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(), ids);
    let mut names: Vec<_> =
        answers.iter().map(|answer| answer["result"]["content"]["name"].to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), ids.len(), "two questions got one answer: {answers:?}");
}

#[tokio::test]
async fn a_client_learns_when_to_repeat_a_request() {
    for dialect in Dialect::ALL.iter().copied() {
        let url = start(Fleet { world: World::new(), dialect }).await;
        let client = DialectClient::new(dialect, HttpClient::builder(&url).build().unwrap());
        let params = json!({ "name": "limited", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        } });
        let params = Some(Params::new(&params).unwrap());
        let request = jsonrpc::Request::new(RequestId::Number(1), "tools/call", params);
        let error = client.send(OutgoingRequest::new(request)).await.unwrap_err();
        assert_eq!(error.status(), Some(429), "{dialect}: {error}");
        assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(7)), "{dialect}");
    }
}

/// Each event is within the limit, and all together are not.
#[tokio::test]
async fn the_limit_of_a_response_is_for_all_of_its_events() {
    let event = format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"{}\"}}\n\n", "x".repeat(900));
    for dialect in Dialect::ALL.iter().copied() {
        let mut replies = Vec::new();
        if dialect == Dialect::MultiTurnSse {
            replies.extend(handshake());
        }
        replies.push((200, "text/event-stream", event.repeat(10)));
        let url = start(Script::new(replies)).await;
        let http = HttpClient::builder(&url).max_response(2_000).build().unwrap();
        let client = Client::builder(DialectClient::new(dialect, http)).build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(error.to_string().contains("more than 2000 bytes"), "{dialect}: {error}");
    }
}
