//! What our client does on a stream, line by line, with a server by hand.

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

use crate::raw_peer::Hand;

/// Our client, and a server by hand.
fn connect() -> (StreamClient, Hand) {
    let (ours, theirs) = duplex(1 << 16);
    let (reader, writer) = split(ours);
    (StreamClient::new(BufReader::new(reader), writer), Hand::new(theirs))
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

#[tokio::test]
async fn responses_find_their_calls_in_any_order_and_messages_are_one_line() {
    let (connection, mut hand) = connect();
    let client = Client::builder(connection).build();
    let call = |name: &'static str| {
        let client = client.clone();
        let pretty = RawValue::from_string("{\n  \"a\":\r\n 1\n}".to_owned()).unwrap();
        tokio::spawn(async move { client.call_tool(name, pretty).await.unwrap().text() })
    };
    let (one, two) = (call("one"), call("two"));
    let requests = [hand.read().await, hand.read().await];
    for request in requests.iter().rev() {
        assert_eq!(request["params"]["arguments"], json!({ "a": 1 }));
        let name = request["params"]["name"].as_str().unwrap();
        hand.answer(request["id"].clone(), text(name)).await;
    }
    assert_eq!((one.await.unwrap().as_str(), two.await.unwrap().as_str()), ("one", "two"));
}

#[tokio::test]
async fn what_a_server_may_not_send_is_passed_over_and_never_answered() {
    let (connection, mut hand) = connect();
    let client = Client::builder(connection).build();
    let call = tokio::spawn(async move { client.call_tool("t", json!({})).await.unwrap().text() });
    let id = hand.read().await["id"].clone();
    hand.write(json!({ "jsonrpc": "2.0", "id": 5, "method": "roots/list" })).await;
    hand.notify("notifications/cancelled", json!({ "requestId": id })).await;
    hand.notify("notifications/progress", json!({ "progressToken": "other", "progress": 1 })).await;
    hand.notify("notifications/tools/list_changed", json!({})).await;
    hand.write(json!({ "jsonrpc": "2.0", "id": 99, "result": {} })).await;
    hand.write(json!("nonsense")).await;
    hand.answer(id, text("fine")).await;
    assert_eq!(call.await.unwrap(), "fine");
    // The client is gone, and with it its end of the stream: nothing was written but the request.
    drop(hand.writer);
    assert_eq!(hand.reader.read_line(&mut String::new()).await.unwrap(), 0);
}

/// A request that is too long for a server is refused without its id, which was not read.
#[tokio::test]
async fn an_error_without_an_id_is_that_of_the_call_that_waits_alone() {
    let (connection, mut hand) = connect();
    let client = Client::builder(connection).build();
    let call = || {
        let client = client.clone();
        tokio::spawn(async move { client.call_tool("t", json!({})).await })
    };
    let too_long =
        json!({ "jsonrpc": "2.0", "error": { "code": -32600, "message": "it is too long" } });
    let alone = call();
    hand.read().await;
    hand.write(too_long.clone()).await;
    let error = alone.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("it is too long"), "{error}");
    // Of two, it could be either's.
    let two = [call(), call()];
    let requests = [hand.read().await, hand.read().await];
    hand.write(too_long).await;
    for request in requests {
        hand.answer(request["id"].clone(), text("fine")).await;
    }
    for call in two {
        assert_eq!(call.await.unwrap().unwrap().text(), "fine");
    }
}

#[tokio::test]
async fn a_call_is_cancelled_once_and_only_while_it_runs() {
    let (connection, mut hand) = connect();
    let client = Client::builder(connection).build();
    // Answered: nothing to cancel.
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.discover().await });
    let id = hand.read().await["id"].clone();
    hand.answer(id, json!({ "supportedVersions": [], "capabilities": {} })).await;
    call.await.unwrap().unwrap();
    // Dropped: its own id, with a reason; and an answer that crosses it is passed over.
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.call_tool("t", json!({})).await });
    let id = hand.read().await["id"].clone();
    call.abort();
    let cancelled = hand.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!((&cancelled["params"]["requestId"], cancelled["id"].is_null()), (&id, true));
    assert!(cancelled["params"]["reason"].is_string());
    hand.answer(id, text("late")).await;
    // Late: cancelled as well.
    let slow = client.transport().clone().timeout(Duration::from_millis(20));
    let error = Client::builder(slow).build().call_tool("t", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("no answer within 20ms"), "{error}");
    let id = hand.read().await["id"].clone();
    assert_eq!(hand.read().await["params"]["requestId"], id);
}

#[tokio::test]
async fn a_log_message_is_heard_once_however_many_calls_wait() {
    let (connection, mut hand) = connect();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    let client = Client::builder(connection).on_log(LogLevel::Debug, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let client = client.build();
    for _ in 0..20 {
        let listening = client.listen(&SubscriptionFilter::default()).unwrap();
        tokio::spawn(listening.collect::<Vec<_>>());
        hand.read().await;
    }
    let calls: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call_tool("t", json!({})).await.unwrap() })
        })
        .collect();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(hand.read().await["id"].clone());
    }
    hand.notify("notifications/message", json!({ "level": "info", "data": "x" })).await;
    for id in ids {
        hand.answer(id, text("x")).await;
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(heard.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_server_may_end_a_subscription_by_cancelling_it() {
    let (connection, mut hand) = connect();
    let client = Client::builder(connection).build();
    let mut listening = client.listen(&SubscriptionFilter::default()).unwrap();
    let server = async {
        let id = hand.read().await["id"].clone();
        let tag = json!({ "io.modelcontextprotocol/subscriptionId": id });
        let other = json!({ "io.modelcontextprotocol/subscriptionId": 99 });
        hand.notify("notifications/tools/list_changed", json!({ "_meta": other })).await;
        hand.notify("notifications/prompts/list_changed", json!({ "_meta": tag })).await;
        hand.notify("notifications/cancelled", json!({ "requestId": id, "reason": "bye" })).await;
        hand
    };
    let heard = async { listening.by_ref().map(Result::unwrap).collect::<Vec<_>>().await };
    let (mut hand, heard) = tokio::join!(server, heard);
    assert_eq!(
        heard,
        [SubscriptionEvent::PromptsListChanged],
        "what is of another subscription is not for this one"
    );
    drop((listening, client, hand.writer));
    assert_eq!(hand.reader.read_line(&mut String::new()).await.unwrap(), 0, "it is not made anew");
}

/// Nobody polls the call while the server talks: what is kept for it has an end.
#[tokio::test]
async fn what_waits_for_a_call_that_is_not_polled_is_bounded() {
    let (connection, mut hand) = connect();
    let count = Arc::new(AtomicUsize::new(0));
    let (heard, request) = (Arc::clone(&count), request());
    let hear = move |_| drop(heard.fetch_add(1, Ordering::SeqCst).to_string());
    let outgoing = OutgoingRequest { heard: &hear, ..OutgoingRequest::new(request) };
    let mut call = Box::pin(connection.send(outgoing));
    // Once, so that it is sent.
    assert!(futures_util::poll!(&mut call).is_pending());
    assert_eq!(hand.read().await["id"], 1);
    for n in 0..5_000 {
        hand.notify("notifications/progress", json!({ "progressToken": 1, "progress": n })).await;
    }
    // The answer to another request comes after all of them.
    let other = Request::new(RequestId::Number(2), "x", self::request().params);
    let other = tokio::join!(connection.send(OutgoingRequest::new(other)), async {
        assert_eq!(hand.read().await["id"], 2);
        hand.answer(json!(2), json!({})).await;
    });
    other.0.unwrap();
    hand.answer(json!(1), json!({})).await;
    call.await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1_024);
}

/// What was missed is missed for good: the subscription breaks, and does not go on unheard at the server.
#[tokio::test]
async fn a_subscription_that_is_not_polled_is_broken_and_cancelled() {
    let (connection, mut hand) = connect();
    let outgoing = OutgoingRequest { long_lived: true, ..OutgoingRequest::new(request()) };
    let mut listening = Box::pin(connection.send(outgoing));
    assert!(futures_util::poll!(&mut listening).is_pending());
    assert_eq!(hand.read().await["id"], 1);
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": 1 });
    for _ in 0..2_000 {
        let changed = json!({ "_meta": meta });
        hand.notify("notifications/tools/list_changed", changed).await;
    }
    let error = listening.await.unwrap_err();
    assert!(error.is_broken() && error.to_string().contains("announcements"), "{error}");
    let cancelled = hand.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 1);
}

#[tokio::test]
async fn an_id_that_is_in_flight_is_not_used_twice() {
    let (connection, mut hand) = connect();
    let mut first = Box::pin(connection.send(OutgoingRequest::new(request())));
    assert!(futures_util::poll!(&mut first).is_pending());
    let second = connection.send(OutgoingRequest::new(request())).await.unwrap_err();
    assert!(second.is_unsent(), "{second}");
    hand.read().await;
    hand.answer(json!(1), json!({ "of": "the first" })).await;
    let result = first.await.unwrap().outcome.unwrap();
    assert!(result.get().contains("the first"));
}

fn request() -> Request {
    let params = Some(Params::new(&json!({})).unwrap());
    Request::new(RequestId::Number(1), "x", params)
}
