//! Event streams over HTTP: their content, and how each side ends them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::http::{Endpoint, HttpClient, ServeOptions};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::{Change, ChangeNotifier, Client, Context, LogLevel, Resource, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::http_wire::{Head, connect, params};
use crate::server_process::{Running, until};

struct Served {
    port: u16,
    running: Arc<AtomicUsize>,
    changes: ChangeNotifier,
    server: Server,
}

async fn serve() -> Served {
    serve_with(ServeOptions::default()).await
}

async fn serve_with(options: ServeOptions) -> Served {
    let running = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&running);
    let flooding = Arc::clone(&running);
    let flood = move |cx: Context| {
        let running = Running::new(&flooding);
        async move {
            let _running = running;
            loop {
                cx.log(LogLevel::Info, "x".repeat(4096));
                tokio::task::yield_now().await;
            }
            #[expect(unreachable_code, reason = "states the output type")]
            Ok::<_, mrtr::Error>("")
        }
    };
    let wait = move |cx: Context| {
        let running = Running::new(&counter);
        async move {
            let _running = running;
            cx.progress(1.0, None, None);
            cx.log(LogLevel::Info, "waits");
            std::future::pending::<mrtr::Result<String>>().await
        }
    };
    let changes = ChangeNotifier::new();
    let server = Server::builder("test", "1")
        .ephemeral_key()
        .allow_anonymous()
        .changes(changes.clone())
        .tool(Tool::new("wait", "", wait))
        .tool(Tool::new("flood", "", flood))
        .resource(Resource::new("a:1", "one", async |_: Context| "x"))
        .build()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (endpoint, forever) = (Endpoint::new(server.clone()), std::future::pending());
    tokio::spawn(mrtr::http::serve(listener, endpoint, options, forever));
    Served { port, running, changes, server }
}

/// A request whose response is an event stream, read line by line.
struct Events(BufReader<TcpStream>);

impl Events {
    async fn open(port: u16, id: Value, method: &str, name: Option<&str>, more: Value) -> Self {
        let mut stream = connect(port).await;
        let body =
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": more }).to_string();
        let head = Head::new(method, name).text("POST");
        let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(text.as_bytes()).await.unwrap();
        Self(BufReader::new(stream))
    }

    /// Reads the next event; `None` at the end of the body.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
            // The last chunk of a chunked body.
            if line == "0\r\n" || line.is_empty() {
                return None;
            }
        }
    }
}

fn with_token(token: Value) -> Value {
    let mut params = params(json!({ "name": "wait" }));
    params["_meta"]["progressToken"] = token;
    params
}

/// The client keeps its connection open, and reads nothing.
#[tokio::test]
async fn handler_is_dropped_if_the_client_reads_no_events() {
    let header_timeout = Duration::from_millis(50);
    let Served { port, running, .. } =
        serve_with(ServeOptions::default().with_header_timeout(header_timeout)).await;
    let mut params = params(json!({ "name": "flood" }));
    params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info");
    let _unread = Events::open(port, json!(1), "tools/call", Some("flood"), params).await;
    until(&running, 1).await;
    until(&running, 0).await;
}

#[tokio::test]
async fn handler_is_dropped_if_the_client_disconnects() {
    let Served { port, running, .. } = serve().await;
    for token in [Value::Null, json!(1)] {
        let is_silent = token.is_null();
        let params = if is_silent { params(json!({ "name": "wait" })) } else { with_token(token) };
        let mut call = Events::open(port, json!(1), "tools/call", Some("wait"), params).await;
        until(&running, 1).await;
        if !is_silent {
            assert_eq!(call.next().await.unwrap()["params"]["progress"], 1.0);
        }
        drop(call);
        until(&running, 0).await;
    }
}

#[tokio::test]
async fn stream_contains_only_notifications_of_its_request() {
    let Served { port, changes, .. } = serve().await;
    let mut listening = params(
        json!({ "notifications": { "resourcesListChanged": true, "toolsListChanged": true } }),
    );
    listening["_meta"]["io.modelcontextprotocol/logLevel"] = json!("debug");
    let mut listening = Events::open(port, json!(1), "subscriptions/listen", None, listening).await;
    listening.next().await.unwrap();
    let mut calls = Vec::new();
    for token in ["a", "b"] {
        let params = with_token(json!(token));
        calls.push(Events::open(port, json!(token), "tools/call", Some("wait"), params).await);
    }
    for (call, token) in calls.iter_mut().zip(["a", "b"]) {
        assert_eq!(call.next().await.unwrap()["params"]["progressToken"], token);
    }
    let mut loud = with_token(json!("c"));
    loud["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info");
    let mut loud = Events::open(port, json!("c"), "tools/call", Some("wait"), loud).await;
    assert_eq!(loud.next().await.unwrap()["params"]["progressToken"], "c");
    assert_eq!(loud.next().await.unwrap()["params"]["data"], "waits");
    changes.publish(Change::Tools);
    assert_eq!(listening.next().await.unwrap()["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn subscription_carries_its_request_id_and_ends_with_a_result() {
    for id in [json!("one"), json!(1)] {
        let Served { port, changes, server, .. } = serve().await;
        let filter = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["a:1"] } });
        let mut events =
            Events::open(port, id.clone(), "subscriptions/listen", None, params(filter)).await;
        let tag = |message: &Value, at: &str| {
            message[at]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
        };
        let first = events.next().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(tag(&first, "params"), id);
        changes.publish(Change::Tools);
        assert_eq!(tag(&events.next().await.unwrap(), "params"), id);
        changes.publish(Change::Resource("a:1".to_owned()));
        let updated = events.next().await.unwrap();
        assert_eq!(
            (tag(&updated, "params"), &updated["params"]["uri"]),
            (id.clone(), &json!("a:1"))
        );
        server.begin_shutdown();
        let last = events.next().await.unwrap();
        assert_eq!((&last["id"], &last["result"]["resultType"]), (&id, &json!("complete")));
        assert_eq!(tag(&last, "result"), id);
        assert_eq!(events.next().await, None);
    }
}

/// Yields often enough for all other tasks of the test to run until they wait.
async fn run_other_tasks() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Accepts a connection and reads one request, without a response.
async fn accept(listener: &TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"}") {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0);
    }
    (stream, String::from_utf8(bytes).unwrap().to_lowercase())
}

#[tokio::test]
async fn client_accepts_json_and_sse_and_cancels_by_disconnecting() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", listener.local_addr().unwrap().port());
    let client = mrtr::connect(&url).unwrap().build();
    let call = tokio::spawn(async move { client.call_tool("t", json!({})).await });
    let (mut stream, request) = accept(&listener).await;
    assert!(request.contains("accept: application/json, text/event-stream\r\n"), "{request}");
    call.abort();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0, "{rest:?}");
    // A request that times out is cancelled in the same way.
    let slow = HttpClient::builder(&url).timeout(Duration::from_millis(20)).build().unwrap();
    let client = Client::builder(slow).build();
    let (error, (mut stream, _)) =
        tokio::join!(client.call_tool("t", json!({})), accept(&listener));
    let error = error.unwrap_err();
    assert!(error.to_string().contains("did not answer in time"), "{error}");
    assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0, "{rest:?}");
    run_other_tasks().await;
    let again = futures_util::poll!(std::pin::pin!(listener.accept()));
    assert!(again.is_pending(), "no cancellation is sent");
}

#[tokio::test]
async fn client_answers_no_request_from_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", listener.local_addr().unwrap().port());
    let client = mrtr::connect(&url).unwrap().build();
    let server = async {
        let (mut stream, _) = accept(&listener).await;
        let event = r#"data: {"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        stream.write_all(format!("{head}{event}\n\n").as_bytes()).await.unwrap();
        stream
    };
    let (error, _stream) = tokio::join!(client.call_tool("t", json!({})), server);
    assert!(error.unwrap_err().is_protocol());
    run_other_tasks().await;
    let again = futures_util::poll!(std::pin::pin!(listener.accept()));
    assert!(again.is_pending(), "no response is sent");
}

#[tokio::test]
async fn dropped_subscription_ends_at_the_server() {
    let Served { port, changes, .. } = serve().await;
    let client = mrtr::connect(format!("http://127.0.0.1:{port}/mcp")).unwrap().build();
    let mut listening = client.listen(&SubscriptionFilter::default()).unwrap();
    listening.next().await.unwrap().unwrap();
    assert_eq!(changes.listeners(), 1);
    drop(listening);
    while changes.listeners() != 0 {
        tokio::task::yield_now().await;
    }
}
