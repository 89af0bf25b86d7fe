//! Servers that run as child processes.

#[cfg(feature = "legacy")]
mod any_revision;

use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::client::{OutgoingRequest, SubscriptionEvent, Transport as _};
use mrtr::schema::jsonrpc::{Request, RequestId};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::stdio::ChildServer;
use mrtr::{Client, ClientSet, Context, Server, Tool};
use serde_json::json;

/// A file of one test, which is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("mrtr-{name}-{}", std::process::id())))
    }

    fn read(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Creates a server that is a shell script.
///
/// `arms` are arms of a `case` on the received line, which may use `$id`, the id of the request.
/// The script runs `end` when its input ends. In both, `$1` is the path of `file`.
fn script(arms: &str, end: &str, file: &Scratch) -> ChildServer {
    let text = format!(
        r#"echo start >> "$1"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*) echo '{{"jsonrpc":"2.0","id":"probe-1","result":{DISCOVERED}}}' ;;
                {arms}
            esac
        done
        {end}"#
    );
    ChildServer::new(
        "sh",
        ["-c".into(), text.into(), "server".into(), file.0.clone().into_os_string()],
    )
}

const DISCOVERED: &str =
    r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}"#;

/// The acknowledgement of a subscription, for the shell.
const ACKNOWLEDGED: &str = r#"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":$id},\"notifications\":{}}}"#;
const ANSWER: &str =
    r#"*tools/call*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[]}}""#;

#[tokio::test]
async fn exited_server_is_restarted_and_may_write_to_stderr() {
    let file = Scratch::new("starts");
    let arms = format!("{ANSWER}; echo noise >&2; exit 1 ;;");
    let client = Client::builder(script(&arms, "", &file)).build();
    for _ in 0..3 {
        client.call_tool("t", json!({})).await.unwrap();
        // The output may end slightly later than the response.
        while !client.transport().has_exited() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(file.read(), "start\n".repeat(3));
}

#[tokio::test]
async fn child_starts_in_its_folder() {
    let file = Scratch::new("folder");
    let folder = std::env::temp_dir().canonicalize().unwrap();
    let config = json!({ "mcpServers": { "s": {
        "command": "sh", "args": ["-c", "pwd -P > \"$0\"", file.0], "cwd": folder,
    } } });
    let set = ClientSet::from_json(&config.to_string(), |_, client| client).unwrap();
    set.iter().next().unwrap().1.discover().await.unwrap_err();
    assert_eq!(PathBuf::from(file.read().trim()), folder);
    let child = ChildServer::new("sh", [""; 0]).current_dir("no such folder");
    let error = Client::builder(child).build().discover().await.unwrap_err();
    assert!(error.to_string().contains("in no such folder"), "{error}");
}

/// All calls that wait for the same start fail when its timeout expires.
#[tokio::test(start_paused = true)]
async fn waiting_calls_share_one_start_timeout() {
    let time = Duration::from_mins(1);
    let server = ChildServer::new("sh", ["-c", "while read -r line; do :; done"]).timeout(time);
    let client = Client::builder(server).build();
    let begun = tokio::time::Instant::now();
    let calls = (0..10).map(|_| client.call_tool("t", json!({})));
    for outcome in futures_util::future::join_all(calls).await {
        let error = outcome.unwrap_err();
        assert!(
            error.to_string().contains("did not start")
                || error.to_string().contains("no response within"),
            "{error}"
        );
    }
    assert!(begun.elapsed() < 2 * time, "{:?}", begun.elapsed());
}

/// Starts a server that answers its second `server/discover` only, after an error for the first.
fn slow_server(file: &Scratch) -> ChildServer {
    let text = format!(
        r#"echo start >> "$1"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*)
                    if [ "$first" ]; then
                        echo "{{\"jsonrpc\":\"2.0\",\"id\":$first,\"error\":{{\"code\":-32603,\"message\":\"cancelled\"}}}}"
                        echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$2}}"
                    fi
                    first=$id
                    echo probed >> "$1" ;;
                {ANSWER} ;;
            esac
        done"#
    );
    let file = file.0.clone().into_os_string();
    ChildServer::new("sh", ["-c".into(), text.into(), "server".into(), file, DISCOVERED.into()])
}

/// Makes a call, and drops it when the server has written `part`.
async fn drop_call_at(client: &Client<impl mrtr::client::Transport>, file: &Scratch, part: &str) {
    let has_part = async {
        while !file.read().contains(part) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = client.call_tool("t", json!({})) => panic!("{result:?}"),
        () = has_part => {}
    }
}

/// Other calls may be waiting for the same process, and it may be slow to start. What it answers to
/// the cancelled probe is not taken for the answer to the next one.
#[tokio::test]
async fn dropped_request_does_not_end_the_server() {
    let file = Scratch::new("dropped");
    let client = Client::builder(slow_server(&file)).build();
    drop_call_at(&client, &file, "probed").await;
    client.call_tool("t", json!({})).await.unwrap();
    assert_eq!(file.read(), "start\nprobed\nprobed\n");
}

/// Starts a server whose first process does not answer.
fn hanging_server(file: &Scratch) -> ChildServer {
    let text = format!(
        r#"echo start >> "$1"
        if [ "$(wc -l < "$1")" -lt 2 ]; then while read -r line; do :; done; exit; fi
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$2}}" ;;
                {ANSWER} ;;
            esac
        done"#
    );
    let path = file.0.clone().into_os_string();
    let server = ChildServer::new(
        "sh",
        ["-c".into(), text.into(), "server".into(), path, DISCOVERED.into()],
    );
    server.timeout(Duration::from_millis(500)).start_timeout(Duration::from_millis(800))
}

/// Calls until there is an answer.
async fn call_until_answered(transport: impl mrtr::client::Transport, file: &Scratch) {
    let client = Client::builder(transport).build();
    let mut failed = 0;
    while client.call_tool("t", json!({})).await.is_err() {
        failed += 1;
        assert!(failed < 100, "{}", file.read());
    }
    assert!(failed > 0);
    assert!(file.read().starts_with("start\nstart\n"), "{}", file.read());
}

#[tokio::test]
async fn server_that_hangs_at_its_start_is_replaced() {
    let file = Scratch::new("hangs");
    call_until_answered(hanging_server(&file), &file).await;
    #[cfg(feature = "legacy")]
    {
        use mrtr::legacy::{AnyRevisionChild, RevisionMode};

        let file = Scratch::new("hangs-any");
        let child = AnyRevisionChild::new(hanging_server(&file), RevisionMode::Auto);
        call_until_answered(child.probe_timeout(Duration::from_millis(100)), &file).await;
    }
}

/// It does not hang, so the application may ask it again.
#[tokio::test]
async fn server_of_an_older_revision_is_not_replaced() {
    let file = Scratch::new("answers");
    let text = r#"echo start >> "$1"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
            echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}"
        done"#;
    let args = ["-c".into(), text.into(), "server".into(), file.0.clone().into_os_string()];
    let server = ChildServer::new("sh", args).timeout(Duration::from_millis(500));
    let server = server.start_timeout(Duration::ZERO);
    let client = Client::builder(server).build();
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(600) {
        assert!(client.discover().await.unwrap_err().as_server_error().is_some());
    }
    assert_eq!(file.read(), "start\n");
}

/// A process that answers nothing, and its file.
fn silent_server(name: &str) -> (ChildServer, Scratch) {
    let file = Scratch::new(name);
    let text = r#"echo start >> "$1"; while read -r line; do echo probed >> "$1"; done"#;
    let args = ["-c".into(), text.into(), "server".into(), file.0.clone().into_os_string()];
    (ChildServer::new("sh", args).timeout(Duration::MAX), file)
}

/// Makes two calls, and shuts the server down when one was sent. Returns the texts of their errors.
async fn shut_down_at_the_start<T: mrtr::client::Transport>(
    transport: T,
    file: &Scratch,
    shut_down: impl AsyncFnOnce(&T),
) -> [String; 2] {
    let client = Client::builder(transport).build();
    let shut_down = async {
        while !file.read().contains("probed") {
            tokio::task::yield_now().await;
        }
        shut_down(client.transport()).await;
    };
    let call = async || client.call_tool("t", json!({})).await.unwrap_err().to_string();
    let all = async { tokio::join!(call(), call(), shut_down) };
    let all = tokio::time::timeout(Duration::from_secs(30), all);
    let (first, second, ()) = all.await.unwrap();
    // It does not start another process.
    assert_eq!(file.read(), "start\nprobed\n");
    [first, second]
}

/// Its process does not answer the call that waits.
#[tokio::test]
async fn shutdown_does_not_wait_for_the_start() {
    let time = Duration::from_mins(1);
    let (server, file) = silent_server("waits");
    let shut_down = async |child: &ChildServer| child.shutdown(time).await;
    let [error, waiting] = shut_down_at_the_start(server, &file, shut_down).await;
    assert!(error.contains("did not answer"), "{error}");
    assert!(waiting.contains("the server was shut down"), "{waiting}");
    #[cfg(feature = "legacy")]
    {
        use mrtr::legacy::{AnyRevisionChild, RevisionMode};

        let (server, file) = silent_server("waits-any");
        let child = AnyRevisionChild::new(server, RevisionMode::Auto).probe_timeout(time);
        let shut_down = async |child: &AnyRevisionChild| child.shutdown(time).await;
        let errors = shut_down_at_the_start(child, &file, shut_down).await;
        assert!(
            errors.iter().all(|error| error.contains("the server was shut down")),
            "{errors:?}"
        );
    }
}

/// Such as a server that a wrapper has started, which does not end with it.
#[tokio::test]
async fn shutdown_ends_requests_that_another_process_could_answer() {
    let script = r#"read -r line
        echo '{"jsonrpc":"2.0","id":"probe-1","result":RESULT}'
        read -r line
        sleep 100 & echo $! > "$1"
        while read -r line; do :; done"#;
    let file = Scratch::new("inherited");
    let script = script.replace("RESULT", DISCOVERED);
    let args = ["-c".into(), script.into(), "server".into(), file.0.clone().into_os_string()];
    let client = Client::builder(ChildServer::new("sh", args).timeout(Duration::MAX)).build();
    let shut_down = async {
        while file.read().is_empty() {
            tokio::task::yield_now().await;
        }
        client.transport().shutdown(Duration::from_mins(1)).await;
    };
    let both = async { tokio::join!(client.call_tool("t", json!({})), shut_down).0 };
    let called = tokio::time::timeout(Duration::from_secs(30), both).await;
    let pid = file.read();
    std::process::Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(called.unwrap().is_err());
}

/// So that `mrtr dev` can run a server over HTTP. The child is this test in another process.
#[tokio::test]
async fn serve_uses_standard_streams_in_development() {
    const VARIABLE: &str = "MRTR_DEVELOPMENT_STDIO";
    if std::env::var_os(VARIABLE).is_some() {
        let server = Server::builder("s", "1").allow_anonymous().ephemeral_key();
        let server = server.tool(Tool::new("t", "", async |_: Context| "said")).build().unwrap();
        mrtr::serve(server, "127.0.0.1:0").await.unwrap();
        return;
    }
    let test = "child::serve_uses_standard_streams_in_development";
    let program = std::env::current_exe().unwrap();
    let child = ChildServer::new(program, ["--exact", test, "--nocapture"]).env(VARIABLE, "1");
    let client = Client::builder(child).build();
    assert_eq!(client.call_tool("t", json!({})).await.unwrap().text(), "said");
    client.transport().shutdown(Duration::from_mins(1)).await;
}

#[tokio::test]
async fn subscription_resumes_after_a_server_restart() {
    let file = Scratch::new("resubscribe");
    let arms = format!("*subscriptions/listen*) echo \"{ACKNOWLEDGED}\"; exit 1 ;;");
    let client = Client::builder(script(&arms, "", &file)).build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    for _ in 0..2 {
        assert!(matches!(events.next().await, Some(Ok(SubscriptionEvent::Acknowledged(_)))));
    }
    assert_eq!(file.read(), "start\n".repeat(2));
}

/// It would run on, and nothing would end it.
#[tokio::test]
async fn shutdown_is_not_undone_by_a_subscription() {
    let file = Scratch::new("unsubscribed");
    let client = Client::builder(script(
        &format!("*subscriptions/listen*) echo \"{ACKNOWLEDGED}\" ;;"),
        "",
        &file,
    ));
    let client = client.build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    assert!(matches!(events.next().await, Some(Ok(SubscriptionEvent::Acknowledged(_)))));
    let shutdown = client.transport().shutdown(Duration::from_mins(1));
    let (event, ()) = tokio::join!(events.next(), shutdown);
    assert!(matches!(event, Some(Err(_))), "{event:?}");
    assert!(events.next().await.is_none());
    assert_eq!(file.read(), "start\n");
}

/// The server writes to the file when its input ends, which shows that it was not killed.
#[tokio::test]
async fn shutdown_closes_the_input_and_waits_for_the_server() {
    for dropped in [true, false] {
        let file = Scratch::new("graceful");
        let arms = format!("{ANSWER} ;;");
        let client = Client::builder(script(&arms, "sleep 0.2; echo end >> \"$1\"", &file)).build();
        client.call_tool("t", json!({})).await.unwrap();
        if dropped {
            drop(client);
            while !file.read().contains("end") {
                tokio::task::yield_now().await;
            }
        } else {
            client.transport().shutdown(Duration::from_mins(1)).await;
        }
        assert_eq!(file.read(), "start\nend\n");
    }
}

#[tokio::test]
async fn server_of_an_older_revision_receives_no_call() {
    for (discover, part) in [
        (r#"\"error\":{\"code\":-32601,\"message\":\"Method not found\"}"#, "Method not found"),
        (
            r#"\"result\":{\"supportedVersions\":[\"2025-11-25\"],\"capabilities\":{}}"#,
            "it speaks 2025-11-25",
        ),
        (r#"\"result\":{}"#, "malformed"),
    ] {
        let file = Scratch::new("legacy");
        let text = format!(
            r#"while read -r line; do
                case "$line" in
                    *server/discover*) echo "{{\"jsonrpc\":\"2.0\",\"id\":\"probe-1\",{discover}}}" ;;
                    *) echo called >> "$1" ;;
                esac
            done"#
        );
        let args = ["-c".into(), text.into(), "old".into(), file.0.clone().into_os_string()];
        let client = Client::builder(ChildServer::new("sh", args)).build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(error.as_transport_error().unwrap().is_not_sent(), "{error}");
        let text = error.to_string();
        assert!(text.contains("does not speak MCP 2026-07-28") && text.contains(part), "{text}");
        assert_eq!(file.read(), "", "the only request was `server/discover`");
    }
}

/// Also if the application has asked for the versions itself, and goes on.
#[tokio::test]
async fn server_that_did_not_name_the_revision_receives_no_call() {
    let file = Scratch::new("unchecked");
    let text = r#"while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\|"probe-1"\),.*/\1/p')
            case "$line" in
                *server/discover*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}" ;;
                *) echo called >> "$1" ;;
            esac
        done"#;
    let args = ["-c".into(), text.into(), "old".into(), file.0.clone().into_os_string()];
    let client = Client::builder(ChildServer::new("sh", args)).build();
    let error = client.discover().await.unwrap_err();
    assert!(error.as_server_error().is_some(), "{error}");
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("does not speak MCP 2026-07-28"), "{error}");
    assert_eq!(file.read(), "");
}

#[tokio::test]
async fn request_to_a_silent_server_times_out() {
    let silent = ChildServer::new("sh", ["-c", "while read -r line; do :; done"]);
    let client = Client::builder(silent.timeout(Duration::from_millis(50))).build();
    let error = client.discover().await.unwrap_err();
    assert!(error.to_string().contains("no response within 50ms"), "{error}");
}

#[tokio::test]
async fn missing_program_and_early_exit_have_different_errors() {
    let missing = Client::builder(ChildServer::new("no-such-program-here", [""; 0])).build();
    let error = missing.discover().await.unwrap_err();
    assert!(error.as_transport_error().unwrap().is_not_sent(), "{error}");
    assert!(error.to_string().contains("no-such-program-here"), "{error}");

    // The process exits without a response, and the next request starts it again.
    let quitter = Client::builder(ChildServer::new("head", ["-c", "1"])).build();
    for _ in 0..2 {
        let error = quitter.discover().await.unwrap_err();
        assert!(error.to_string().contains("closed the stream"), "{error}");
    }
}

#[tokio::test]
async fn child_exits_when_its_input_ends() {
    let child = ChildServer::new("cat", ["-"]);
    let request = Request::new(RequestId::Number(1), "server/discover", None);
    // `cat` echoes the request, which is not a response.
    tokio::select! {
        biased;
        _ = child.send(OutgoingRequest::new(request)) => unreachable!("there is no response"),
        () = async { for _ in 0..10 { tokio::task::yield_now().await; } } => {}
    }
    let shutdown = child.shutdown(Duration::from_mins(1));
    let exited = tokio::time::timeout(Duration::from_secs(30), shutdown).await;
    assert!(exited.is_ok(), "it was not the end of its input");
}

/// A script that answers one request and then ignores its standard input. On SIGTERM, it writes to
/// the file and exits.
const IGNORES_INPUT: &str = r#"
    trap 'echo terminated > "$1"; exit 0' TERM
    read -r request
    echo '{"jsonrpc":"2.0","id":1,"result":{}}'
    while :; do sleep 1 & wait $!; done
"#;

#[tokio::test]
async fn child_that_ignores_its_input_gets_sigterm_before_it_is_killed() {
    let file = Scratch::new("sigterm");
    let args =
        ["-c".into(), IGNORES_INPUT.into(), "server".into(), file.0.clone().into_os_string()];
    let child = ChildServer::new("sh", args);
    let request = Request::new(RequestId::Number(1), "server/discover", None);
    child.send(OutgoingRequest::new(request)).await.unwrap();
    child.shutdown(Duration::from_secs(1)).await;
    assert_eq!(file.read(), "terminated\n");
}

/// Applications log transports in their `Debug` form.
#[test]
fn secrets_are_not_printed() {
    let child = ChildServer::new("program", ["--token", "secret"]).env("TOKEN", "secret");
    let http = mrtr::http::HttpClient::builder("http://user:secret@localhost:1/mcp?key=secret");
    let http = http.bearer("secret").unwrap();
    let built = format!("{http:?}");
    for printed in [format!("{child:?}"), built, format!("{:?}", http.build().unwrap())] {
        assert!(!printed.contains("secret"), "{printed}");
    }
    assert!(format!("{child:?}").contains("program"));
}
