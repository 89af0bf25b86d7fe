//! What there is too much of on a stream: messages that are longer than may be, and requests that nobody reads.

use std::time::Duration;

use futures_util::future::join_all;
use mrtr::client::TransportError;
use mrtr::stdio::{StreamClient, StreamLimits, serve_stream};
use mrtr::{CallError, Client, Context, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader, duplex, split};
use tokio::task::JoinHandle;

use crate::hand::Hand;

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
        Tool::new(name, "", async |_: Context, said: Said| {
            assert_eq!(said.text, "x");
            Ok("fine")
        })
    };
    let server = Server::builder("test", "1").tool(tool("short")).tool(tool("long")).anonymous();
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
    assert!(unsent >= CALLS - 3, "{unsent}");
    drop(client);
    // The one that had begun is written to its end. Those that were about to be written are not, but called off like it.
    let begun = hand.read().await;
    assert_eq!(begun["params"]["name"], "t");
    let mut rest = Vec::new();
    while let message @ Value::Object(_) = hand.read().await {
        assert_eq!(message["method"], "notifications/cancelled");
        rest.push(message["params"]["requestId"].clone());
    }
    assert!(rest.len() <= CALLS - unsent && rest.contains(&begun["id"]), "{rest:?}");
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
