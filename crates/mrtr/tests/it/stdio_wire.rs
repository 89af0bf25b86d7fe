//! What our server writes to a stream, line by line, to a client by hand.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use mrtr::stdio::{StreamLimits, serve_stream};
use mrtr::{Change, ChangeNotifier, Context, LogLevel, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader, duplex, split};
use tokio::sync::oneshot;

use crate::http_wire::params;
use crate::raw_peer::Hand;
use crate::server_process::{Running, until};

struct Served {
    hand: Hand,
    running: Arc<AtomicUsize>,
    changes: ChangeNotifier,
    server: Server,
    end: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

fn serve() -> Served {
    serve_over(1 << 16)
}

/// As [`serve`], over a pipe that holds so many bytes.
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
    let tell = async |cx: Context| -> mrtr::Result<_> {
        cx.progress(1.0, Some(f64::NAN), None);
        cx.log(LogLevel::Info, "told");
        Ok("told")
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
        .tool(Tool::new("tell", "", tell))
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
    Served { hand: Hand::new(ours), running, changes, server, end, task }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn meta(more: Value) -> Value {
    let Value::Object(mut params) = params(json!({ "name": "tell" })) else { unreachable!() };
    params["_meta"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Value::Object(params)
}

#[tokio::test]
async fn nothing_is_said_about_a_request_that_was_cancelled() {
    let Served { mut hand, running, .. } = serve();
    let mut wait = meta(json!({ "progressToken": "p" }));
    wait["name"] = json!("wait");
    for id in 1..20 {
        hand.call(id, "tools/call", wait.clone()).await;
        while hand.read().await["method"] != "notifications/progress" {}
        let reason = json!({ "requestId": id, "reason": "enough" });
        hand.notify("notifications/cancelled", reason).await;
        hand.call("next", "server/discover", json!({})).await;
        // What was written before the cancellation was read may still come; after the answer to the next
        // request nothing does, until there is one more.
        loop {
            let message = hand.read().await;
            if message["id"] == "next" {
                break;
            }
            assert_eq!(message["method"], "notifications/progress", "{message}");
        }
        hand.call("last", "server/discover", json!({})).await;
        assert_eq!(hand.read().await["id"], "last");
        until(&running, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_without_a_result_is_cancelled_by_the_server() {
    let Served { mut hand, end, task, changes, .. } = serve();
    let tools = json!({ "notifications": { "toolsListChanged": true } });
    hand.call("l", "subscriptions/listen", tools).await;
    assert_eq!(hand.read().await["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(changes.listeners(), 1);
    end.send(()).unwrap();
    let cancelled = hand.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], "l");
    assert_eq!(hand.read().await, Value::Null);
    task.await.unwrap();
    assert_eq!(changes.listeners(), 0, "nothing of it is kept");
}

/// What waits to be written when a request is cancelled is not written any more.
#[tokio::test]
async fn what_is_in_the_queue_of_a_cancelled_request_stays_there() {
    let Served { mut hand, running, .. } = serve_over(512);
    let mut wait = meta(json!({ "progressToken": "p" }));
    wait["name"] = json!("wait");
    hand.call(1, "tools/call", wait).await;
    // Nothing is read, so the pipe fills up, and then the queue.
    until(&running, 1).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    hand.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    until(&running, 0).await;
    hand.call("next", "server/discover", json!({})).await;
    let mut told = 0;
    while hand.read().await["id"] != "next" {
        told += 1;
    }
    // 512 bytes are not ten of them, and one was being written.
    assert!(told < 12, "{told} were written after the cancellation");
}

/// A client that reads nothing holds up neither the end of the server nor its own.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_does_not_hold_up_the_end() {
    let Served { mut hand, end, task, changes, .. } = serve_over(512);
    let tools = json!({ "notifications": { "toolsListChanged": true } });
    hand.call("l", "subscriptions/listen", tools).await;
    while changes.listeners() == 0 {
        tokio::task::yield_now().await;
    }
    // They are refused, until nothing more fits anywhere, and nothing more is read.
    let mut refused = 0;
    let flood = async {
        loop {
            hand.writer.write_all(b"{}\n").await.unwrap();
            refused += 1;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), flood).await;
    assert!((60..10_000).contains(&refused), "{refused}");
    for _ in 0..200 {
        changes.publish(Change::Tools);
    }
    end.send(()).unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn cancellations_that_make_no_sense_are_passed_over() {
    let Served { mut hand, .. } = serve();
    hand.call(1, "tools/call", json!({ "name": "tell" })).await;
    assert_eq!(hand.read().await["id"], 1);
    for params in [
        json!({ "requestId": 1 }),
        json!({ "requestId": 99 }),
        json!({ "requestId": null }),
        json!({ "requestId": {} }),
        json!({}),
        json!([1]),
        json!("x"),
    ] {
        hand.notify("notifications/cancelled", params).await;
    }
    hand.notify("notifications/unheard-of", json!({})).await;
    // An answered id may be used again at once.
    hand.call(1, "tools/call", json!({ "name": "tell" })).await;
    let answer = hand.read().await;
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(1), &json!("told"))
    );
}

#[tokio::test]
async fn notifications_belong_to_a_request_that_asked_for_them_and_end_with_it() {
    let Served { mut hand, .. } = serve();
    // Without a token and a level there are none.
    hand.call(1, "tools/call", json!({ "name": "tell" })).await;
    assert_eq!(hand.read().await["id"], 1);
    // Two at once, each with a token of its own.
    for token in ["a", "b"] {
        let more = json!({ "progressToken": token, "io.modelcontextprotocol/logLevel": "info" });
        hand.call(token, "tools/call", meta(more)).await;
    }
    let mut seen = Vec::new();
    for _ in 0..6 {
        let message = hand.read().await;
        let token = &message["params"]["progressToken"];
        seen.push(match message["method"].as_str() {
            Some("notifications/progress") => {
                assert_eq!(
                    message["params"].get("total"),
                    None,
                    "one that is no number is left out"
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
    hand.call(2, "tools/call", bad).await;
    assert_eq!(hand.read().await["error"]["code"], -32602);
}

#[tokio::test]
async fn after_its_response_nothing_more_is_said_about_a_request() {
    let Served { mut hand, .. } = serve();
    let mut late = meta(json!({ "progressToken": 1, "io.modelcontextprotocol/logLevel": "debug" }));
    late["name"] = json!("late");
    for id in 1..50 {
        hand.call(id, "tools/call", late.clone()).await;
        while hand.read().await["id"] != id {}
        hand.call("after", "server/discover", json!({})).await;
        assert_eq!(hand.read().await["id"], "after");
    }
}

/// Reads what is announced: the method, the subscription and the URI.
async fn announced(hand: &mut Hand) -> (String, Value, Value) {
    let message = hand.read().await;
    let id = message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
    let method = message["method"].as_str().unwrap_or_default();
    let method = method.strip_prefix("notifications/").unwrap_or_default();
    (method.to_owned(), id, message["params"]["uri"].clone())
}

#[tokio::test]
async fn subscriptions_share_a_stream_and_are_told_apart_by_their_ids() {
    let Served { mut hand, changes, server, end, task, .. } = serve();
    // The types of ids are kept: 1 and "1" are two.
    let tools = json!({ "notifications": { "toolsListChanged": true } });
    hand.call(1, "subscriptions/listen", tools.clone()).await;
    let ack = "subscriptions/acknowledged".to_owned();
    assert_eq!(announced(&mut hand).await, (ack.clone(), json!(1), Value::Null));
    hand.call("1", "subscriptions/listen", tools).await;
    assert_eq!(announced(&mut hand).await, (ack, json!("1"), Value::Null));
    changes.publish(Change::Prompts);
    changes.publish(Change::Tools);
    let mut both = [announced(&mut hand).await, announced(&mut hand).await];
    both.sort_by_key(|(_, id, _)| id.is_string());
    let tools = "tools/list_changed".to_owned();
    assert_eq!(
        both,
        [(tools.clone(), json!(1), Value::Null), (tools.clone(), json!("1"), Value::Null)]
    );
    // Log messages of others do not get here, and one that is cancelled hears nothing more.
    hand.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    hand.call("tell", "tools/call", meta(json!({ "progressToken": 5 }))).await;
    assert_eq!(hand.read().await["params"]["progressToken"], 5);
    assert_eq!(hand.read().await["id"], "tell");
    changes.publish(Change::Tools);
    assert_eq!(announced(&mut hand).await, (tools, json!("1"), Value::Null));
    // The server ends it, by its result.
    server.begin_shutdown();
    end.send(()).unwrap();
    let ended = hand.read().await;
    assert_eq!((&ended["id"], &ended["result"]["resultType"]), (&json!("1"), &json!("complete")));
    let meta = &ended["result"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], "1");
    assert_eq!(meta["io.modelcontextprotocol/serverInfo"]["name"], "test");
    assert_eq!(hand.read().await, Value::Null, "and then its stream");
    task.await.unwrap();
}

#[tokio::test]
async fn the_acknowledgement_comes_before_any_change() {
    let Served { mut hand, changes, .. } = serve();
    let publishing = tokio::spawn(async move {
        loop {
            changes.publish(Change::Tools);
            tokio::task::yield_now().await;
        }
    });
    for id in 1..30 {
        let tools = json!({ "notifications": { "toolsListChanged": true } });
        hand.call(id, "subscriptions/listen", tools).await;
        loop {
            let (method, of, _) = announced(&mut hand).await;
            if of == id {
                assert_eq!(method, "subscriptions/acknowledged");
                break;
            }
        }
        hand.notify("notifications/cancelled", json!({ "requestId": id })).await;
    }
    publishing.abort();
}
