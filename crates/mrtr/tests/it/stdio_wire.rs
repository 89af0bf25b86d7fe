//! What goes over a stream, line by line: a client by hand on our server, and our client on a server by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::client::{Announcement, Exchange as _, Outgoing};
use mrtr::schema::jsonrpc::{Request, RequestId, Version, raw};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::stdio::{StreamClient, StreamLimits, serve_stream};
use mrtr::{Change, Changes, Client, Context, LogLevel, Server, Tool};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, duplex, split,
};
use tokio::sync::oneshot;

use crate::wire::params;

/// One end of a stream, by hand.
struct Hand {
    reader: BufReader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl Hand {
    fn new(stream: DuplexStream) -> Self {
        let (reader, writer) = split(stream);
        Self { reader: BufReader::new(reader), writer }
    }

    async fn write(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: impl Into<Value>, method: &str, more: Value) {
        let id: Value = id.into();
        let params = params(more);
        self.write(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.write(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    async fn answer(&mut self, id: Value, result: Value) {
        self.write(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }

    /// The next message; `Null` at the end of the stream.
    async fn read(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        if line.is_empty() {
            return Value::Null;
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        // Nobody sends what the other side may not get.
        assert!(message.get("method").is_none() || message.get("result").is_none(), "{message}");
        message
    }
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn until(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::SeqCst) != wanted {
        tokio::task::yield_now().await;
    }
}

struct Served {
    hand: Hand,
    running: Arc<AtomicUsize>,
    changes: Changes,
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
        counter.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&counter));
        async move {
            let _running = running;
            for n in 0_u32.. {
                cx.progress(f64::from(n), None, None);
                tokio::task::yield_now().await;
            }
            Ok("never")
        }
    };
    let tell = async |cx: Context| {
        cx.progress(1.0, Some(f64::NAN), None);
        cx.log(LogLevel::Info, "told");
        Ok("told")
    };
    let late = async |cx: Context| {
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
    let changes = Changes::new();
    let server = Server::builder("test", "1")
        .anonymous()
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
        while hand.read().await["id"] != "next" {}
        hand.call("last", "server/discover", json!({})).await;
        assert_eq!(hand.read().await["id"], "last");
        until(&running, 0).await;
    }
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
    server.close();
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
    let slow = client.connection().clone().timeout(Duration::from_millis(20));
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
        [Announcement::Prompts],
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
    let outgoing = Outgoing { heard: &hear, ..Outgoing::new(request) };
    let mut call = Box::pin(connection.exchange(outgoing));
    // Once, so that it is sent.
    assert!(futures_util::poll!(&mut call).is_pending());
    assert_eq!(hand.read().await["id"], 1);
    for n in 0..5_000 {
        hand.notify("notifications/progress", json!({ "progressToken": 1, "progress": n })).await;
    }
    // The answer to another request comes after all of them.
    let other = Request { id: RequestId::Number(2), ..self::request() };
    let other = tokio::join!(connection.exchange(Outgoing::new(other)), async {
        assert_eq!(hand.read().await["id"], 2);
        hand.answer(json!(2), json!({})).await;
    });
    other.0.unwrap();
    hand.answer(json!(1), json!({})).await;
    call.await.unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1_024);
}

#[tokio::test]
async fn an_id_that_is_in_flight_is_not_used_twice() {
    let (connection, mut hand) = connect();
    let mut first = Box::pin(connection.exchange(Outgoing::new(request())));
    assert!(futures_util::poll!(&mut first).is_pending());
    let second = connection.exchange(Outgoing::new(request())).await.unwrap_err();
    assert!(second.is_unsent(), "{second}");
    hand.read().await;
    hand.answer(json!(1), json!({ "of": "the first" })).await;
    let result = first.await.unwrap().outcome.unwrap();
    assert!(result.get().contains("the first"));
}

fn request() -> Request {
    let params = Some(raw(&json!({})).unwrap());
    Request { jsonrpc: Version, id: RequestId::Number(1), method: "x".to_owned(), params }
}
