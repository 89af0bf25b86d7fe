//! The messages of the server on a byte stream, with a raw peer as the client.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use mrtr::stdio::{StreamLimits, serve_stream};
use mrtr::{Change, ChangeNotifier, Context, LogLevel, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader, duplex, split};
use tokio::sync::oneshot;

use crate::http_wire::params;
use crate::raw_peer::RawPeer;
use crate::server_process::{Running, until};

struct Served {
    peer: RawPeer,
    running: Arc<AtomicUsize>,
    changes: ChangeNotifier,
    server: Server,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

fn serve() -> Served {
    serve_over(1 << 16)
}

/// Like [`serve`], over a pipe with a buffer of `bytes`.
fn serve_over(bytes: usize) -> Served {
    let running = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&running);
    let wait = move |cx: Context| {
        let running = Running::new(&counter);
        async move {
            let _running = running;
            for n in 0_u32.. {
                cx.progress(f64::from(n), None, None);
                tokio::task::yield_now().await;
            }
            Ok::<_, mrtr::Error>("never")
        }
    };
    let notify = async |cx: Context| -> mrtr::Result<_> {
        cx.progress(1.0, Some(f64::NAN), None);
        cx.log(LogLevel::Info, "message");
        Ok("notified")
    };
    let late = async |cx: Context| -> mrtr::Result<_> {
        cx.progress(1.0, None, None);
        tokio::spawn(async move {
            for n in 2_u32..100 {
                cx.progress(f64::from(n), None, None);
                cx.log(LogLevel::Info, n);
                tokio::task::yield_now().await;
            }
        });
        tokio::task::yield_now().await;
        Ok("answered")
    };
    let changes = ChangeNotifier::new();
    let server = Server::builder("test", "1")
        .ephemeral_key()
        .allow_anonymous()
        .changes(changes.clone())
        .tool(Tool::new("wait", "", wait))
        .tool(Tool::new("notify", "", notify))
        .tool(Tool::new("late", "", late))
        .build()
        .unwrap();
    let (ours, theirs) = duplex(bytes);
    let (end, ended) = oneshot::channel();
    let replica = server.clone();
    let task = tokio::spawn(async move {
        let (reader, writer) = split(theirs);
        let shutdown = async move {
            if ended.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let limits = StreamLimits::default();
        serve_stream(replica, BufReader::new(reader), writer, limits, shutdown).await.unwrap();
    });
    Served { peer: RawPeer::new(ours), running, changes, server, end, task }
}

#[expect(clippy::needless_pass_by_value, reason = "shorter at the call")]
fn meta(more: Value) -> Value {
    let Value::Object(mut params) = params(json!({ "name": "notify" })) else { unreachable!() };
    params["_meta"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Value::Object(params)
}

#[tokio::test]
async fn cancelled_request_gets_no_further_messages() {
    let Served { mut peer, running, .. } = serve();
    let mut wait = meta(json!({ "progressToken": "p" }));
    wait["name"] = json!("wait");
    for id in 1..20 {
        peer.call(id, "tools/call", wait.clone()).await;
        while peer.read().await["method"] != "notifications/progress" {}
        let reason = json!({ "requestId": id, "reason": "enough" });
        peer.notify("notifications/cancelled", reason).await;
        peer.call("next", "server/discover", json!({})).await;
        // Notifications that were written before the server read the cancellation may still arrive.
        // After the next response, no more do.
        loop {
            let message = peer.read().await;
            if message["id"] == "next" {
                break;
            }
            assert_eq!(message["method"], "notifications/progress", "{message}");
        }
        peer.call("last", "server/discover", json!({})).await;
        assert_eq!(peer.read().await["id"], "last");
        until(&running, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn server_cancels_a_subscription_that_ends_without_a_result() {
    let Served { mut peer, end, task, changes, .. } = serve();
    let tools = json!({ "notifications": { "toolsListChanged": true } });
    peer.call("l", "subscriptions/listen", tools).await;
    assert_eq!(peer.read().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(changes.listeners(), 1);
    end.send(()).unwrap();
    let cancelled = peer.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], "l");
    assert_eq!(peer.read().await, Value::Null);
    task.await.unwrap();
    assert_eq!(changes.listeners(), 0, "the subscription is removed");
}

/// Notifications that are queued when their request is cancelled are not written.
#[tokio::test]
async fn queued_notifications_of_a_cancelled_request_are_dropped() {
    let Served { mut peer, running, .. } = serve_over(512);
    let mut wait = meta(json!({ "progressToken": "p" }));
    wait["name"] = json!("wait");
    peer.call(1, "tools/call", wait).await;
    // The client reads nothing, so the pipe fills up, and then the queue.
    until(&running, 1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    peer.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    until(&running, 0).await;
    peer.call("next", "server/discover", json!({})).await;
    let mut written = 0;
    while peer.read().await["id"] != "next" {
        written += 1;
    }
    // The pipe holds fewer than ten notifications, and one more was being written.
    assert!(written < 12, "{written} were written after the cancellation");
}

/// The server shuts down although the client does not read its output.
#[tokio::test(start_paused = true)]
async fn unread_output_does_not_delay_the_shutdown() {
    let Served { mut peer, end, task, changes, .. } = serve_over(512);
    let tools = json!({ "notifications": { "toolsListChanged": true } });
    peer.call("l", "subscriptions/listen", tools).await;
    while changes.listeners() == 0 {
        tokio::task::yield_now().await;
    }
    // The server rejects each message until all buffers are full, and then stops reading.
    let mut rejected = 0;
    let flood = async {
        loop {
            peer.writer.write_all(b"{}\n").await.unwrap();
            rejected += 1;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), flood).await;
    assert!((60..10_000).contains(&rejected), "{rejected}");
    for _ in 0..200 {
        changes.publish(Change::Tools);
    }
    end.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), task).await;
    ended.unwrap().unwrap();
}

#[tokio::test]
async fn invalid_cancellations_are_ignored() {
    let Served { mut peer, .. } = serve();
    peer.call(1, "tools/call", json!({ "name": "notify" })).await;
    assert_eq!(peer.read().await["id"], 1);
    for params in [
        json!({ "requestId": 1 }),
        json!({ "requestId": 99 }),
        json!({ "requestId": null }),
        json!({ "requestId": {} }),
        json!({}),
        json!([1]),
        json!("x"),
    ] {
        peer.notify("notifications/cancelled", params).await;
    }
    peer.notify("notifications/unknown", json!({})).await;
    // The id of an answered request may be reused at once.
    peer.call(1, "tools/call", json!({ "name": "notify" })).await;
    let answer = peer.read().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(1), &json!("notified"))
    );
}

#[tokio::test]
async fn notifications_are_opt_in_and_precede_the_response() {
    let Served { mut peer, .. } = serve();
    // Without a progress token and a log level, there are no notifications.
    peer.call(1, "tools/call", json!({ "name": "notify" })).await;
    assert_eq!(peer.read().await["id"], 1);
    // Two concurrent calls, each with its own token.
    for token in ["a", "b"] {
        let more = json!({ "progressToken": token, "io.modelcontextprotocol/logLevel": "info" });
        peer.call(token, "tools/call", meta(more)).await;
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        let message = peer.read().await;
        let token = &message["params"]["progressToken"];
        seen.push(match message["method"].as_str() {
            Some("notifications/progress") => {
                assert_eq!(
                    message["params"].get("total"),
                    None,
                    "a total that is not a number is omitted"
                );
                format!("progress {token}")
            }
            Some(_) => "log".to_owned(),
            None => format!("result {}", message["id"]),
        });
    }
    for id in ["\"a\"", "\"b\""] {
        let at = |what: &str| seen.iter().position(|s| *s == format!("{what} {id}")).unwrap();
        assert!(at("progress") < at("result"), "{seen:?}");
    }
    let bad = meta(json!({ "io.modelcontextprotocol/logLevel": "loud" }));
    peer.call(2, "tools/call", bad).await;
    assert_eq!(peer.read().await["error"]["code"], -32602);
}

#[tokio::test]
async fn no_notification_follows_the_response() {
    let Served { mut peer, .. } = serve();
    let mut late = meta(json!({ "progressToken": 1, "io.modelcontextprotocol/logLevel": "debug" }));
    late["name"] = json!("late");
    for id in 1..50 {
        peer.call(id, "tools/call", late.clone()).await;
        while peer.read().await["id"] != id {}
        peer.call("after", "server/discover", json!({})).await;
        assert_eq!(peer.read().await["id"], "after");
    }
}

/// Reads a notification of a subscription: its method, its subscription and its URI.
async fn read_notification(peer: &mut RawPeer) -> (String, Value, Value) {
    let message = peer.read().await;
    let id = message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    let method = message["method"].as_str().unwrap_or_default();
    let method = method.strip_prefix("notifications/").unwrap_or_default();
    (method.to_owned(), id, message["params"]["uri"].clone())
}

#[tokio::test]
async fn subscriptions_on_one_stream_are_distinguished_by_id() {
    let Served { mut peer, changes, server, end, task, .. } = serve();
    // Ids keep their type: 1 and "1" are different.
    let tools = json!({ "notifications": { "toolsListChanged": true } });
    peer.call(1, "subscriptions/listen", tools.clone()).await;
    let acknowledged = "subscriptions/acknowledged".to_owned();
    assert_eq!(read_notification(&mut peer).await, (acknowledged.clone(), json!(1), Value::Null));
    peer.call("1", "subscriptions/listen", tools).await;
    assert_eq!(read_notification(&mut peer).await, (acknowledged, json!("1"), Value::Null));
    changes.publish(Change::Prompts);
    changes.publish(Change::Tools);
    let mut both = [read_notification(&mut peer).await, read_notification(&mut peer).await];
    both.sort_by_key(|(_, id, _)| id.is_string());
    let tools = "tools/list_changed".to_owned();
    assert_eq!(
        both,
        [(tools.clone(), json!(1), Value::Null), (tools.clone(), json!("1"), Value::Null)]
    );
    // A subscription gets no messages of calls, and a cancelled one gets no further notifications.
    peer.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    peer.call("notify", "tools/call", meta(json!({ "progressToken": 5 }))).await;
    assert_eq!(peer.read().await["params"]["progressToken"], 5);
    assert_eq!(peer.read().await["id"], "notify");
    changes.publish(Change::Tools);
    assert_eq!(read_notification(&mut peer).await, (tools, json!("1"), Value::Null));
    // The server ends the subscription with a result.
    server.begin_shutdown();
    end.send(()).unwrap();
    let ended = peer.read().await;
    assert_eq!((&ended["id"], &ended["result"]["resultType"]), (&json!("1"), &json!("complete")));
    let meta = &ended["result"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], "1");
    assert_eq!(meta["io.modelcontextprotocol/serverInfo"]["name"], "test");
    assert_eq!(peer.read().await, Value::Null, "the stream ends after the result");
    task.await.unwrap();
}

#[tokio::test]
async fn acknowledgement_precedes_all_changes() {
    let Served { mut peer, changes, .. } = serve();
    let publishing = tokio::spawn(async move {
        loop {
            changes.publish(Change::Tools);
            tokio::task::yield_now().await;
        }
    });
    for id in 1..30 {
        let tools = json!({ "notifications": { "toolsListChanged": true } });
        peer.call(id, "subscriptions/listen", tools).await;
        loop {
            let (method, of, _) = read_notification(&mut peer).await;
            if of == id {
                assert_eq!(method, "subscriptions/acknowledged");
                break;
            }
        }
        peer.notify("notifications/cancelled", json!({ "requestId": id })).await;
    }
    publishing.abort();
}
