//! Sessions of legacy clients over HTTP: who may use them, what they keep, changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, StatusCode};
use mrtr::http::Endpoint;
use mrtr::legacy::{LegacyOptions, LegacyServer};
use mrtr::middleware::{self, Next, from_fn};
use mrtr::schema::apps;
use mrtr::schema::jsonrpc::ErrorObject;
use mrtr::{Change, ChangeNotifier, Principal, Resource, Tool};
use serde_json::json;

use crate::legacy_client::{LegacyClient, request};
use crate::legacy_server::{Runs, builder, endpoint, replica, text};

/// Sessions of others, guessed, ended or expired are not found; a request without one is invalid.
#[tokio::test]
async fn only_the_caller_of_a_session_can_use_it_while_it_lasts() {
    let server = builder(&Runs::default()).require_principal().ephemeral_key();
    let endpoint = replica(server.build().unwrap(), LegacyOptions::default());
    let as_caller = |name: &str| LegacyClient {
        principal: Some(Principal::new("https://login.example", name)),
        ..LegacyClient::new(&endpoint)
    };
    let mut alice = as_caller("alice");
    alice.initialize("2025-11-25", json!({})).await;
    let status = async |client: &LegacyClient| client.call(1, "version").await.status;
    assert_eq!(status(&alice).await, StatusCode::OK);

    let session = alice.session.clone();
    let with_session = |client: LegacyClient, session| LegacyClient { session, ..client };
    assert_eq!(
        status(&with_session(as_caller("bob"), session.clone())).await,
        StatusCode::NOT_FOUND
    );
    let anonymous = LegacyClient { principal: None, ..alice.clone() };
    assert_eq!(status(&anonymous).await, StatusCode::NOT_FOUND);
    let guessed = session.clone().map(|id| format!("{}AAAA", &id[..id.len() - 4]));
    assert_eq!(status(&with_session(alice.clone(), guessed)).await, StatusCode::NOT_FOUND);
    assert_eq!(
        status(&with_session(alice.clone(), Some("x".repeat(5_000)))).await,
        StatusCode::NOT_FOUND
    );

    let without = Request::post("/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25");
    let body = request(1, "tools/list", json!({})).to_string();
    let client = with_session(alice.clone(), None);
    assert_eq!(client.send(without, body).await.status, StatusCode::BAD_REQUEST);

    assert_eq!(alice.delete().await, StatusCode::NO_CONTENT);
    assert_eq!(status(&alice).await, StatusCode::NOT_FOUND);
    assert_eq!(alice.delete().await, StatusCode::NOT_FOUND);
    assert_eq!(alice.get(None).await.status, StatusCode::NOT_FOUND);

    let options = LegacyOptions::default().with_session_lifetime(Duration::ZERO);
    let server = builder(&Runs::default()).allow_anonymous().ephemeral_key();
    let mut late = LegacyClient::new(&replica(server.build().unwrap(), options));
    late.initialize("2025-11-25", json!({})).await;
    assert_eq!(status(&late).await, StatusCode::NOT_FOUND, "the session has expired");
}

#[tokio::test]
async fn anonymous_callers_get_no_session_unless_the_server_allows_them() {
    let server = builder(&Runs::default()).require_principal().ephemeral_key();
    let endpoint = replica(server.build().unwrap(), LegacyOptions::default());
    let mut client = LegacyClient::new(&endpoint);
    let response = client.initialize("2025-11-25", json!({})).await;
    assert_eq!(response["error"]["code"], -32600, "{response}");
    assert!(client.session.is_none());
}

#[tokio::test]
async fn only_a_pending_question_of_the_session_can_be_answered_and_only_once() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let other = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "both").await;
    let (first, second) = (stream.event().await.data, stream.event().await.data);
    let unknown = json!({ "id": "unknown" });
    for (from, question) in [(&other, &first), (&client, &unknown), (&client, &json!({ "id": 1 }))]
    {
        assert_eq!(from.accept(question, "x").await, StatusCode::BAD_REQUEST, "{question}");
    }
    assert_eq!(client.accept(&first, "A").await, StatusCode::ACCEPTED);
    assert_eq!(client.accept(&first, "Z").await, StatusCode::BAD_REQUEST, "answered before");
    client.accept(&second, "B").await;
    assert_eq!(text(&stream.response().await), "AB");
    assert_eq!(client.accept(&second, "Z").await, StatusCode::BAD_REQUEST, "the call has ended");
}

/// A flood of handshakes costs nothing that grows, and neither do sessions that are used once.
#[tokio::test]
async fn sessions_without_state_take_no_memory() {
    let server = builder(&Runs::default()).allow_anonymous().ephemeral_key().build().unwrap();
    let legacy = LegacyServer::new(server.clone(), server.sealer(), LegacyOptions::default());
    let legacy = legacy.unwrap();
    let endpoint = Endpoint::new(server).legacy(legacy.clone());
    let active = || format!("{legacy:?}");
    for _ in 0..1_000 {
        let client = LegacyClient::open(&endpoint, "2025-11-25").await;
        assert_eq!(client.call(1, "version").await.status, StatusCode::OK);
    }
    assert!(active().contains("active_sessions: 0"), "{}", active());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    client.post(&request(1, "logging/setLevel", json!({ "level": "debug" }))).await;
    assert!(active().contains("active_sessions: 1"), "{}", active());
    client.delete().await;
    assert!(active().contains("active_sessions: 0"), "{}", active());
}

#[tokio::test]
async fn subscriptions_of_a_session_are_bounded() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let subscribe = async |uri: String| {
        let response = client.post(&request(1, "resources/subscribe", json!({ "uri": uri }))).await;
        response.json().await
    };
    let too_long = subscribe(format!("file:///{}", "x".repeat(40_000))).await;
    assert_eq!(too_long["error"]["code"], -32602, "{too_long}");
    let uri = |n: usize| format!("file:///{}/{n}", "x".repeat(1_000));
    let mut accepted = 0;
    while subscribe(uri(accepted)).await.get("result").is_some() {
        accepted += 1;
    }
    assert!((30..33).contains(&accepted), "{accepted}");
    assert!(subscribe(uri(0)).await.get("result").is_some(), "it is subscribed already");
}

#[tokio::test]
async fn changes_are_streamed_to_sessions_that_listen() {
    let changes = ChangeNotifier::new();
    let server = builder(&Runs::default()).changes(changes.clone()).allow_anonymous();
    let server = server.ephemeral_key().build().unwrap();
    let endpoint = replica(server, LegacyOptions::default());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.get(None).await;
    let subscription = async |method: &str| {
        let params = json!({ "uri": "file:///a" });
        assert_eq!(
            client.post(&request(1, method, params)).await.json().await["result"],
            json!({})
        );
    };
    let updated = Change::Resource("file:///a".to_owned());
    until_listening(&changes, 1).await;
    changes.publish(updated.clone());
    changes.publish(Change::Tools);
    let event = stream.event().await.data;
    assert_eq!(event, json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }));
    subscription("resources/subscribe").await;
    publish_until(&changes, &updated, async {
        let event = stream.event().await.data;
        assert_eq!(event["method"], "notifications/resources/updated");
        assert_eq!(event["params"], json!({ "uri": "file:///a" }));
    })
    .await;
    subscription("resources/unsubscribe").await;
    // A second stream replaces the first.
    let mut second = client.get(None).await;
    while stream.next().await.is_some() {}
    until_listening(&changes, 1).await;
    changes.publish(Change::Resources);
    loop {
        let event = second.event().await.data;
        if event["method"] == "notifications/resources/list_changed" {
            break;
        }
    }
}

/// Waits until this many subscriptions are open.
async fn until_listening(changes: &ChangeNotifier, count: usize) {
    while changes.listeners() != count {
        tokio::task::yield_now().await;
    }
}

/// Publishes a change again and again until `seen` is done.
async fn publish_until(changes: &ChangeNotifier, change: &Change, seen: impl Future<Output = ()>) {
    let mut seen = std::pin::pin!(seen);
    loop {
        changes.publish(change.clone());
        tokio::select! {
            () = &mut seen => return,
            () = tokio::task::yield_now() => {}
        }
    }
}

/// For clients, 405 means that there will never be changes.
#[tokio::test]
async fn failure_of_discovery_is_not_taken_for_a_server_without_changes() {
    let is_busy = Arc::<AtomicBool>::default();
    let busy = Arc::clone(&is_busy);
    let layer = from_fn(move |request: middleware::Request, next: Next| {
        let refuses = request.method() == "server/discover" && busy.load(Ordering::SeqCst);
        async move {
            if refuses {
                return Err(ErrorObject::internal("busy"));
            }
            next.run(request).await
        }
    });
    let server = builder(&Runs::default()).changes(ChangeNotifier::default()).layer(layer);
    let server = server.allow_anonymous().ephemeral_key();
    let endpoint = replica(server.build().unwrap(), LegacyOptions::default());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    for (busy, status) in [(true, StatusCode::SERVICE_UNAVAILABLE), (false, StatusCode::OK)] {
        is_busy.store(busy, Ordering::SeqCst);
        assert_eq!(client.get(None).await.status, status);
    }
}

#[tokio::test]
async fn server_without_changes_has_no_stream_for_them() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    assert_eq!(client.get(None).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn handler_that_panics_is_an_internal_error() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    for _ in 0..2 {
        let response = client.call(1, "panic").await.response().await;
        assert_eq!(response["error"]["code"], -32603, "{response}");
    }
}

#[tokio::test]
async fn methods_of_other_revisions_are_not_found() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    for (method, code) in [
        ("server/discover", -32601),
        ("subscriptions/listen", -32601),
        ("tasks/list", -32601),
        ("initialize", -32600),
    ] {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
        let response = client.post(&request(1, method, json!({ "_meta": meta }))).await;
        assert_eq!(response.status, StatusCode::OK, "{method}");
        assert_eq!(response.response().await["error"]["code"], code, "{method}");
    }
    let missing = request(1, "resources/read", json!({ "uri": "file:///missing" }));
    let response = client.post(&missing).await.response().await;
    assert_eq!(response["error"]["code"], -32002, "{response}");
}

/// A state that a legacy client sends is not taken for one of a call.
#[tokio::test]
async fn answers_and_states_in_parameters_are_ignored() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let accept = json!({ "action": "accept", "content": { "text": "x" } });
    let params = json!({
        "name": "manual", "arguments": {}, "requestState": "mrtr1.x", "inputResponses": { "q": accept },
    });
    let mut stream = client.post(&request(1, "tools/call", params)).await;
    assert_eq!(stream.event().await.data["params"]["message"], "Manual?");
}

/// MCP Apps is for all revisions: most hosts with it speak a legacy one.
#[tokio::test]
async fn clients_with_apps_get_the_app_only_tools() {
    const LIST: &str = "ui://orders/list.html";
    let tool = Tool::new("refresh", "", async || "refreshed").app(LIST).app_only();
    let server = builder(&Runs::default())
        .resource(Resource::app(LIST, "orders", "<!doctype html>"))
        .tool(tool)
        .allow_anonymous()
        .ephemeral_key();
    let server = server.build().unwrap();
    // No questions are needed.
    for options in [LegacyOptions::default(), LegacyOptions::default().without_questions()] {
        let endpoint = replica(server.clone(), options);
        for has_apps in [true, false] {
            let extensions = if has_apps {
                json!({ apps::EXTENSION: apps::client_settings() })
            } else {
                json!({})
            };
            let mut client = LegacyClient::new(&endpoint);
            let opened = client.initialize("2025-11-25", json!({ "extensions": extensions })).await;
            let declared = &opened["result"]["capabilities"]["extensions"];
            assert_eq!(*declared, json!({ apps::EXTENSION: {} }));
            let called = client.call(1, "refresh").await.json().await;
            if has_apps {
                assert_eq!(text(&called), "refreshed", "{called}");
            } else {
                assert_eq!(called["error"]["message"], "Unknown tool: \"refresh\"", "{called}");
            }
            let read = request(2, "resources/read", json!({ "uri": LIST }));
            let read = client.post(&read).await.json().await;
            assert_eq!(read["result"]["contents"][0]["mimeType"], apps::MIME_TYPE, "{read}");
        }
    }
}
