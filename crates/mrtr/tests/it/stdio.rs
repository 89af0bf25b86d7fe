//! Servers and clients on byte streams.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{self, Poll};
use std::time::Duration;

use mrtr::stdio::{StreamClient, StreamLimits, serve_stream};
use mrtr::{Client, Context, ElicitResult, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream, split,
};

use crate::http_wire::{params, request};
use crate::server_process::{Running, until};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Name {
    name: String,
}

fn server(running: &Arc<AtomicUsize>) -> Server {
    let greet = async |cx: Context| -> mrtr::Result<_> {
        cx.progress(1.0, None, None);
        Ok(format!("Hello, {}!", cx.elicit::<Name>("name", "Who are you?").await?.name))
    };
    let running = Arc::clone(running);
    let wait = move |_: Context| {
        let running = Running::new(&running);
        async move {
            let _running = running;
            std::future::pending::<mrtr::Result<String>>().await
        }
    };
    let builder = Server::builder("test", "1")
        .require_principal()
        .ephemeral_key()
        .tool(Tool::new("greet", "", greet));
    let slow = async |_: Context| {
        tokio::time::sleep(Duration::from_millis(100)).await;
        "done"
    };
    let builder = builder.tool(Tool::new("slow", "", slow));
    builder.tool(Tool::new("wait", "", wait)).allow_anonymous().build().unwrap()
}

/// Starts a server at the other end of a pipe.
fn pipe(
    running: &Arc<AtomicUsize>,
    limits: StreamLimits,
) -> (DuplexStream, tokio::task::JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1024);
    let server = server(running);
    let task = tokio::spawn(async move {
        let (reader, writer) = split(theirs);
        serve_stream(server, BufReader::new(reader), writer, limits, std::future::pending())
            .await
            .unwrap();
    });
    (ours, task)
}

fn client(stream: DuplexStream) -> StreamClient {
    let (reader, writer) = split(stream);
    StreamClient::new(BufReader::new(reader), writer)
}

#[tokio::test]
async fn rounds_and_progress_work_over_a_stream() {
    let (stream, task) = pipe(&Arc::default(), StreamLimits::default());
    let connection = client(stream);
    let progress = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&progress);
    let caller = Client::builder(connection.clone())
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "name": "Ada" }))?))
        .on_progress(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .build();
    let calls = (0..20).map(|_| caller.call_tool("greet", json!({})));
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(result.unwrap().text(), "Hello, Ada!");
    }
    assert_eq!(progress.load(Ordering::SeqCst), 20);
    connection.close();
    task.await.unwrap();
}

/// A writer that counts its writes.
struct CountingWriter<W>(W, Arc<AtomicUsize>);

impl<W: AsyncWrite + Unpin> AsyncWrite for CountingWriter<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A write to a pipe may need a switch to another thread, so messages are written together.
#[tokio::test]
async fn queued_messages_are_written_together() {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (client_writes, server_writes) =
        (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (reader, writer) = split(theirs);
    let writer = CountingWriter(writer, Arc::clone(&server_writes));
    let (limits, never) = (StreamLimits::default(), std::future::pending());
    let server = server(&Arc::default());
    let serving = tokio::spawn(serve_stream(server, BufReader::new(reader), writer, limits, never));
    let (reader, writer) = split(ours);
    let connection = StreamClient::new(
        BufReader::new(reader),
        CountingWriter(writer, Arc::clone(&client_writes)),
    );
    let caller = Client::builder(connection.clone()).build();
    // In a single-threaded runtime, all requests are queued before the first is written.
    futures_util::future::join_all((0..5).map(|_| caller.list_tools())).await;
    let counts = (client_writes.load(Ordering::SeqCst), server_writes.load(Ordering::SeqCst));
    assert_eq!(counts, (1, 1));
    // A request that is queued when the stream is closed is still written.
    let last = tokio::spawn(async move { caller.list_tools().await });
    tokio::task::yield_now().await;
    connection.close();
    last.await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
}

/// The child process of the next test, which sets the environment variable. Otherwise, it does
/// nothing.
#[test]
fn server_on_standard_streams() {
    if std::env::var_os(IS_CHILD).is_some() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let tool = Tool::new("long", "x".repeat(1 << 20), async |_: Context| "");
        let server = Server::builder("test", "1")
            .ephemeral_key()
            .tool(tool)
            .allow_anonymous()
            .build()
            .unwrap();
        runtime.block_on(mrtr::serve_stdio(server)).unwrap();
        // Dropping the runtime waits for blocking tasks. The output of the test harness would
        // block, too, and `exit` skips it.
        drop(runtime);
        std::process::exit(0);
    }
}

const IS_CHILD: &str = "MRTR_TEST_STANDARD_STREAMS";

/// The process exits while a write to its full standard output is still blocked.
#[tokio::test]
async fn process_exits_at_the_end_of_input_while_its_output_is_blocked() {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "stdio::server_on_standard_streams", "--nocapture"]);
    command.env(IS_CHILD, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().unwrap();
    let mut input = process.stdin.take().unwrap();
    let mut output = process.stdout.take().unwrap();
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params(json!({})) });
    input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
    // The server has begun to write a response that is longer than the buffer of a pipe.
    while output.read_u8().await.unwrap() != b'{' {}
    drop(input);
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    let running = Arc::default();
    let (stream, _task) = pipe(&running, StreamLimits::default());
    let caller = Client::builder(client(stream)).build();
    let call = tokio::spawn({
        let caller = caller.clone();
        async move { caller.call_tool("wait", json!({})).await }
    });
    until(&running, 1).await;
    call.abort();
    until(&running, 0).await;
    caller.discover().await.unwrap();
}

#[tokio::test]
async fn end_of_stream_drops_the_handlers_in_flight() {
    let running = Arc::default();
    let (mut stream, task) = pipe(&running, StreamLimits::default());
    let mut line = request("tools/call", &params(json!({ "name": "wait" })));
    line.push(b'\n');
    stream.write_all(&line).await.unwrap();
    drop(stream);
    task.await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 0);
}

/// As from `printf … | server`.
#[tokio::test(start_paused = true)]
async fn request_at_the_end_of_the_stream_is_answered() {
    let (mut stream, task) = pipe(&Arc::default(), StreamLimits::default());
    let mut line = request("tools/call", &params(json!({ "name": "slow" })));
    line.push(b'\n');
    stream.write_all(&line).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut output = String::new();
    stream.read_to_string(&mut output).await.unwrap();
    task.await.unwrap();
    let response: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(response["result"]["content"][0]["text"], "done", "{response}");
}

#[tokio::test]
async fn malformed_lines_get_an_error_and_the_stream_stays_open() {
    let limits = StreamLimits::default().with_max_message_bytes(2_000).with_max_in_flight(1);
    let (mut stream, _task) = pipe(&Arc::default(), limits);
    let wait =
        String::from_utf8(request("tools/call", &params(json!({ "name": "wait" })))).unwrap();
    let other = wait.replace("\"id\":7", "\"id\":8");
    let lines = [
        "{".to_owned(),
        "[]".to_owned(),
        "x".repeat(3_000),
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":2,"result":{}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#.to_owned(),
        wait.clone(),
        wait,
        other,
        r#"{"jsonrpc":"2.0","id":3,"method":"server/discover"}"#.to_owned(),
    ];
    stream.write_all(lines.join("\n").as_bytes()).await.unwrap();
    stream.write_all(b"\n").await.unwrap();
    let mut answers = BufReader::new(stream).lines();
    let mut seen = Vec::new();
    while seen.len() < 7 {
        let answer: Value =
            serde_json::from_str(&answers.next_line().await.unwrap().unwrap()).unwrap();
        seen.push((answer["id"].clone(), answer["error"]["code"].as_i64().unwrap()));
    }
    let expected = [
        (Value::Null, -32700),
        (Value::Null, -32600),
        (Value::Null, -32600),
        (json!(1), -32022),
        (json!(7), -32600),
        (json!(8), -32603),
        (json!(3), -32603),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn closed_stream_is_a_transport_error() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let caller = Client::builder(client(ours)).build();
    let call = tokio::spawn(async move { caller.discover().await });
    let mut reader = BufReader::new(theirs);
    reader.read_line(&mut String::new()).await.unwrap();
    drop(reader);
    let error = call.await.unwrap().unwrap_err();
    assert!(!error.as_transport_error().unwrap().is_not_sent(), "the server may have acted");
}
