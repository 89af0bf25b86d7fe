//! Legacy clients on a byte stream, with a raw peer as the client.

use mrtr::legacy::{LegacyOptions, serve_stream};
use mrtr::stdio::StreamLimits;
use mrtr::{Change, ChangeNotifier, Context, Result, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader, duplex, split};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::http_wire::params;
use crate::raw_peer::RawPeer;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

struct Served {
    peer: RawPeer,
    changes: ChangeNotifier,
    end: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

fn serve() -> Served {
    let changes = ChangeNotifier::new();
    let server = Server::builder("test", "1")
        .ephemeral_key()
        .allow_anonymous()
        .changes(changes.clone())
        .tool(Tool::new("ask", "", async |cx: Context| -> Result<String> {
            cx.progress(1.0, None, None);
            let (a, b) = tokio::try_join!(
                cx.elicit::<Text>("a", "First?"),
                cx.elicit::<Text>("b", "Second?")
            )?;
            Ok(format!("{} {} {}", cx.protocol_version(), a.text, b.text))
        }))
        .tool(Tool::new("wait", "", async |_: Context| -> Result<&str> {
            std::future::pending().await
        }))
        .build()
        .unwrap();
    let (ours, theirs) = duplex(1 << 16);
    let (end, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let (reader, writer) = split(theirs);
        let shutdown = async move {
            if ended.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let limits = StreamLimits::default().with_max_message_bytes(10_000).with_max_in_flight(2);
        let options = LegacyOptions::default();
        serve_stream(server, options, BufReader::new(reader), writer, limits, shutdown).await
    });
    Served { peer: RawPeer::new(ours), changes, end, task }
}

impl Served {
    async fn request(&mut self, id: i64, method: &str, params: Value) {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.peer.write(request).await;
    }

    async fn initialize(&mut self, version: &str) -> Value {
        let info = json!({ "name": "raw", "version": "1" });
        let capabilities = json!({ "elicitation": {} });
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": info,
        });
        self.request(0, "initialize", params).await;
        self.peer.read().await["result"].clone()
    }

    async fn accept(&mut self, question: &Value, text: &str) {
        let content = json!({ "text": text });
        let result = json!({ "action": "accept", "content": content });
        self.peer.answer(question["id"].clone(), result).await;
    }
}

#[tokio::test]
async fn questions_are_requests_on_the_stream() {
    for version in ["2025-11-25", "2025-06-18"] {
        let mut served = serve();
        assert_eq!(served.initialize(version).await["protocolVersion"], version);
        let meta = json!({ "progressToken": 1 });
        served.request(1, "tools/call", json!({ "name": "ask", "_meta": meta })).await;
        assert_eq!(served.peer.read().await["method"], "notifications/progress");
        let (a, b) = (served.peer.read().await, served.peer.read().await);
        assert_eq!(
            (&a["method"], &b["params"]["message"]),
            (&json!("elicitation/create"), &json!("Second?"))
        );
        served.accept(&b, "B").await;
        served.accept(&a, "A").await;
        let response = served.peer.read().await;
        assert_eq!(response["id"], 1);
        assert_eq!(response["result"]["content"][0]["text"], format!("{version} A B"));
    }
}

/// A response has no response: the call that asked gets the error.
#[tokio::test]
async fn answer_that_is_too_long_ends_its_call() {
    let mut served = serve();
    served.initialize("2025-11-25").await;
    served.request(1, "tools/call", json!({ "name": "ask" })).await;
    let (a, b) = (served.peer.read().await, served.peer.read().await);
    served.accept(&a, &"x".repeat(20_000)).await;
    // The other question is withdrawn.
    let cancelled = served.peer.read().await;
    assert_eq!(cancelled["params"]["requestId"], b["id"], "{cancelled}");
    let response = served.peer.read().await;
    assert_eq!(response["id"], 1, "{response}");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("longer than 10000 bytes"), "{message}");
}

#[tokio::test]
async fn client_of_the_current_revision_is_served_as_before() {
    let mut served = serve();
    served.peer.call(1, "tools/call", json!({ "name": "ask", "arguments": {} })).await;
    let response = served.peer.read().await;
    // This client has declared no capabilities.
    assert_eq!(response["error"]["code"], -32021, "{response}");
    // Such a client cannot open a session.
    let initialize = params(json!({ "protocolVersion": "2025-11-25" }));
    served.request(2, "initialize", initialize).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32601);
}

/// A client of both eras asks first, and its process may have given up before the answer came.
#[tokio::test]
async fn client_that_has_asked_for_the_versions_may_open_a_session() {
    let mut served = serve();
    served.request(1, "ping", json!({})).await;
    assert_eq!(served.peer.read().await["result"], json!({}));
    served.peer.notify("notifications/cancelled", json!({ "requestId": "x" })).await;
    served.peer.call(2, "server/discover", json!({})).await;
    let discovered = served.peer.read().await;
    let versions = discovered["result"]["supportedVersions"].as_array().unwrap().clone();
    assert!(versions.contains(&json!("2025-11-25")), "{discovered}");
    let mut later = params(json!({}));
    later["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    served.request(3, "tools/list", later).await;
    let refused = served.peer.read().await;
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32022), &json!(3)));
    assert_eq!(served.initialize("2025-11-25").await["serverInfo"]["name"], "test");

    // Or go on in the current revision.
    let mut served = serve();
    served.peer.call(1, "server/discover", json!({})).await;
    served.peer.read().await;
    served.peer.call(2, "tools/list", json!({})).await;
    assert!(served.peer.read().await["result"]["tools"].is_array());
    let initialize = json!({ "protocolVersion": "2025-11-25" });
    served.request(3, "initialize", initialize).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32022);
}

#[tokio::test]
async fn only_initialize_and_ping_precede_the_session() {
    let mut served = serve();
    // An `initialize` without client info opens no session, but is from a legacy client.
    served.request(1, "initialize", json!({ "protocolVersion": "2025-11-25" })).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32602);
    served.request(2, "tools/list", json!({})).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32600);
    served.request(3, "ping", json!({})).await;
    assert_eq!(served.peer.read().await["result"], json!({}));
    assert_eq!(served.initialize("2025-06-18").await["serverInfo"]["name"], "test");
    served.request(4, "initialize", json!({})).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32600);
}

#[tokio::test]
async fn cancelled_call_gets_no_response_and_its_id_is_free() {
    let mut served = serve();
    served.initialize("2025-11-25").await;
    for _ in 0..2 {
        served.request(1, "tools/call", json!({ "name": "wait" })).await;
        served.peer.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    }
    served.request(2, "ping", json!({})).await;
    assert_eq!(served.peer.read().await["id"], 2);
}

#[tokio::test]
async fn limits_apply_and_repeated_ids_are_rejected() {
    let mut served = serve();
    served.peer.write(json!("x".repeat(20_000))).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32600, "the first message is too long");
    served.initialize("2025-11-25").await;
    served.peer.write(json!({ "id": 9, "method": "x".repeat(20_000) })).await;
    let response = served.peer.read().await;
    assert_eq!((&response["id"], &response["error"]["code"]), (&json!(9), &json!(-32600)));
    served.request(1, "tools/call", json!({ "name": "wait" })).await;
    served.request(1, "tools/call", json!({ "name": "wait" })).await;
    let response = served.peer.read().await;
    assert!(response["error"]["message"].as_str().unwrap().contains("already in flight"));
    served.request(2, "tools/call", json!({ "name": "wait" })).await;
    served.request(3, "tools/call", json!({ "name": "wait" })).await;
    let response = served.peer.read().await;
    assert_eq!((&response["id"], &response["error"]["code"]), (&json!(3), &json!(-32603)));
    served.peer.writer.write_all(b"{\"broken\n").await.unwrap();
    assert_eq!(served.peer.read().await["error"]["code"], -32700);
    // A response that answers nothing is ignored.
    served.peer.answer(json!("nothing"), json!({})).await;
    served.peer.answer(json!(1), json!({})).await;
    served.peer.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    served.request(4, "ping", json!({})).await;
    assert_eq!(served.peer.read().await["id"], 4);
}

#[tokio::test]
async fn changes_are_announced_after_initialized() {
    let mut served = serve();
    served.initialize("2025-11-25").await;
    served.peer.notify("notifications/initialized", json!({})).await;
    while served.changes.listeners() != 1 {
        tokio::task::yield_now().await;
    }
    served.changes.publish(Change::Tools);
    let change = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert_eq!(served.peer.read().await, change);
}

#[tokio::test]
async fn batches_are_read_in_the_revision_that_has_them() {
    let mut served = serve();
    served.initialize("2025-03-26").await;
    let ping = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
    served.peer.write(json!([ping(1), ping(2)])).await;
    let mut ids = [served.peer.read().await["id"].clone(), served.peer.read().await["id"].clone()];
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, [json!(1), json!(2)]);
    let mut served = serve();
    served.initialize("2025-06-18").await;
    served.peer.write(json!([ping(1)])).await;
    assert_eq!(served.peer.read().await["error"]["code"], -32600);
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_requests_finish_for_a_while() {
    let mut served = serve();
    served.initialize("2025-11-25").await;
    served.request(1, "tools/call", json!({ "name": "ask" })).await;
    let (_, _) = (served.peer.read().await, served.peer.read().await);
    served.end.send(()).unwrap();
    served.task.await.unwrap().unwrap();
    assert_eq!(served.peer.read().await, Value::Null, "the stream has ended");
}

/// Shutdown does not wait for a client that reads nothing, nor for the stream of changes.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_while_the_client_reads_nothing() {
    let mut served = serve();
    served.initialize("2025-11-25").await;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    served.peer.write(note).await;
    let begun = tokio::time::Instant::now();
    // The responses fill the stream and the queue, and then the requests do.
    let flood = async {
        for id in 1.. {
            served.request(id, &"x".repeat(9_000), json!({})).await;
        }
    };
    let flood = tokio::time::timeout(std::time::Duration::from_secs(1), flood);
    assert!(flood.await.is_err());
    served.end.send(()).unwrap();
    served.task.await.unwrap().unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// The same before the first message that fits tells which revision the client speaks.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_while_the_client_reads_no_rejections() {
    let mut served = serve();
    // Each line is rejected, until the rejections fill the stream.
    let flood = async {
        loop {
            served.request(1, &"x".repeat(20_000), json!({})).await;
        }
    };
    let flood = tokio::time::timeout(std::time::Duration::from_secs(1), flood);
    assert!(flood.await.is_err());
    served.end.send(()).unwrap();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), served.task).await;
    ended.expect("the server ends").unwrap().unwrap();
}
