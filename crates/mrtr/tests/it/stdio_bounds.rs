//! What there is too much of on a stream: messages that are longer than may be, and requests that nobody reads.

use std::time::Duration;

use futures_util::future::join_all;
use mrtr::client::TransportError;
use mrtr::stdio::{StreamClient, StreamLimits, serve_stream};
use mrtr::{CallError, Client, Context, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, duplex, split};
use tokio::task::JoinHandle;

use crate::raw_peer::Hand;

const MOST: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
struct Said {
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

/// A caller whose answer is too long need not wait for what will not come, and is told why; others are not concerned.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_long_ends_its_call() {
    let (ours, theirs) = duplex(1 << 16);
    let (reader, writer) = split(ours);
    let connection = StreamClient::with_max_message(BufReader::new(reader), writer, MOST);
    let (client, mut hand) = (Client::builder(connection).build(), Hand::new(theirs));
    let (first, second) = (call(&client, "first", 1), call(&client, "second", 1));
    let (request, other) = (hand.read().await, hand.read().await);
    hand.answer(request["id"].clone(), text(&"x".repeat(MOST))).await;
    let error = first.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("a message of more than 1000 bytes"), "{error}");
    // Of a notification, nobody is said to wait for it.
    hand.notify("notifications/message", json!({ "level": "info", "data": "x".repeat(MOST) }))
        .await;
    hand.answer(other["id"].clone(), text("fine")).await;
    assert_eq!(second.await.unwrap().unwrap(), "fine");
    // Some servers write the id last. Whose it is can be known if only one waits.
    let alone = call(&client, "alone", 1);
    let id = &hand.read().await["id"];
    let result = text(&"x".repeat(2 * MOST));
    let line = format!("{{\"result\":{result},\"jsonrpc\":\"2.0\",\"id\":{id}}}\n");
    hand.writer.write_all(line.as_bytes()).await.unwrap();
    let error = alone.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("a message of more than 1000 bytes"), "{error}");
}

/// The error names the request, so that its caller is told, whoever else waits.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_too_long_is_refused_by_its_id() {
    let (ours, theirs) = duplex(1 << 16);
    let tool = |name| {
        Tool::new(name, "", async |_: Context, said: Said| -> mrtr::Result<_> {
            assert_eq!(said.text, "x");
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
        (StreamLimits { message: MOST, ..Default::default() }, std::future::pending());
    tokio::spawn(serve_stream(server, BufReader::new(reader), writer, limits, never));
    let (reader, writer) = split(ours);
    let client = Client::builder(StreamClient::new(BufReader::new(reader), writer)).build();
    let calls =
        [call(&client, "long", MOST), call(&client, "short", 1), call(&client, "long", MOST)];
    let results: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    for (result, fits) in results.into_iter().zip([false, true, false]) {
        match result {
            Ok(text) => assert!(fits && text == "fine", "{text}"),
            Err(error) => {
                let said = error.to_string();
                assert!(!fits && said.contains("longer than 1000 bytes"), "{said}");
            }
        }
    }
}

/// Whoever gives up leaves nothing behind, and learns that the server has seen nothing.
#[tokio::test(start_paused = true)]
async fn what_a_server_does_not_read_is_taken_back() {
    const CALLS: usize = 500;
    const LENGTH: usize = 2_000;
    let (ours, theirs) = duplex(100);
    let (reader, writer) = split(ours);
    let connection = StreamClient::new(BufReader::new(reader), writer);
    let connection = connection.timeout(Duration::from_secs(1));
    let (client, mut hand) = (Client::builder(connection).build(), Hand::new(theirs));
    let errors = join_all((0..CALLS).map(|_| call(&client, "t", LENGTH))).await;
    let errors = errors.into_iter().map(|called| called.unwrap().unwrap_err());
    let unsent = errors
        .filter(|error| error.as_transport_error().is_some_and(TransportError::is_unsent))
        .count();
    assert_eq!(unsent, CALLS - 1, "one had begun");
    drop(client);
    // It is written to its end, and called off.
    let begun = hand.read().await;
    assert_eq!(begun["params"]["name"], "t");
    let cancelled = hand.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], begun["id"]);
    assert_eq!(hand.read().await, Value::Null);
}

/// Whose request was in the queue, or had no place in it, learns that, whichever end of the stream is closed.
#[tokio::test(start_paused = true)]
async fn what_was_not_written_when_the_stream_breaks_was_not_sent() {
    const CALLS: usize = 200;
    for server_stops_writing in [true, false] {
        let (to_server, mut server_reads) = duplex(100);
        let (server_writes, from_server) = duplex(100);
        let connection = StreamClient::new(BufReader::new(from_server), to_server);
        let begun = tokio::time::Instant::now();
        let client = Client::builder(connection).build();
        let calls: Vec<_> = (0..CALLS).map(|_| call(&client, "t", 2_000)).collect();
        tokio::task::yield_now().await;
        let mut some = [0; 50];
        server_reads.read_exact(&mut some).await.unwrap();
        // The other end stays open.
        let _open: Box<dyn std::any::Any> = if server_stops_writing {
            drop(server_writes);
            Box::new(server_reads)
        } else {
            drop(server_reads);
            Box::new(server_writes)
        };
        let errors = join_all(calls.into_iter().map(async |call| {
            let error = call.await.unwrap().unwrap_err();
            let unsent = error.as_transport_error().is_some_and(TransportError::is_unsent);
            (unsent, begun.elapsed() < Duration::from_secs(1))
        }));
        let errors = errors.await;
        let (unsent, written): (Vec<_>, _) = errors.into_iter().partition(|(unsent, _)| *unsent);
        assert!(unsent.len() == CALLS - 1 && unsent.iter().all(|(_, at_once)| *at_once));
        // The one of which the server has some may be answered yet, if the server has not stopped writing.
        assert_eq!(written, [(false, server_stops_writing)]);
    }
}

/// What is asked before the stream is closed is written, and what is asked after is not.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_closed_is_drained() {
    let (ours, theirs) = duplex(1 << 20);
    let (reader, writer) = split(ours);
    let client = Client::builder(StreamClient::new(BufReader::new(reader), writer)).build();
    let mut hand = Hand::new(theirs);
    // As many as the queue takes, each too long to be written with others: more than a task does in one go.
    let before: Vec<_> = (0..64).map(|_| call(&client, "before", 5_000)).collect();
    tokio::task::yield_now().await;
    client.transport().close();
    tokio::task::yield_now().await;
    let after = call(&client, "after", 1).await.unwrap().unwrap_err();
    assert!(after.as_transport_error().is_some_and(TransportError::is_unsent), "{after}");
    for _ in &before {
        assert_eq!(hand.read().await["params"]["name"], "before");
    }
    assert_eq!(hand.read().await, Value::Null);
    before.iter().for_each(JoinHandle::abort);
}

/// Nobody waits for a pause in what others ask.
#[tokio::test(start_paused = true)]
async fn a_cancellation_does_not_wait_behind_requests() {
    const LENGTH: usize = 5_000;
    let (ours, theirs) = duplex(LENGTH);
    let (reader, writer) = split(ours);
    let connection = StreamClient::new(BufReader::new(reader), writer);
    let (client, mut hand) = (Client::builder(connection).build(), Hand::new(theirs));
    let first = call(&client, "first", 1);
    hand.read().await;
    let others: Vec<_> = (0..50).map(|_| call(&client, "other", LENGTH)).collect();
    // In a runtime of one thread, all of them ask before this goes on.
    tokio::task::yield_now().await;
    first.abort();
    let mut before = 0;
    while hand.read().await["method"] != "notifications/cancelled" {
        before += 1;
    }
    assert!(before < 5, "{before}");
    others.iter().for_each(JoinHandle::abort);
}
