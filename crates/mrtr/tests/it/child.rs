//! Servers that are processes of ours.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::Client;
use mrtr::client::{OutgoingRequest, SubscriptionEvent, Transport as _};
use mrtr::schema::jsonrpc::{Request, RequestId};
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::stdio::ChildServer;
use serde_json::json;

/// A file of this test alone, gone when it is over.
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

/// A shell script that is a server; `$1` is the file. What `answers` has are the arms of a `case` on the line
/// that was read, which may use the request's `$id`.
fn script(answers: &str, end: &str, file: &Scratch) -> ChildServer {
    let text = format!(
        r#"echo start >> "$1"
        while read -r line; do
            id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *server/discover*) echo '{{"jsonrpc":"2.0","id":"probe","result":{DISCOVERED}}}' ;;
                {answers}
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
const ANSWER: &str =
    r#"*tools/call*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[]}}""#;

#[tokio::test]
async fn a_server_that_has_ended_is_started_again_and_one_that_talks_on_stderr_is_fine() {
    let file = Scratch::new("starts");
    let answers = format!("{ANSWER}; echo noise >&2; exit 1 ;;");
    let client = Client::builder(script(&answers, "", &file)).build();
    for _ in 0..3 {
        client.call_tool("t", json!({})).await.unwrap();
        // The end of its output may come a moment after the answer.
        while !client.transport().has_ended().await {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(file.read(), "start\n".repeat(3));
}

/// A start that takes too long is one for all who wait for it.
#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_start_wait_no_longer_than_one() {
    let time = Duration::from_mins(1);
    let server = ChildServer::new("sh", ["-c", "while read -r line; do :; done"]).timeout(time);
    let client = Client::builder(server).build();
    let begun = tokio::time::Instant::now();
    let calls = (0..10).map(|_| client.call_tool("t", json!({})));
    for outcome in futures_util::future::join_all(calls).await {
        let error = outcome.unwrap_err();
        assert!(
            error.to_string().contains("did not start") || error.to_string().contains("no answer"),
            "{error}"
        );
    }
    assert!(begun.elapsed() < 2 * time, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_subscription_stands_again_after_its_server_was_restarted() {
    let file = Scratch::new("resubscribe");
    let acknowledged = r#"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":$id},\"notifications\":{}}}"#;
    let answers = format!("*subscriptions/listen*) echo \"{acknowledged}\"; exit 1 ;;");
    let client = Client::builder(script(&answers, "", &file)).build();
    let mut heard = client.listen(&SubscriptionFilter::default()).unwrap();
    for _ in 0..2 {
        assert!(matches!(heard.next().await, Some(Ok(SubscriptionEvent::Acknowledged(_)))));
    }
    assert_eq!(file.read(), "start\n".repeat(2));
}

/// It writes when its input has ended, so the file shows that it was not killed before.
#[tokio::test]
async fn a_server_is_asked_to_end_and_waited_for() {
    for dropped in [true, false] {
        let file = Scratch::new("graceful");
        let answers = format!("{ANSWER} ;;");
        let client =
            Client::builder(script(&answers, "sleep 0.2; echo end >> \"$1\"", &file)).build();
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
async fn a_server_of_an_older_revision_is_not_given_a_call() {
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
                    *server/discover*) echo "{{\"jsonrpc\":\"2.0\",\"id\":\"probe\",{discover}}}" ;;
                    *) echo called >> "$1" ;;
                esac
            done"#
        );
        let args = ["-c".into(), text.into(), "old".into(), file.0.clone().into_os_string()];
        let client = Client::builder(ChildServer::new("sh", args)).build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(error.as_transport_error().unwrap().is_unsent(), "{error}");
        let text = error.to_string();
        assert!(text.contains("does not speak MCP 2026-07-28") && text.contains(part), "{text}");
        assert_eq!(file.read(), "", "nothing but the question for its versions was sent");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_given_up() {
    let silent = ChildServer::new("sh", ["-c", "while read -r line; do :; done"]);
    let client = Client::builder(silent.timeout(Duration::from_millis(50))).build();
    let error = client.discover().await.unwrap_err();
    assert!(error.to_string().contains("no answer within 50ms"), "{error}");
}

#[tokio::test]
async fn a_program_that_is_not_there_or_does_not_answer_is_told_apart() {
    let missing = Client::builder(ChildServer::new("no-such-program-here", [""; 0])).build();
    let error = missing.discover().await.unwrap_err();
    assert!(error.as_transport_error().unwrap().is_unsent(), "{error}");
    assert!(error.to_string().contains("no-such-program-here"), "{error}");

    // It ends without an answer, and is started again with the next request.
    let quitter = Client::builder(ChildServer::new("head", ["-c", "1"])).build();
    for _ in 0..2 {
        let error = quitter.discover().await.unwrap_err();
        assert!(error.to_string().contains("closed the stream"), "{error}");
    }
}

#[tokio::test]
async fn a_child_that_reads_to_the_end_ends_by_itself() {
    let child = ChildServer::new("cat", ["-"]);
    let request = Request::new(RequestId::Number(1), "server/discover", None);
    // It sends our own request back, which is no answer.
    tokio::select! {
        biased;
        _ = child.send(OutgoingRequest::new(request)) => unreachable!("there is no answer"),
        () = async { for _ in 0..10 { tokio::task::yield_now().await; } } => {}
    }
    child.shutdown(Duration::from_mins(1)).await;
}

/// Answers one request, and then does not care for its standard input. Told to end, it says so in a file
/// and ends.
const DEAF: &str = r#"
    trap 'echo told > "$1"; exit 0' TERM
    read -r request
    echo '{"jsonrpc":"2.0","id":1,"result":{}}'
    while :; do sleep 1 & wait $!; done
"#;

#[tokio::test]
async fn a_child_that_does_not_end_by_itself_is_told_before_it_is_killed() {
    let said = std::env::temp_dir().join(format!("mrtr-told-{}", std::process::id()));
    let args = ["-c".into(), DEAF.into(), "deaf".into(), said.clone().into_os_string()];
    let child = ChildServer::new("sh", args);
    let request = Request::new(RequestId::Number(1), "server/discover", None);
    child.send(OutgoingRequest::new(request)).await.unwrap();
    child.shutdown(Duration::from_secs(1)).await;
    let told = std::fs::read_to_string(&said);
    let _ = std::fs::remove_file(&said);
    assert_eq!(told.unwrap(), "told\n");
}

/// Transports end up in logs, as fields of what is printed there.
#[test]
fn what_may_be_secret_is_not_printed() {
    let child = ChildServer::new("program", ["--token", "secret"]).env("TOKEN", "secret");
    let http = mrtr::http::HttpClient::builder("http://who:secret@localhost:1/mcp?key=secret");
    let http = http.bearer("secret").unwrap();
    let built = format!("{http:?}");
    for printed in [format!("{child:?}"), built, format!("{:?}", http.build().unwrap())] {
        assert!(!printed.contains("secret"), "{printed}");
    }
    assert!(format!("{child:?}").contains("program"));
}
