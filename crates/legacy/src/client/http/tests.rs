//! Sessions with servers that send raw HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::http::HeaderMap;
use mrtr_schema::jsonrpc::{Notification, Params, Request, RequestId};
use mrtr_transport::http::HttpClient;
use mrtr_transport::{OutgoingRequest, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::any_revision::AnyRevisionClient;
use super::session::HttpSession;
use crate::RevisionMode;
use crate::client::adapter::Adapter;
use crate::client::connection::Connection;

/// Fails instead of waiting for ever. The clock is paused, so it does not take time.
async fn soon<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_hours(1), awaited).await.unwrap()
}

/// A request at the server: its head, in lower case, and its body.
struct Received {
    head: String,
    body: Value,
}

async fn receive(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        line.make_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Received { head, body: serde_json::from_slice(&body).unwrap_or_default() })
}

/// Starts a server that answers each request with the text that `reply` returns, and then closes
/// the connection. A text without `connection: close` keeps it open.
async fn serve(reply: impl Fn(Received) -> String + Send + Sync + 'static) -> HttpSession {
    HttpSession::new(client_of(reply).await)
}

async fn client_of(reply: impl Fn(Received) -> String + Send + Sync + 'static) -> HttpClient {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let reply = Arc::new(reply);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let reply = Arc::clone(&reply);
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let Some(received) = receive(&mut stream).await else { return };
                let text = reply(received);
                stream.write_all(text.as_bytes()).await.unwrap();
                if !text.contains("connection: close") {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    HttpClient::builder(&url).timeout(Duration::from_secs(5)).build().unwrap()
}

fn response(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nmcp-session-id: s\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn events(body: &str) -> String {
    response("200 OK", "text/event-stream", body)
}

fn initialized(id: &Value) -> Value {
    let result = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "serverInfo": { "name": "raw", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The response to `initialize` of a server that announces changes of its tools.
fn announcing(id: &Value) -> String {
    let mut initialized = initialized(id);
    initialized["result"]["capabilities"] = json!({ "tools": { "listChanged": true } });
    response("200 OK", "application/json", &initialized.to_string())
}

/// An event stream that stays open.
const OPEN_STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

fn listen(filter: &Value) -> OutgoingRequest<'static> {
    let params = Params::new(&json!({ "notifications": filter, "_meta": {} })).unwrap();
    OutgoingRequest::new(Request::new(RequestId::Number(8), "subscriptions/listen", Some(params)))
}

const CAPABILITIES: &str =
    r#"{ "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } } }"#;

fn call() -> OutgoingRequest<'static> {
    let meta: Value = CAPABILITIES.parse().unwrap();
    let params = Params::new(&json!({ "name": "t", "_meta": meta })).unwrap();
    OutgoingRequest::new(Request::new(RequestId::Number(7), "tools/call", Some(params)))
}

/// The releases of a server change behind its address.
#[tokio::test(start_paused = true)]
async fn server_that_is_replaced_is_asked_again_what_it_speaks() {
    let speaks_current = Arc::<AtomicBool>::default();
    let is_current = Arc::clone(&speaks_current);
    let http = client_of(move |Received { head, body }| {
        let is_current = is_current.load(Ordering::SeqCst);
        let json = |status, body: Value| response(status, "application/json", &body.to_string());
        let result = |result| json!({ "jsonrpc": "2.0", "id": body["id"], "result": result });
        let error = |code| {
            let error = json!({ "code": code, "message": "no" });
            json!({ "jsonrpc": "2.0", "id": body["id"], "error": error })
        };
        match body["method"].as_str() {
            Some("server/discover") if is_current => {
                let versions = json!({ "supportedVersions": ["2026-07-28"], "capabilities": {} });
                json("200 OK", result(versions))
            }
            Some("tools/call") if is_current && head.contains("mcp-method: tools/call") => {
                json("200 OK", result(json!({ "content": [], "resultType": "complete" })))
            }
            Some(_) if is_current && head.contains("mcp-session-id") => {
                response("404 Not Found", "text/plain", "")
            }
            _ if is_current => json("400 Bad Request", error(-32_602)),
            Some("initialize") => json("200 OK", initialized(&body["id"])),
            Some("tools/call") if head.contains("mcp-session-id") => {
                json("200 OK", result(json!({ "content": [] })))
            }
            Some("tools/call" | "server/discover") => json("400 Bad Request", error(-32_000)),
            Some(_) => response("202 Accepted", "text/plain", ""),
            None => response("405 Method Not Allowed", "text/plain", ""),
        }
    });
    let client = AnyRevisionClient::new(http.await, RevisionMode::Auto);
    for (is_current, version) in
        [(false, "2025-11-25"), (true, "2026-07-28"), (false, "2025-11-25")]
    {
        speaks_current.store(is_current, Ordering::SeqCst);
        // The first request finds out, and may fail.
        let first = client.send(call()).await;
        assert!(version == "2025-11-25" || first.is_err(), "{first:?}");
        let second = client.send(call()).await.unwrap();
        assert!(second.outcome.is_ok(), "{second:?}");
        assert_eq!(client.protocol_version(), Some(version));
    }
}

#[tokio::test(start_paused = true)]
async fn call_is_not_repeated_if_its_session_ends_after_the_server_has_accepted_it() {
    let calls = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&calls);
    let session = serve(move |Received { head, body }| match body["method"].as_str() {
        Some("initialize") => {
            response("200 OK", "application/json", &initialized(&body["id"]).to_string())
        }
        Some("tools/call") => {
            counter.fetch_add(1, Ordering::SeqCst);
            events("id: 1\nretry: 1\ndata:\n\n")
        }
        Some(_) => response("202 Accepted", "text/plain", ""),
        None if head.contains("last-event-id") => response("404 Not Found", "text/plain", ""),
        None => response("405 Method Not Allowed", "text/plain", ""),
    });
    let error = Adapter::new(session.await).send(call()).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("ended the session"), "{error}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn stream_is_resumed_if_an_answer_is_not_accepted() {
    let answers = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&answers);
    let session = serve(move |Received { head, body }| match body["method"].as_str() {
        Some("initialize") => {
            response("200 OK", "application/json", &initialized(&body["id"]).to_string())
        }
        Some("tools/call") => {
            // The stream stays open.
            let params = json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } });
            let question = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params });
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            format!("{head}id: 1\nretry: 1\ndata: {question}\n\n")
        }
        Some(_) => response("202 Accepted", "text/plain", ""),
        // At first, no replica is there.
        None if body["id"] == "q" => match counter.fetch_add(1, Ordering::SeqCst) {
            0 => response("502 Bad Gateway", "text/plain", ""),
            _ => response("400 Bad Request", "text/plain", ""),
        },
        None if head.contains("last-event-id: 1\r\n") => {
            let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } });
            events(&format!("data: {result}\n\n"))
        }
        None => response("405 Method Not Allowed", "text/plain", ""),
    });
    let adapter = Adapter::new(session.await);
    let suspended = soon(adapter.send(call())).await.unwrap().outcome.unwrap();
    let suspended: Value = serde_json::from_str(suspended.get()).unwrap();
    let key = suspended["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let params = json!({
        "name": "t",
        "_meta": CAPABILITIES.parse::<Value>().unwrap(),
        "requestState": suspended["requestState"],
        "inputResponses": { key: { "action": "decline" } },
    });
    let params = Params::new(&params).unwrap();
    let request = Request::new(RequestId::Number(8), "tools/call", Some(params));
    let response = soon(adapter.send(OutgoingRequest::new(request))).await.unwrap();
    assert_eq!(response.outcome.unwrap().get(), r#"{"content":[]}"#);
    assert_eq!(answers.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn messages_before_the_response_to_initialize_are_discarded() {
    let session = serve(|Received { body, .. }| match body["method"].as_str() {
        Some("initialize") => {
            let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
            let log = format!("data: {log}\n\n").repeat(5);
            events(&format!("{log}data: {}\n\n", initialized(&body["id"])))
        }
        Some("tools/call") => {
            let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } });
            response("200 OK", "application/json", &result.to_string())
        }
        _ => response("202 Accepted", "text/plain", ""),
    });
    let response = soon(Adapter::new(session.await).send(call())).await.unwrap();
    assert_eq!(response.outcome.unwrap().get(), r#"{"content":[]}"#);
}

#[tokio::test(start_paused = true)]
async fn silent_server_does_not_hang_what_is_not_a_call() {
    let silent = serve(|_| String::new()).await;
    let error = soon(Adapter::new(silent).send(call())).await.unwrap_err();
    assert!(error.to_string().contains("did not answer in time"), "{error}");

    let silent = serve(|_| String::new()).await;
    soon(silent.post(&HeaderMap::new(), "{}".to_owned())).await.unwrap_err();

    // The body of an error never ends.
    let head = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 9\r\n\r\n";
    let session = serve(|_| head.to_owned()).await;
    soon(session.post(&HeaderMap::new(), "{}".to_owned())).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn stream_of_the_session_is_tried_again_only_if_the_server_may_have_one() {
    for (status, has_stream) in [
        ("500 Internal Server Error", true),
        ("409 Conflict", true),
        ("405 Method Not Allowed", false),
        ("501 Not Implemented", false),
    ] {
        let streams = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&streams);
        let session = serve(move |Received { head, body }| match body["method"].as_str() {
            Some("initialize") => {
                response("200 OK", "application/json", &initialized(&body["id"]).to_string())
            }
            Some("tools/call") => {
                let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } });
                response("200 OK", "application/json", &result.to_string())
            }
            _ if head.starts_with("get ") => {
                counter.fetch_add(1, Ordering::SeqCst);
                response(status, "text/plain", "")
            }
            _ => response("202 Accepted", "text/plain", ""),
        })
        .await;
        let adapter = Adapter::new(session);
        soon(adapter.send(call())).await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let before = streams.load(Ordering::SeqCst);
        assert_eq!(before, if has_stream { 3 } else { 1 }, "{status}");
        soon(adapter.send(call())).await.unwrap();
        let after = streams.load(Ordering::SeqCst);
        assert_eq!(after > before, has_stream, "{status}");
    }
}

/// Such as after a proxy has closed it. There are no event ids from which it could go on.
#[tokio::test(start_paused = true)]
async fn subscription_is_interrupted_when_its_stream_is_opened_again() {
    let streams = AtomicUsize::default();
    let session = serve(move |Received { head, body }| match body["method"].as_str() {
        Some("initialize") => announcing(&body["id"]),
        _ if head.starts_with("get ") => {
            // The first is closed, and the second stays open.
            let is_first = streams.fetch_add(1, Ordering::SeqCst) == 0;
            if is_first { events("") } else { OPEN_STREAM.to_owned() }
        }
        _ => response("202 Accepted", "text/plain", ""),
    })
    .await;
    let filter = json!({ "toolsListChanged": true });
    let ended = soon(Adapter::new(session).send(listen(&filter))).await;
    assert!(ended.unwrap_err().is_transient());
}

/// A subscription that was acknowledged meanwhile has missed what was announced before.
#[tokio::test(start_paused = true)]
async fn subscription_is_interrupted_when_its_stream_opens_late() {
    let streams = AtomicUsize::default();
    let session = serve(move |Received { head, body }| match body["method"].as_str() {
        Some("initialize") => {
            response("200 OK", "application/json", &initialized(&body["id"]).to_string())
        }
        _ if head.starts_with("get ") => match streams.fetch_add(1, Ordering::SeqCst) {
            0 => response("503 Service Unavailable", "text/plain", ""),
            _ => OPEN_STREAM.to_owned(),
        },
        _ => response("202 Accepted", "text/plain", ""),
    })
    .await;
    let ended = soon(Adapter::new(session).send(listen(&json!({})))).await;
    assert!(ended.unwrap_err().is_transient());
}

/// Such as an event id that the server does not know any more, or expired credentials.
#[tokio::test(start_paused = true)]
async fn stream_that_could_not_be_resumed_is_opened_anew() {
    let streams = AtomicUsize::default();
    let session = serve(move |Received { head, body }| match body["method"].as_str() {
        Some("initialize") => announcing(&body["id"]),
        Some("ping") => {
            let pong = json!({ "jsonrpc": "2.0", "id": body["id"], "result": {} });
            response("200 OK", "application/json", &pong.to_string())
        }
        _ if head.starts_with("get ") => match streams.fetch_add(1, Ordering::SeqCst) {
            0 => events("id: 1\ndata:\n\n"),
            1 => {
                assert!(head.contains("last-event-id: 1"), "{head}");
                response("400 Bad Request", "text/plain", "")
            }
            _ => {
                assert!(!head.contains("last-event-id"), "{head}");
                OPEN_STREAM.to_owned()
            }
        },
        _ => response("202 Accepted", "text/plain", ""),
    })
    .await;
    let adapter = Adapter::new(session);
    let filter = json!({ "toolsListChanged": true });
    let ended = soon(adapter.send(listen(&filter))).await;
    assert!(ended.unwrap_err().is_transient());
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let notify = move |acknowledged: Notification| drop(sender.send(acknowledged));
    let acknowledged = tokio::select! {
        ended = adapter.send(listen(&filter).with_notification_handler(&notify)) => panic!("{ended:?}"),
        acknowledged = soon(received.recv()) => acknowledged.unwrap(),
    };
    let params: Value = acknowledged.decode_params().unwrap();
    assert_eq!(params["notifications"], json!({ "toolsListChanged": true }));
}

/// Clients must understand them (2025-03-26, basic: "Batching").
#[tokio::test(start_paused = true)]
async fn batches_of_a_server_are_read() {
    let question = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    for is_stream in [false, true] {
        let question = question.clone();
        let pongs = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&pongs);
        let session = serve(move |Received { head, body }| match body["method"].as_str() {
            Some("initialize") => {
                response("200 OK", "application/json", &initialized(&body["id"]).to_string())
            }
            Some("tools/call") => {
                let result = json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } });
                let batch = json!([question, result]);
                if is_stream {
                    events(&format!("data: {batch}\n\n"))
                } else {
                    response("200 OK", "application/json", &batch.to_string())
                }
            }
            _ if head.starts_with("get ") => response("405 No", "text/plain", ""),
            _ => {
                counter.fetch_add(usize::from(body["id"] == "p"), Ordering::SeqCst);
                response("202 Accepted", "text/plain", "")
            }
        })
        .await;
        let outcome = soon(Adapter::new(session).send(call())).await.unwrap().outcome;
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(pongs.load(Ordering::SeqCst), 1, "the request in the batch was not answered");
    }
}
