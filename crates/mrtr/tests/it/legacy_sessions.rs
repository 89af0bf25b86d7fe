//! Sessions of legacy clients over HTTP: who may use them, broken streams, changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, StatusCode};
use mrtr::http::{Endpoint, RequestLimits};
use mrtr::legacy::{LegacyOptions, LegacyServer};
use mrtr::{Change, ChangeNotifier, Context, Principal, Result, Server, Tool};
use serde_json::{Value, json};

use crate::legacy_client::{LegacyClient, request};
use crate::legacy_server::{Runs, builder, endpoint, replica, replicas, text};

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

#[tokio::test]
async fn broken_stream_is_resumed_after_the_last_event() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let question = stream.event().await;
    drop(stream);
    // The client has read the question: it is not sent again.
    assert_eq!(client.accept(&question.data, "outside").await, StatusCode::ACCEPTED);
    let mut stream = client.get(question.id.as_deref()).await;
    let second = stream.event().await;
    assert_eq!(second.data["params"]["message"], "Table 0. What?");
    drop(stream);
    // The client has not read the second question.
    let mut stream = client.get(question.id.as_deref()).await;
    assert_eq!(stream.event().await.data, second.data);
    client.accept(&second.data, "fish").await;
    assert_eq!(text(&stream.response().await), "outside 0 fish");
}

#[tokio::test]
async fn another_replica_continues_a_call_from_its_event_id() {
    let ([first, other], runs) = replicas();
    let client = LegacyClient::open(&first, "2025-11-25").await;
    let mut stream = client.call(41, "book").await;
    let question = stream.event().await.data;
    client.accept(&question, "outside").await;
    let second = stream.event().await;
    drop((stream, first));

    let client = LegacyClient { endpoint: other, ..client };
    let status = client.accept(&second.data, "fish").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the question was asked by a replica that is gone");
    let mut stream = client.get(second.id.as_deref()).await;
    let again = stream.event().await.data;
    assert_eq!(again["params"], second.data["params"], "the same question is asked again");
    assert_eq!(client.accept(&again, "fish").await, StatusCode::ACCEPTED);
    let response = stream.response().await;
    assert_eq!((&response["id"], text(&response)), (&json!(41), "outside 0 fish"));
    assert_eq!(runs.load(Ordering::SeqCst), 1, "the step ran again");
}

#[tokio::test]
async fn event_ids_of_others_resume_nothing() {
    let ([first, other], _) = replicas();
    let client = LegacyClient::open(&first, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    let id = stream.event().await.id.unwrap();
    let thief = LegacyClient::open(&first, "2025-11-25").await;
    assert_eq!(thief.get(Some(&id)).await.status, StatusCode::BAD_REQUEST);
    let elsewhere = LegacyClient { endpoint: other, ..thief };
    assert_eq!(elsewhere.get(Some(&id)).await.status, StatusCode::BAD_REQUEST);
    for forged in ["", "1_1", "x~mrtr1.AAAA", &id[..id.len() - 2]] {
        let status = LegacyClient { endpoint: elsewhere.endpoint.clone(), ..client.clone() };
        assert_eq!(status.get(Some(forged)).await.status, StatusCode::BAD_REQUEST, "{forged}");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_call_ends_without_a_response() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(5, "wait").await;
    assert!(stream.is_stream(), "a slow call becomes a stream");
    let params = json!({ "requestId": 5, "reason": "changed my mind" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    assert_eq!(client.post(&cancel).await.status, StatusCode::ACCEPTED);
    assert!(stream.next().await.is_none());
    // The id can be used again.
    let mut stream = client.call(5, "wait").await;
    client.post(&cancel).await;
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn slow_call_begins_with_an_event_id_where_the_revision_has_it() {
    let endpoint = endpoint();
    for (version, has_id) in [("2025-11-25", true), ("2025-06-18", false)] {
        let client = LegacyClient::open(&endpoint, version).await;
        let response = client.call(1, "wait").await;
        let first = response.first_frame().await;
        assert_eq!(first.starts_with("id: "), has_id, "{version}: {first}");
        assert_eq!(first.contains("retry: "), has_id, "{version}: {first}");
    }
}

/// Counts when it is dropped.
struct Guard(Runs);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_its_client_ends_after_the_resume_timeout() {
    let runs = Runs::default();
    let dropped = Arc::clone(&runs);
    let wait = move |_: Context| {
        let guard = Guard(Arc::clone(&dropped));
        async move {
            let _guard = guard;
            std::future::pending::<Result<&str>>().await
        }
    };
    let server = Server::builder("test", "1").tool(Tool::new("wait", "", wait));
    let server = server.allow_anonymous().ephemeral_key().build().unwrap();
    let endpoint = replica(server, LegacyOptions::default());
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let stream = client.call(1, "wait").await;
    drop(stream);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 0, "a client may resume");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
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

/// A client cannot fill the memory with streams that it does not read.
#[tokio::test(start_paused = true)]
async fn unread_streams_count_as_requests_in_flight_until_the_resume_timeout() {
    let endpoint = endpoint().limits(RequestLimits::default().with_max_in_flight(2));
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let params = json!({ "name": "notify", "_meta": { "progressToken": 1 } });
    let call = async |id| client.post(&request(id, "tools/call", params.clone())).await;
    for id in [1, 2] {
        assert!(call(id).await.is_stream());
    }
    assert_eq!(call(3).await.status, StatusCode::SERVICE_UNAVAILABLE);
    tokio::time::sleep(Duration::from_secs(31)).await;
    // A stream that is read to its end counts no longer.
    for id in 4..8 {
        let mut stream = call(id).await;
        while stream.next().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn question_that_is_not_answered_ends_the_call() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    let mut stream = client.call(1, "book").await;
    stream.event().await;
    // The stream sends comments meanwhile.
    let cancelled = loop {
        tokio::time::advance(Duration::from_secs(30)).await;
        if let Some(event) = stream.next_within(Duration::from_secs(1)).await {
            break event.data;
        }
    };
    assert_eq!(cancelled["method"], "notifications/cancelled");
    let response = stream.response().await;
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("elicitation/create within 600s"), "{message}");
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

#[tokio::test]
async fn server_without_changes_has_no_stream_for_them() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-11-25").await;
    assert_eq!(client.get(None).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn batches_belong_to_one_revision() {
    let endpoint = endpoint();
    let client = LegacyClient::open(&endpoint, "2025-03-26").await;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let batch = json!([request(1, "ping", json!({})), note, request(2, "tools/list", json!({}))]);
    let mut stream = client.post(&batch).await;
    let mut ids =
        vec![stream.event().await.data["id"].clone(), stream.event().await.data["id"].clone()];
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, [json!(1), json!(2)]);
    assert!(stream.next().await.is_none());
    assert_eq!(client.post(&json!([note])).await.status, StatusCode::ACCEPTED);
    for invalid in [json!([]), json!([1]), json!(vec![note; 65])] {
        assert_eq!(client.post(&invalid).await.status, StatusCode::BAD_REQUEST, "{invalid}");
    }
    let client = LegacyClient::open(&endpoint, "2025-06-18").await;
    assert_eq!(client.post(&batch).await.status, StatusCode::BAD_REQUEST);
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
