//! Limits of byte streams: messages above the limit, and requests that the server does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mrtr::client::TransportError;
use mrtr::legacy::LegacyOptions;
use mrtr::stdio::{StreamClient, StreamLimits, serve_stream};
use mrtr::{CallError, Client, Context, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, duplex, split};
use tokio::task::JoinHandle;

use crate::http_wire::params;
use crate::raw_peer::RawPeer;
use crate::server_process::{Running, until};

const MAX_MESSAGE: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

fn call(
    client: &Client<StreamClient>,
    of: &'static str,
    length: usize,
) -> JoinHandle<Result<String, CallError>> {
    let (client, text) = (client.clone(), "x".repeat(length));
    tokio::spawn(async move { Ok(client.call_tool(of, json!({ "text": text })).await?.text()) })
}

fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A response above the limit ends its call with an error at once. Other calls are not affected.
#[tokio::test(start_paused = true)]
async fn response_above_the_limit_ends_its_call() {
    let (ours, theirs) = duplex(1 << 16);
    let (reader, writer) = split(ours);
    let connection = StreamClient::with_max_message(BufReader::new(reader), writer, MAX_MESSAGE);
    let (client, mut peer) = (Client::builder(connection).build(), RawPeer::new(theirs));
    let (first, second) = (call(&client, "first", 1), call(&client, "second", 1));
    let (request, other) = (peer.read().await, peer.read().await);
    peer.answer(request["id"].clone(), text(&"x".repeat(MAX_MESSAGE))).await;
    let error = first.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("a message of more than 1000 bytes"), "{error}");
    // A notification above the limit is skipped, and ends no call.
    peer.notify(
        "notifications/message",
        json!({ "level": "info", "data": "x".repeat(MAX_MESSAGE) }),
    )
    .await;
    peer.answer(other["id"].clone(), text("fine")).await;
    assert_eq!(second.await.unwrap().unwrap(), "fine");
    // Some servers write the id last. A single call in flight is matched without the id.
    let alone = call(&client, "alone", 1);
    let id = &peer.read().await["id"];
    let result = text(&"x".repeat(2 * MAX_MESSAGE));
    let line = format!("{{\"result\":{result},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n");
    peer.writer.write_all(line.as_bytes()).await.unwrap();
    let error = alone.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("a message of more than 1000 bytes"), "{error}");
}

/// The error has the id of the request, so that it ends the right one of several calls.
#[tokio::test(start_paused = true)]
async fn request_above_the_limit_is_rejected_by_its_id() {
    let (ours, theirs) = duplex(1 << 16);
    let tool = |name| {
        Tool::new(name, "", async |_: Context, argument: Text| -> mrtr::Result<_> {
            assert_eq!(argument.text, "x");
            Ok("fine")
        })
    };
    let server = Server::builder("test", "1")
        .ephemeral_key()
        .tool(tool("short"))
        .tool(tool("long"))
        .allow_anonymous();
    let server = server.build().unwrap();
    let (reader, writer) = split(theirs);
    let (limits, never) =
        (StreamLimits::default().with_max_message_bytes(MAX_MESSAGE), std::future::pending());
    tokio::spawn(serve_stream(server, BufReader::new(reader), writer, limits, never));
    let (reader, writer) = split(ours);
    let client = Client::builder(StreamClient::new(BufReader::new(reader), writer)).build();
    let calls = [
        call(&client, "long", MAX_MESSAGE),
        call(&client, "short", 1),
        call(&client, "long", MAX_MESSAGE),
    ];
    let results: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    for (result, fits) in results.into_iter().zip([false, true, false]) {
        match result {
            Ok(text) => assert!(fits && text == "fine", "{text}"),
            Err(error) => {
                let message = error.to_string();
                assert!(!fits && message.contains("longer than 1000 bytes"), "{message}");
            }
        }
    }
}

/// A request that times out in the queue is removed, and its caller learns that it was not sent.
#[tokio::test(start_paused = true)]
async fn unread_requests_are_withdrawn() {
    const CALLS: usize = 500;
    const LENGTH: usize = 2_000;
    let (ours, theirs) = duplex(100);
    let (reader, writer) = split(ours);
    let connection = StreamClient::new(BufReader::new(reader), writer);
    let connection = connection.timeout(Duration::from_secs(1));
    let (client, mut peer) = (Client::builder(connection).build(), RawPeer::new(theirs));
    let errors = join_all((0..CALLS).map(|_| call(&client, "t", LENGTH))).await;
    let errors = errors.into_iter().map(|called| called.unwrap().unwrap_err());
    let unsent = errors
        .filter(|error| error.as_transport_error().is_some_and(TransportError::is_not_sent))
        .count();
    assert_eq!(unsent, CALLS - 1, "one request was partly written");
    drop(client);
    // The partly written request is completed, and then cancelled.
    let written = peer.read().await;
    assert_eq!(written["params"]["name"], "t");
    let cancelled = peer.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], written["id"]);
    assert_eq!(peer.read().await, Value::Null);
}

/// A caller learns that its request was not written, whether it was in the queue or waited for room
/// in it, and whichever end of the stream is closed.
#[tokio::test(start_paused = true)]
async fn queued_requests_are_not_sent_when_the_stream_breaks() {
    const CALLS: usize = 200;
    for server_stops_writing in [true, false] {
        let (to_server, mut server_reads) = duplex(100);
        let (server_writes, from_server) = duplex(100);
        let connection = StreamClient::new(BufReader::new(from_server), to_server);
        let start = tokio::time::Instant::now();
        let client = Client::builder(connection).build();
        let calls: Vec<_> = (0..CALLS).map(|_| call(&client, "t", 2_000)).collect();
        tokio::task::yield_now().await;
        let mut part = [0; 50];
        server_reads.read_exact(&mut part).await.unwrap();
        // Keeps the other end open.
        let _open: Box<dyn std::any::Any> = if server_stops_writing {
            drop(server_writes);
            Box::new(server_reads)
        } else {
            drop(server_reads);
            Box::new(server_writes)
        };
        let errors = join_all(calls.into_iter().map(async |call| {
            let error = call.await.unwrap().unwrap_err();
            let unsent = error.as_transport_error().is_some_and(TransportError::is_not_sent);
            (unsent, start.elapsed() < Duration::from_secs(1))
        }));
        let errors = errors.await;
        let (unsent, written): (Vec<_>, _) = errors.into_iter().partition(|(unsent, _)| *unsent);
        assert!(unsent.len() == CALLS - 1 && unsent.iter().all(|(_, at_once)| *at_once));
        // The server may still answer the request that it read in part, unless it stopped writing.
        assert_eq!(written, [(false, server_stops_writing)]);
    }
}

/// Requests before the close are written, and later ones are not sent.
#[tokio::test(start_paused = true)]
async fn closed_stream_writes_its_queued_requests() {
    let (ours, theirs) = duplex(1 << 20);
    let (reader, writer) = split(ours);
    let client = Client::builder(StreamClient::new(BufReader::new(reader), writer)).build();
    let mut peer = RawPeer::new(theirs);
    // The queue is full of long requests that are written one by one, so the task that writes them
    // yields in between.
    let before: Vec<_> = (0..64).map(|_| call(&client, "before", 5_000)).collect();
    tokio::task::yield_now().await;
    client.transport().close();
    tokio::task::yield_now().await;
    let after = call(&client, "after", 1).await.unwrap().unwrap_err();
    assert!(after.as_transport_error().is_some_and(TransportError::is_not_sent), "{after}");
    for _ in &before {
        assert_eq!(peer.read().await["params"]["name"], "before");
    }
    assert_eq!(peer.read().await, Value::Null);
    before.iter().for_each(JoinHandle::abort);
}

/// A cancellation is written before the queued requests of other calls.
#[tokio::test(start_paused = true)]
async fn cancellation_overtakes_queued_requests() {
    const LENGTH: usize = 5_000;
    let (ours, theirs) = duplex(LENGTH);
    let (reader, writer) = split(ours);
    let connection = StreamClient::new(BufReader::new(reader), writer);
    let (client, mut peer) = (Client::builder(connection).build(), RawPeer::new(theirs));
    let first = call(&client, "first", 1);
    peer.read().await;
    let others: Vec<_> = (0..50).map(|_| call(&client, "other", LENGTH)).collect();
    // In a single-threaded runtime, all requests are queued before this task continues.
    tokio::task::yield_now().await;
    first.abort();
    let mut before = 0;
    while peer.read().await["method"] != "notifications/cancelled" {
        before += 1;
    }
    assert!(before < 5, "{before}");
    others.iter().for_each(JoinHandle::abort);
}

/// The client of either era reads nothing, while the handler reports its progress.
#[tokio::test(start_paused = true)]
async fn timeout_of_a_request_does_not_wait_for_a_client_that_does_not_read() {
    for is_legacy in [false, true] {
        let running = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&running);
        let report = move |cx: Context| {
            let running = Running::new(&count);
            async move {
                let _running = running;
                for n in 0..1_000_000 {
                    cx.progress(f64::from(n), None, None);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                "done"
            }
        };
        let tool = Tool::new("report", "", report).request_timeout(Duration::from_secs(5));
        let server = Server::builder("test", "1").ephemeral_key().allow_anonymous().tool(tool);
        let server = server.build().unwrap();
        let (ours, theirs) = duplex(1024);
        tokio::spawn(async move {
            let (reader, writer) = split(theirs);
            let (limits, never) = (StreamLimits::default(), std::future::pending());
            let reader = BufReader::new(reader);
            mrtr::legacy::serve_stream(
                server,
                LegacyOptions::default(),
                reader,
                writer,
                limits,
                never,
            )
            .await
        });
        let mut peer = RawPeer::new(ours);
        let call = json!({ "name": "report", "arguments": {}, "_meta": { "progressToken": 1 } });
        if is_legacy {
            let info = json!({ "name": "raw", "version": "1" });
            let params = json!({
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info,
            });
            let request = |id, method, params| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            peer.write(request(0, "initialize", params)).await;
            peer.read().await;
            peer.write(request(1, "tools/call", call)).await;
        } else {
            let mut params = params(json!({ "name": "report", "arguments": {} }));
            params["_meta"]["progressToken"] = json!(1);
            peer.write(
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }),
            )
            .await;
        }
        until(&running, 1).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(running.load(Ordering::SeqCst), 0, "legacy: {is_legacy}");
    }
}
