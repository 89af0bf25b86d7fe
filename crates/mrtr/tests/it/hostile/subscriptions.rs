//! Subscriptions at hostile servers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::Client;
use mrtr::client::SubscriptionEvent;
use mrtr::schema::subscription::SubscriptionFilter;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Hostile, Reply};

/// On several threads, the next part of a stream may arrive before this one is handled. The client
/// reads no further than its caller takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscription_without_end_is_read_as_it_is_taken() {
    let acknowledged = json!({ "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged", "params": { "notifications": {} } });
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {acknowledged}\n\n"
    );
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    for again in [format!("data: {changed}\n\n"), ": x\n".to_owned()] {
        let (head, again) = (head.clone(), again.repeat(1_000));
        let reply = move |_: &Value| Reply::Endless(head.clone(), again.clone(), None);
        let hostile = Hostile::serve(reply).await;
        let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
        let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
        let first = events.next().await;
        assert!(matches!(first, Some(Ok(SubscriptionEvent::Acknowledged(_)))), "{first:?}");
        let second = timeout(Duration::from_millis(100), events.next()).await;
        assert!(matches!(second, Err(_) | Ok(Some(Ok(SubscriptionEvent::ToolsListChanged)))));
        let written = hostile.written.load(Ordering::SeqCst);
        assert!(written < 1 << 30, "{written} bytes");
    }
}

#[tokio::test]
async fn events_before_an_error_are_not_lost() {
    let reply = |id: &Value| {
        let messages = [
            json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": { "notifications": { "toolsListChanged": true } } }),
            json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }),
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32603, "message": "x" } }),
        ];
        let [first, second, third] = messages;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        Reply::Raw(format!("{head}data: {first}\n\ndata: {second}\n\ndata: {third}\n\n"))
    };
    let hostile = Hostile::serve(reply).await;
    let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    let first = events.next().await;
    assert!(matches!(first, Some(Ok(SubscriptionEvent::Acknowledged(_)))), "{first:?}");
    let second = events.next().await;
    assert!(matches!(second, Some(Ok(SubscriptionEvent::ToolsListChanged))), "{second:?}");
    assert!(events.next().await.unwrap().is_err());
    assert!(events.next().await.is_none());
}

/// A subscription that the server rejects for lack of capacity is requested again.
#[tokio::test]
async fn subscription_is_retried_after_503() {
    let requests = AtomicUsize::new(0);
    let reply = move |id: &Value| {
        let busy = json!({ "jsonrpc": "2.0", "id": id,
            "error": { "code": -32603, "message": "too many requests are in flight" } });
        let length = busy.to_string().len();
        let acknowledged = json!({ "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged", "params": { "notifications": {} } });
        Reply::Raw(match requests.fetch_add(1, Ordering::SeqCst) {
            0 => format!(
                "HTTP/1.1 503 X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{busy}"
            ),
            _ => format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {acknowledged}\n\n"
            ),
        })
    };
    let hostile = Hostile::serve(reply).await;
    let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    let first = events.next().await;
    assert!(matches!(first, Some(Ok(SubscriptionEvent::Acknowledged(_)))), "{first:?}");
}

/// The server may keep the stream open, or close it without a response.
#[tokio::test]
async fn subscription_that_the_server_cancels_ends() {
    let reply = move |id: &Value| {
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": { "requestId": id, "reason": "no more changes" } });
        Reply::Raw(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {cancelled}\n\n"
        ))
    };
    let hostile = Hostile::serve(reply).await;
    let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    let event = events.next().await;
    assert!(event.is_none(), "{event:?}");
}
