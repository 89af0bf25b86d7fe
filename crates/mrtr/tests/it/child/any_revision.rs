//! Servers that may be of a legacy revision.

use std::time::Duration;

use mrtr::legacy::{AnyRevisionChild, RevisionMode};
use mrtr::stdio::ChildServer;
use mrtr::{Client, Context, ElicitResult, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{ANSWER, DISCOVERED, Scratch, drop_call_at};

const INITIALIZED: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}"#;

/// Creates a server that is a shell script, with the paths of files as `$1`, `$2` and so on.
fn shell(script: &str, files: &[&Scratch]) -> ChildServer {
    let paths = files.iter().map(|file| file.0.clone().into_os_string());
    ChildServer::new("sh", ["-c".into(), script.into(), "server".into()].into_iter().chain(paths))
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Answers of servers that have not answered `server/discover` when they get `initialize`.
#[tokio::test]
async fn slow_server_is_recognized_by_its_first_suitable_answer() {
    let discovered = format!(r#"echo '{{"jsonrpc":"2.0","id":"probe-1","result":{DISCOVERED}}}'"#);
    let error = r#""error":{"code":-32601,"message":"unknown method"}}'"#;
    let unknown = |id| format!(r#"echo '{{"jsonrpc":"2.0","id":{id},{error}"#);
    let initialized = format!(r#"echo '{{"jsonrpc":"2.0","id":0,"result":{INITIALIZED}}}'"#);
    for (answers, version) in [
        (vec![discovered.clone(), unknown("0")], "2026-07-28"),
        (vec![unknown("0"), discovered.clone()], "2026-07-28"),
        // It knows both methods, and `initialize` selects the legacy revision.
        (vec![discovered, initialized.clone()], "2025-11-25"),
        (vec![unknown("\"probe-1\""), initialized.clone()], "2025-11-25"),
        (vec![initialized], "2025-11-25"),
    ] {
        let script = format!(
            r#"while read -r line; do
                id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
                case "$line" in
                    *'"initialize"'*) {} ;;
                    {ANSWER} ;;
                esac
            done"#,
            answers.join("; ")
        );
        let child = ChildServer::new("sh", ["-c", &script]);
        // Too short for any answer.
        let child = AnyRevisionChild::new(child, RevisionMode::Auto).probe_timeout(Duration::ZERO);
        let client = Client::builder(child).build();
        client.call_tool("t", json!({})).await.unwrap();
        assert_eq!(client.protocol_version(), Some(version), "{answers:?}");
        client.transport().shutdown(Duration::from_secs(5)).await;
    }
}

/// It reads nothing after `server/discover`, and is started again.
#[tokio::test]
async fn slow_server_that_exits_because_of_the_probe_is_restarted() {
    let file = Scratch::new("exits");
    let script = format!(
        r#"echo start >> "$1"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*) exit 1 ;;
                *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":0,"result":{INITIALIZED}}}' ;;
                {ANSWER} ;;
            esac
        done"#
    );
    let child = AnyRevisionChild::new(shell(&script, &[&file]), RevisionMode::Auto);
    let client = Client::builder(child.probe_timeout(Duration::ZERO)).build();
    client.call_tool("t", json!({})).await.unwrap();
    assert_eq!(client.protocol_version(), Some("2025-11-25"));
    assert_eq!(file.read().lines().count(), 2);
    client.transport().shutdown(Duration::from_secs(5)).await;
}

/// A server of both that is slow to start gets both requests. The server is this test in another
/// process.
#[tokio::test]
async fn slow_server_that_gets_initialize_is_spoken_to_in_its_session() {
    const VARIABLE: &str = "MRTR_SLOW_SERVER_OF_BOTH";
    if std::env::var_os(VARIABLE).is_some() {
        let ask = Tool::new("ask", "", async |cx: Context| {
            cx.elicit::<Name>("name", "Who?").await.map(|answer| answer.name)
        });
        let server = Server::builder("s", "1").allow_anonymous().ephemeral_key().tool(ask);
        mrtr::serve_stdio(server.build().unwrap()).await.unwrap();
        return;
    }
    let test = "child::any_revision::slow_server_that_gets_initialize_is_spoken_to_in_its_session";
    let program = std::env::current_exe().unwrap();
    for (probe_timeout, version) in
        [(Duration::ZERO, "2025-11-25"), (Duration::from_mins(1), "2026-07-28")]
    {
        let child = ChildServer::new(&program, ["--exact", test, "--nocapture"]).env(VARIABLE, "1");
        let child = AnyRevisionChild::new(child, RevisionMode::Auto).probe_timeout(probe_timeout);
        let client = Client::builder(child)
            .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "name": "Ada" }))?))
            .build();
        let called = client.call_tool("ask", json!({}));
        let called = tokio::time::timeout(Duration::from_secs(30), called).await;
        assert_eq!(called.unwrap().unwrap().text(), "Ada");
        assert_eq!(client.protocol_version(), Some(version));
        client.transport().shutdown(Duration::from_secs(5)).await;
    }
}

/// Starts a server that accepts `initialize` once `ready` exists, and only once per process.
fn initialized_when(ready: &Scratch, file: &Scratch) -> ChildServer {
    let script = format!(
        r#"echo start >> "$1"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*)
                    echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{{\"code\":-32601,\"message\":\"no\"}}}}" ;;
                *'"initialize"'*)
                    echo initialized >> "$1"
                    while [ ! -e "$2" ]; do sleep 0.01; done
                    if [ "$again" ]; then
                        echo '{{"jsonrpc":"2.0","id":0,"error":{{"code":-32600,"message":"again"}}}}'
                    else
                        echo '{{"jsonrpc":"2.0","id":0,"result":{INITIALIZED}}}'
                    fi
                    again=1
                    echo answered >> "$1" ;;
                {ANSWER} ;;
            esac
        done"#
    );
    shell(&script, &[file, ready])
}

/// The server answers it when no request waits for it.
#[tokio::test]
async fn handshake_goes_on_without_the_request_that_began_it() {
    let (file, ready) = (Scratch::new("goes-on"), Scratch::new("goes-on-ready"));
    let child = AnyRevisionChild::new(initialized_when(&ready, &file), RevisionMode::Auto);
    let client = Client::builder(child).build();
    drop_call_at(&client, &file, "initialized").await;
    std::fs::write(&ready.0, "").unwrap();
    while !file.read().contains("answered") {
        tokio::task::yield_now().await;
    }
    // Lets the client read the answer.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    client.call_tool("t", json!({})).await.unwrap();
    assert_eq!(file.read(), "start\ninitialized\nanswered\n");
    client.transport().shutdown(Duration::from_secs(5)).await;
}

/// No request waits for it, and it would fail the next one.
#[tokio::test]
async fn shutdown_ends_the_handshake() {
    let (file, ready) = (Scratch::new("shut-down"), Scratch::new("shut-down-ready"));
    let child = AnyRevisionChild::new(initialized_when(&ready, &file), RevisionMode::Auto);
    let client = Client::builder(child).build();
    drop_call_at(&client, &file, "initialized").await;
    client.transport().shutdown(Duration::ZERO).await;
    std::fs::write(&ready.0, "").unwrap();
    client.call_tool("t", json!({})).await.unwrap();
    assert_eq!(file.read().matches("start").count(), 2);
    client.transport().shutdown(Duration::from_secs(5)).await;
}

/// A request that waits for the handshake does not start the server again.
#[tokio::test]
async fn shutdown_ends_requests_that_wait_for_the_handshake() {
    let file = Scratch::new("joined");
    // It answers when its input has ended.
    let script = format!(
        r#"echo start >> "$1"
        read -r line
        echo probed >> "$1"
        while read -r line; do :; done
        echo '{{"jsonrpc":"2.0","id":"probe-1","result":{DISCOVERED}}}'"#
    );
    let child = AnyRevisionChild::new(shell(&script, &[&file]), RevisionMode::Auto);
    let client = Client::builder(child).build();
    drop_call_at(&client, &file, "probed").await;
    let shut_down = client.transport().shutdown(Duration::from_secs(30));
    let (called, ()) = tokio::join!(client.call_tool("t", json!({})), shut_down);
    let error = called.unwrap_err().to_string();
    assert!(error.contains("the server was shut down"), "{error}");
    assert_eq!(file.read(), "start\nprobed\n");
}

/// It does not know `initialize`, and takes longer than a request may.
#[tokio::test]
async fn answer_to_the_probe_counts_for_as_long_as_the_handshake_lasts() {
    let (file, ready) = (Scratch::new("late"), Scratch::new("late-ready"));
    let script = format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*)
                    echo probed >> "$1"
                    while [ ! -e "$2" ]; do sleep 0.01; done
                    echo '{{"jsonrpc":"2.0","id":'"$id"',"result":{DISCOVERED}}}' ;;
                *'"initialize"'*)
                    echo '{{"jsonrpc":"2.0","id":0,"error":{{"code":-32601,"message":"no"}}}}' ;;
                {ANSWER} ;;
            esac
        done"#
    );
    let server = shell(&script, &[&file, &ready]).timeout(Duration::from_millis(200));
    let child = AnyRevisionChild::new(server, RevisionMode::Auto).probe_timeout(Duration::ZERO);
    let client = Client::builder(child).build();
    // The time of the probe is over before that of the second call.
    for _ in 0..2 {
        client.call_tool("t", json!({})).await.unwrap_err();
    }
    std::fs::write(&ready.0, "").unwrap();
    let answered = async { while client.call_tool("t", json!({})).await.is_err() {} };
    tokio::time::timeout(Duration::from_mins(1), answered).await.unwrap();
    assert_eq!(client.protocol_version(), Some("2026-07-28"));
    assert_eq!(file.read(), "probed\n");
    client.transport().shutdown(Duration::from_secs(5)).await;
}

/// A second `initialize` might be one too many for it.
#[tokio::test]
async fn server_that_does_not_answer_initialize_is_replaced() {
    let (file, ready) = (Scratch::new("silent"), Scratch::new("silent-ready"));
    let server = initialized_when(&ready, &file).timeout(Duration::from_millis(100));
    let child = AnyRevisionChild::new(server.start_timeout(Duration::ZERO), RevisionMode::Auto);
    let client = Client::builder(child).build();
    client.call_tool("t", json!({})).await.unwrap_err();
    std::fs::write(&ready.0, "").unwrap();
    while client.call_tool("t", json!({})).await.is_err() {
        assert!(file.read().len() < 1_000, "{}", file.read());
    }
    assert!(file.read().matches("start").count() > 1);
    assert!(!file.read().contains("initialized\ninitialized"), "{}", file.read());
    client.transport().shutdown(Duration::from_secs(5)).await;
}

/// Its callers wait for a shorter time than it takes.
#[tokio::test]
async fn server_that_is_slow_to_start_is_not_started_again_for_each_call() {
    let short = Duration::from_millis(5);
    for (mode, probe_timeout) in [
        (RevisionMode::Auto, Duration::ZERO),
        (RevisionMode::Auto, short),
        (RevisionMode::Legacy, short),
    ] {
        let (file, ready) = (Scratch::new("slow"), Scratch::new("ready"));
        let script = format!(
            r#"echo start >> "$1"
            while [ ! -e "$2" ]; do sleep 0.01; done
            while read -r line; do
                id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
                case "$line" in
                    *'"initialize"'*)
                        if [ "$again" ]; then
                            echo '{{"jsonrpc":"2.0","id":0,"error":{{"code":-32600,"message":"again"}}}}'
                        else
                            echo '{{"jsonrpc":"2.0","id":0,"result":{INITIALIZED}}}'
                        fi
                        again=1 ;;
                    {ANSWER} ;;
                esac
            done"#
        );
        let child = AnyRevisionChild::new(shell(&script, &[&file, &ready]), mode);
        let client = Client::builder(child.probe_timeout(probe_timeout)).build();
        for _ in 0..3 {
            let call = client.call_tool("t", json!({}));
            tokio::time::timeout(Duration::from_millis(50), call).await.unwrap_err();
        }
        while file.read().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(file.read(), "start\n", "{mode:?}");
        std::fs::write(&ready.0, "").unwrap();
        client.call_tool("t", json!({})).await.unwrap();
        client.transport().shutdown(Duration::from_secs(5)).await;
    }
}

/// Such as by one write.
#[tokio::test]
async fn request_that_comes_with_the_answer_to_initialize_is_answered() {
    let file = Scratch::new("ping");
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let script = format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *'"initialize"'*)
                    printf '%s\n%s\n' '{{"jsonrpc":"2.0","id":0,"result":{INITIALIZED}}}' '{ping}' ;;
                *'"id":"p"'*) echo pong >> "$1" ;;
                {ANSWER} ;;
            esac
        done"#
    );
    let child = AnyRevisionChild::new(shell(&script, &[&file]), RevisionMode::Legacy);
    let client = Client::builder(child).build();
    client.call_tool("t", json!({})).await.unwrap();
    let answered = async {
        while file.read().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), answered).await.unwrap();
    client.transport().shutdown(Duration::from_secs(5)).await;
}
