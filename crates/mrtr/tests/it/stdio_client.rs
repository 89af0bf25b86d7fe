//! The messages of the client on a byte stream, with a raw peer as the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::client::{OutgoingRequest, SubscriptionEvent, Transport as _};
use mrtr::schema::jsonrpc::{Params, Request, RequestId};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::stdio::StreamClient;
use mrtr::{Client, LogLevel};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, duplex, split};

use crate::raw_peer::RawPeer;

/// Creates a client, and a raw peer as its server.
fn connect() -> (StreamClient, RawPeer) {
    let (ours, theirs) = duplex(1 << 16);
    let (reader, writer) = split(ours);
    (StreamClient::new(BufReader::new(reader), writer), RawPeer::new(theirs))
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

#[tokio::test]
async fn responses_match_calls_in_any_order_and_messages_are_single_lines() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let call = |name: &'static str| {
        let client = client.clone();
        let pretty = RawValue::from_string("{\n  \"a\":\r\n 1\n}".to_owned()).unwrap();
        tokio::spawn(async move { client.call_tool(name, pretty).await.unwrap().text() })
    };
    let (one, two) = (call("one"), call("two"));
    let requests = [peer.read().await, peer.read().await];
    for request in requests.iter().rev() {
        assert_eq!(request["params"]["arguments"], json!({ "a": 1 }));
        let name = request["params"]["name"].as_str().unwrap();
        peer.answer(request["id"].clone(), text(name)).await;
    }
    assert_eq!((one.await.unwrap().as_str(), two.await.unwrap().as_str()), ("one", "two"));
}

/// A server of 2025-03-26 sends batches.
#[tokio::test]
async fn malformed_message_of_a_batch_does_not_concern_the_others() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let call = |name: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.call_tool(name, json!({})).await })
    };
    let calls = [call("one"), call("two")];
    let mut messages = Vec::new();
    for _ in &calls {
        let request = peer.read().await;
        let is_malformed = request["params"]["name"] == "two";
        let version = if is_malformed { "1.0" } else { "2.0" };
        messages.push(json!({ "jsonrpc": version, "id": request["id"], "result": text("answer") }));
    }
    peer.write(json!(messages)).await;
    let [one, two] = calls;
    assert_eq!(one.await.unwrap().unwrap().text(), "answer");
    assert!(two.await.unwrap().unwrap_err().as_transport_error().is_some());
}

/// Nothing can reconnect it.
#[tokio::test]
async fn subscription_ends_with_its_stream() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    let (event, ()) = tokio::join!(events.next(), async {
        peer.read().await;
        drop(peer);
    });
    assert!(matches!(event, Some(Err(_))), "{event:?}");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn invalid_server_messages_are_ignored_and_never_answered() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let call = tokio::spawn(async move { client.call_tool("t", json!({})).await.unwrap().text() });
    let id = peer.read().await["id"].clone();
    peer.write(json!({ "jsonrpc": "2.0", "id": 5, "method": "roots/list" })).await;
    peer.notify("notifications/cancelled", json!({ "requestId": id })).await;
    peer.notify("notifications/progress", json!({ "progressToken": "other", "progress": 1 })).await;
    peer.notify("notifications/tools/list_changed", json!({})).await;
    peer.write(json!({ "jsonrpc": "2.0", "id": 99, "result": {} })).await;
    peer.write(json!("nonsense")).await;
    peer.answer(id, text("fine")).await;
    assert_eq!(call.await.unwrap(), "fine");
    // The client is dropped and has closed the stream. It wrote only the request.
    drop(peer.writer);
    assert_eq!(peer.reader.read_line(&mut String::new()).await.unwrap(), 0);
}

/// The call cannot get another response.
#[tokio::test]
async fn malformed_response_ends_its_call() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let call = tokio::spawn(async move { client.call_tool("t", json!({})).await });
    let id = peer.read().await["id"].clone();
    peer.write_line("an unrelated line").await;
    peer.write_line(&format!(r#"{{"id":{id},"method":"x","method":"x"}}"#)).await;
    peer.write_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":1,"a":1}}}}"#)).await;
    let error = call.await.unwrap().unwrap_err();
    assert!(error.as_transport_error().unwrap().is_protocol(), "{error}");
}

/// A server that rejects a request above its limit may not know the id.
#[tokio::test]
async fn error_without_an_id_ends_the_only_call_in_flight() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let call = || {
        let client = client.clone();
        tokio::spawn(async move { client.call_tool("t", json!({})).await })
    };
    let too_long =
        json!({ "jsonrpc": "2.0", "error": { "code": -32600, "message": "message too long" } });
    let alone = call();
    peer.read().await;
    peer.write(too_long.clone()).await;
    let error = alone.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("message too long"), "{error}");
    // With two calls in flight, the error is ambiguous and ignored.
    let two = [call(), call()];
    let requests = [peer.read().await, peer.read().await];
    peer.write(too_long).await;
    for request in requests {
        peer.answer(request["id"].clone(), text("fine")).await;
    }
    for call in two {
        assert_eq!(call.await.unwrap().unwrap().text(), "fine");
    }
}

#[tokio::test]
async fn call_is_cancelled_once_and_only_while_in_flight() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    // An answered call is not cancelled.
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.discover().await });
    let id = peer.read().await["id"].clone();
    peer.answer(id, json!({ "supportedVersions": [], "capabilities": {} })).await;
    call.await.unwrap().unwrap();
    // A dropped call is cancelled by its id, with a reason. A response that crosses the
    // cancellation is ignored.
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.call_tool("t", json!({})).await });
    let id = peer.read().await["id"].clone();
    call.abort();
    let cancelled = peer.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!((&cancelled["params"]["requestId"], cancelled["id"].is_null()), (&id, true));
    assert!(cancelled["params"]["reason"].is_string());
    peer.answer(id, text("late")).await;
    // A legacy server may answer in a batch.
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.call_tool("t", json!({})).await });
    let id = peer.read().await["id"].clone();
    let response = json!({ "jsonrpc": "2.0", "id": id, "result": text("in a batch") });
    peer.write(json!([response])).await;
    assert_eq!(call.await.unwrap().unwrap().text(), "in a batch");
    // A call that times out is cancelled as well.
    let slow = client.transport().clone().timeout(Duration::from_millis(20));
    let error = Client::builder(slow).build().call_tool("t", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("no response within 20ms"), "{error}");
    let id = peer.read().await["id"].clone();
    assert_eq!(peer.read().await["params"]["requestId"], id);
    // Clients must not cancel `initialize`, so the next message is another request.
    let transport = client.transport().clone();
    let initialize = Request::new(RequestId::Number(1_000_000), "initialize", None);
    let opening =
        tokio::spawn(async move { transport.send(OutgoingRequest::new(initialize)).await });
    assert_eq!(peer.read().await["method"], "initialize");
    opening.abort();
    let _ = opening.await;
    let call = tokio::spawn(async move { client.call_tool("t", json!({})).await });
    assert_eq!(peer.read().await["method"], "tools/call");
    call.abort();
}

#[tokio::test]
async fn log_message_is_delivered_once_with_several_calls_in_flight() {
    let (connection, mut peer) = connect();
    let received = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&received);
    let client = Client::builder(connection).on_log(LogLevel::Debug, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let client = client.build();
    for _ in 0..20 {
        let listening = client.listen(&SubscriptionFilter::default()).unwrap();
        tokio::spawn(listening.collect::<Vec<_>>());
        peer.read().await;
    }
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call_tool("t", json!({})).await.unwrap() })
        })
        .collect();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(peer.read().await["id"].clone());
    }
    peer.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    for id in ids {
        peer.answer(id, text("x")).await;
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(received.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn server_may_cancel_a_subscription() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let mut listening = client.listen(&SubscriptionFilter::default()).unwrap();
    let server = async {
        let id = peer.read().await["id"].clone();
        let tag = json!({ "io.modelcontextprotocol/subscriptionId": id });
        let other = json!({ "io.modelcontextprotocol/subscriptionId": 99 });
        peer.notify("notifications/tools/list_changed", json!({ "_meta": other })).await;
        peer.notify("notifications/prompts/list_changed", json!({ "_meta": tag })).await;
        peer.notify("notifications/cancelled", json!({ "requestId": id, "reason": "bye" })).await;
        peer
    };
    let collect = async { listening.by_ref().map(Result::unwrap).collect::<Vec<_>>().await };
    let (mut peer, events) = tokio::join!(server, collect);
    assert_eq!(
        events,
        [SubscriptionEvent::PromptsListChanged],
        "a notification of another subscription is ignored"
    );
    drop((listening, client, peer.writer));
    assert_eq!(
        peer.reader.read_line(&mut String::new()).await.unwrap(),
        0,
        "the subscription is not requested again"
    );
}

/// The timeout covers the acknowledgement, and nothing after it.
#[tokio::test(start_paused = true)]
async fn subscription_that_is_not_acknowledged_is_requested_again() {
    let (connection, mut peer) = connect();
    let client = Client::builder(connection).build();
    let mut listening = client.listen(&SubscriptionFilter::default()).unwrap();
    let server = async {
        let first = peer.read().await;
        let cancelled = peer.read().await;
        assert_eq!(cancelled["params"]["requestId"], first["id"], "{cancelled}");
        let second = peer.read().await;
        assert_eq!(second["method"], "subscriptions/listen");
        let tag = json!({ "io.modelcontextprotocol/subscriptionId": second["id"] });
        let acknowledged = json!({ "notifications": {}, "_meta": tag });
        peer.notify("notifications/subscriptions/acknowledged", acknowledged).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        peer.notify("notifications/prompts/list_changed", json!({ "_meta": tag })).await;
        peer
    };
    let events = async { [listening.next().await, listening.next().await] };
    let (_peer, events) = tokio::join!(server, events);
    let [first, second] = events.map(|event| event.unwrap().unwrap());
    assert_eq!(first, SubscriptionEvent::Acknowledged(SubscriptionFilter::default()));
    assert_eq!(second, SubscriptionEvent::PromptsListChanged);
}

/// Notifications for a call that is not polled are buffered up to a limit, and then dropped.
#[tokio::test]
async fn notifications_for_an_unpolled_call_are_bounded() {
    let (connection, mut peer) = connect();
    let count = Arc::new(AtomicUsize::new(0));
    let params = Params::new(&json!({ "_meta": { "progressToken": "a" } })).unwrap();
    let request = Request::new(RequestId::Number(1), "x", Some(params));
    let received = Arc::clone(&count);
    let handler = move |_| drop(received.fetch_add(1, Ordering::SeqCst).to_string());
    let outgoing = OutgoingRequest::new(request).with_notification_handler(&handler);
    let mut call = Box::pin(connection.send(outgoing));
    // The first poll sends the request.
    assert!(futures_util::poll!(&mut call).is_pending());
    assert_eq!(peer.read().await["id"], 1);
    for n in 0..5_000 {
        peer.notify("notifications/progress", json!({ "progressToken": "a", "progress": n })).await;
    }
    // The token of no request, though it equals an id.
    peer.notify("notifications/progress", json!({ "progressToken": 1, "progress": 1 })).await;
    // The response to another request arrives after all notifications.
    let other = Request::new(RequestId::Number(2), "x", self::request().params);
    let other = tokio::join!(connection.send(OutgoingRequest::new(other)), async {
        assert_eq!(peer.read().await["id"], 2);
        peer.answer(json!(2), json!({})).await;
    });
    other.0.unwrap();
    peer.answer(json!(1), json!({})).await;
    call.await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1_024);
}

/// Missed notifications of a subscription are lost, so it fails and is cancelled at the server.
#[tokio::test]
async fn unpolled_subscription_fails_and_is_cancelled() {
    // Too many notifications, and too many bytes.
    for (count, length) in [(2_000, 0), (20, 1 << 20)] {
        let (connection, mut peer) = connect();
        let outgoing = OutgoingRequest::new(request()).with_long_lived(true);
        let mut listening = Box::pin(connection.send(outgoing));
        assert!(futures_util::poll!(&mut listening).is_pending());
        assert_eq!(peer.read().await["id"], 1);
        let meta = json!({ "io.modelcontextprotocol/subscriptionId": 1 });
        for _ in 0..count {
            let changed = json!({ "_meta": meta, "padding": "x".repeat(length) });
            peer.notify("notifications/tools/list_changed", changed).await;
        }
        let error = listening.await.unwrap_err();
        let why = "more than 1024 notifications or 16 MiB unread";
        assert!(error.is_interrupted() && error.to_string().contains(why), "{error}");
        let cancelled = peer.read().await;
        assert_eq!(cancelled["method"], "notifications/cancelled");
        assert_eq!(cancelled["params"]["requestId"], 1);
    }
}

#[tokio::test]
async fn id_in_flight_is_not_reused() {
    let (connection, mut peer) = connect();
    let mut first = Box::pin(connection.send(OutgoingRequest::new(request())));
    assert!(futures_util::poll!(&mut first).is_pending());
    let second = connection.send(OutgoingRequest::new(request())).await.unwrap_err();
    assert!(second.is_not_sent(), "{second}");
    peer.read().await;
    peer.answer(json!(1), json!({ "of": "the first" })).await;
    let result = first.await.unwrap().outcome.unwrap();
    assert!(result.get().contains("the first"));
}

fn request() -> Request {
    let params = Some(Params::new(&json!({})).unwrap());
    Request::new(RequestId::Number(1), "x", params)
}
