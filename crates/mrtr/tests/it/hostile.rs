//! The client against hostile servers: each call ends with a specific error, within the client's
//! limits of time and memory.

mod subscriptions;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::client::{RoundLimits, TransportError};
use mrtr::http::HttpClient;
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::{CallError, Client, ElicitResult};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// The reply of a hostile server to a request.
enum Reply {
    /// A result with the id of the request.
    Result(Value),
    /// A body with the content type of JSON.
    Body(String),
    /// A raw HTTP response.
    Raw(String),
    /// The first text, then the second one up to a GiB, after each pause if there is one.
    Endless(String, String, Option<Duration>),
}

struct Hostile {
    url: String,
    /// The number of bytes that the server has written.
    written: Arc<AtomicUsize>,
}

impl Hostile {
    /// Starts a server that replies to each request, given its id, with `reply`.
    async fn serve(reply: impl Fn(&Value) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let written = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&written);
        tokio::spawn(async move {
            let reply = Arc::new(reply);
            while let Ok((stream, _)) = listener.accept().await {
                let (reply, counter) = (Arc::clone(&reply), Arc::clone(&counter));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(id) = request(&mut stream).await {
                        if !respond(&mut stream, &id, reply(&id), &counter).await {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, written }
    }

    async fn call(&self) -> CallError {
        self.call_within(Duration::from_mins(1)).await
    }

    /// Creates a client with a timeout for each request.
    fn client(&self, timeout: Duration) -> HttpClient {
        HttpClient::builder(&self.url).timeout(timeout).max_response(1 << 20).build().unwrap()
    }

    /// Calls a tool with such a client, and returns the error.
    async fn call_within(&self, timeout: Duration) -> CallError {
        let limits = RoundLimits::default().with_input_rounds(3).with_state_rounds(2);
        let client = Client::builder(self.client(timeout))
            .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "a": "x" }))?))
            .on_progress(|_| {})
            .round_limits(limits)
            .call_timeout(Duration::from_mins(2))
            .build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(!error.is_timeout(), "the call timed out: {error}");
        error
    }
}

/// Reads one request, and returns its id.
async fn request(stream: &mut BufReader<tokio::net::TcpStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    serde_json::from_slice::<Value>(&body).ok().map(|request| request["id"].clone())
}

/// Writes a reply. Returns true if the connection can be used for another request.
async fn respond(
    stream: &mut BufReader<tokio::net::TcpStream>,
    id: &Value,
    reply: Reply,
    written: &AtomicUsize,
) -> bool {
    let whole = |body: String| {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let text = match reply {
        Reply::Result(result) => {
            whole(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
        }
        Reply::Body(body) => whole(body),
        Reply::Raw(text) => text,
        Reply::Endless(head, again, pause) => {
            let mut next = head;
            while written.load(Ordering::SeqCst) < 1 << 30
                && stream.write_all(next.as_bytes()).await.is_ok()
            {
                written.fetch_add(next.len(), Ordering::SeqCst);
                if let Some(pause) = pause {
                    tokio::time::sleep(pause).await;
                }
                next.clone_from(&again);
            }
            return false;
        }
    };
    written.fetch_add(text.len(), Ordering::SeqCst);
    stream.write_all(text.as_bytes()).await.is_ok()
}

fn form() -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": "Name?",
        "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } },
    } })
}

fn input_required(requests: &Value, state: &Value) -> Value {
    json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state })
}

#[tokio::test]
async fn endless_rounds_end_the_call() {
    let asking =
        Hostile::serve(|_| Reply::Result(input_required(&json!({ "q": form() }), &json!("s"))))
            .await;
    let error = asking.call().await;
    assert!(error.is_too_many_rounds());
    assert_eq!(
        error.to_string(),
        r#"the server requested input in more than 3 rounds; last input requests: "q" "Name?""#
    );

    let postponing = Hostile::serve(|_| {
        Reply::Result(json!({ "resultType": "input_required", "requestState": "s" }))
    });
    let error = postponing.await.call().await;
    assert!(error.is_too_many_rounds(), "{error}");

    let many = Hostile::serve(|_| {
        let all = (0..10_000).map(|n| (format!("q{n}"), json!({ "method": "roots/list" })));
        Reply::Result(input_required(&Value::Object(all.collect()), &json!("s")))
    });
    let error = many.await.call().await;
    assert!(
        error.is_too_many_rounds() && error.to_string().contains("sent 10000 input requests"),
        "{error}"
    );
}

#[tokio::test]
async fn malformed_responses_have_a_specific_error() {
    type Make = Box<dyn Fn(&Value) -> Reply + Send + Sync>;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let result = |result: Value| Box::new(move |_: &Value| Reply::Result(result.clone())) as Make;
    let body =
        |make: fn(&Value) -> String| Box::new(move |id: &Value| Reply::Body(make(id))) as Make;
    let cases: Vec<(Make, &str)> = vec![
        (result(input_required(&json!({}), &json!(5))), "expected a string"),
        (result(input_required(&json!([]), &json!("s"))), "map of input requests"),
        (result(input_required(&json!({ "q": 5 }), &json!("s"))), "malformed result"),
        (result(input_required(&json!({ "q": { "method": "sudo" } }), &json!("s"))), "sudo"),
        (
            result(json!({ "resultType": "input_required" })),
            "neither inputRequests nor requestState",
        ),
        (
            result(json!({ "resultType": "surprise", "content": [] })),
            "unknown resultType \"surprise\"",
        ),
        (result(json!({ "resultType": 5, "content": [] })), "malformed result"),
        (result(json!({ "content": "text" })), "malformed result"),
        (
            result(json!({ "content": [
                { "type": "text", "text": "", "annotations": { "audience": ["\u{1b}[2J\nERROR"] } },
            ] })),
            "malformed result",
        ),
        (
            result(input_required(
                &json!({ "q": { "method": "sampling/createMessage", "params": {
                    "messages": [{ "role": "\u{1b}[2J\nERROR", "content": [] }], "maxTokens": 1,
                } } }),
                &json!("s"),
            )),
            "unknown variant",
        ),
        (
            body(|id| {
                let form = form();
                let requests = format!(r#"{{"q":{form},"q":{form}}}"#);
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{requests}}}}}"#
                )
            }),
            "duplicate key \"q\"",
        ),
        (
            body(|_| r#"{"jsonrpc":"2.0","id":"another","result":{"content":[]}}"#.into()),
            "another request",
        ),
        (
            body(|_| r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#.into()),
            "needs the `id`",
        ),
        (body(|id| format!(r#"[{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}]"#)), ""),
        (body(|_| "}".into()), "Parse error"),
        (Box::new(move |_| Reply::Body(deep.clone())), ""),
    ];
    for (reply, reason) in cases {
        let error = Hostile::serve(reply).await.call().await;
        let (mut text, mut source) = (error.to_string(), error.source());
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        assert!(error.is_protocol() && text.contains(reason), "{reason}: {text}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

/// The client stops reading a response at its limit, whatever the format of the body.
#[tokio::test]
async fn response_size_is_bounded() {
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999999999999\r\n\r\n{\"a\":\"";
    let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": 1, "progress": 1 } });
    for (head, again) in [
        (json, "x".repeat(64 << 10)),
        (events, format!("data: {notification}\n\n")),
        (events, format!("data: {}", "x".repeat(64 << 10))),
        (events, format!(": {}\n", "x".repeat(64 << 10))),
        (events, "\n".repeat(64 << 10)),
    ] {
        let (head, text) = (head.to_owned(), again.clone());
        let reply = move |_: &Value| Reply::Endless(head.clone(), text.clone(), None);
        let hostile = Hostile::serve(reply).await;
        let error = hostile.call().await;
        let case = again.get(..20).unwrap_or(&again);
        assert!(error.is_protocol(), "{case:?}: {error}");
        // The limit of the client, and the buffers of two sockets.
        let written = hostile.written.load(Ordering::SeqCst);
        assert!(written < 16 << 20, "{case:?}: {written} bytes");
    }
    // The response to a subscription is bounded if it is not an event stream.
    let reply = move |_: &Value| Reply::Endless(json.to_owned(), "x".repeat(64 << 10), None);
    let hostile = Hostile::serve(reply).await;
    let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
    let mut events = client.listen(&SubscriptionFilter::default()).unwrap();
    let error = events.next().await.unwrap().unwrap_err();
    assert!(error.is_protocol(), "{error}");
    let written = hostile.written.load(Ordering::SeqCst);
    assert!(written < 16 << 20, "{written} bytes");
    // A request state of 2 MiB, with a limit of 1 MiB.
    let state = "s".repeat(2 << 20);
    let long_state =
        Hostile::serve(move |_| Reply::Result(input_required(&json!({}), &json!(state)))).await;
    let error = long_state.call().await;
    assert!(
        error.is_protocol() && error.to_string().contains("more than 1048576 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn slow_response_times_out() {
    let pause = Some(Duration::from_millis(20));
    for (head, again) in [
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n", " "),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", ":\n\n"),
        ("HTTP/1.1 200 OK\r\n", "X: x\r\n"),
    ] {
        let reply = move |_: &Value| Reply::Endless(head.to_owned(), again.to_owned(), pause);
        let hostile = Hostile::serve(reply).await;
        let error = hostile.call_within(Duration::from_millis(300)).await;
        assert!(error.to_string().contains("did not answer in time"), "{error}");
    }
}

/// A proxy in front of the server may reject a request without a message of the protocol.
#[tokio::test]
async fn status_of_a_rejected_request_is_reported() {
    for (status, kind, body) in [
        (401, "text/plain", "log in"),
        (403, "application/json", "{\"error\":\"no\"}"),
        (429, "text/html", ""),
        (503, "text/html", ""),
    ] {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let error = Hostile::serve(move |_| Reply::Raw(answer.clone())).await.call().await;
        let reported = error.as_transport_error().and_then(TransportError::status);
        assert_eq!(reported, Some(status), "{error}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
    }
}

/// A layer that checks credentials may write its response as an error of JSON-RPC.
#[tokio::test]
async fn challenge_is_reported_whatever_its_body_is() {
    for (status, id, is_reported) in
        [(401, "null", true), (401, "1", true), (403, "null", true), (403, "1", false)]
    {
        let server = Hostile::serve(move |_| {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32001,"message":"no token"}}}}"#
            );
            let length = body.len();
            Reply::Raw(format!(
                "HTTP/1.1 {status} No\r\nwww-authenticate: Bearer\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
        })
        .await;
        let error = server.call().await;
        let transport = error.as_transport_error();
        assert_eq!(transport.is_some(), is_reported, "{status} {id}: {error}");
        if let Some(transport) = transport {
            let reported = (transport.status(), transport.www_authenticate());
            assert_eq!(reported, (Some(status), Some("Bearer")), "{error}");
            assert!(error.to_string().contains("no token"), "{error}");
        }
    }
}

/// `Retry-After` is reported for responses of gateways and for messages of the protocol.
#[tokio::test]
async fn retry_after_is_reported_for_429_and_503() {
    let busy = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"too many"}}"#;
    for (status, kind, body) in [
        (429, "text/html", "<html>Too many requests</html>"),
        (429, "application/json", busy),
        (503, "application/json", busy),
        (503, "text/plain", ""),
    ] {
        let length = body.len();
        for (retry_after, seconds) in [("7", Some(7)), ("soon", None), ("-1", None), ("1e9", None)]
        {
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nRetry-After: {retry_after}\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let error = Hostile::serve(move |_| Reply::Raw(answer.clone())).await.call().await;
            let error = error.as_transport_error().unwrap();
            assert_eq!(error.retry_after(), seconds.map(Duration::from_secs), "{retry_after}");
            assert!(error.is_interrupted() && error.status() == Some(status), "{error}");
            assert!(body != busy || error.to_string().contains("too many"), "{error}");
        }
    }
}

/// A proxy changes only how connections are made. Redirects are still not followed.
#[tokio::test]
async fn proxy_gets_all_requests_and_redirects_are_not_followed() {
    let proxy = Hostile::serve(|_| Reply::Result(json!({ "content": [] }))).await;
    let http = HttpClient::builder("http://booking.invalid/mcp").proxy(&proxy.url).unwrap();
    let client = Client::builder(http.build().unwrap()).build();
    client.call_tool("t", json!({})).await.unwrap();

    let head = "HTTP/1.1 307 X\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n";
    let redirects = Hostile::serve(|_| Reply::Raw(head.to_owned())).await;
    for builder in [
        HttpClient::builder(&redirects.url),
        HttpClient::builder("http://booking.invalid/mcp").proxy(&redirects.url).unwrap(),
    ] {
        let client = Client::builder(builder.build().unwrap()).build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        let status = error.as_transport_error().and_then(TransportError::status);
        assert_eq!(status, Some(307), "{error}");
    }

    let invalid = HttpClient::builder("http://booking.invalid/mcp").proxy("http://u:secret@ /");
    let error = invalid.unwrap_err();
    assert!(error.is_not_sent() && !format!("{error:?}").contains("secret"), "{error:?}");
}

/// Only the configured server gets the arguments, the answers and the credentials.
#[tokio::test]
async fn redirect_is_not_followed() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", other.local_addr().unwrap());
    for status in
        ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let head = format!("HTTP/1.1 {status}\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
        let error = Hostile::serve(move |_| Reply::Raw(head.clone())).await.call().await;
        assert!(error.is_protocol(), "{error}");
    }
    let contacted = tokio::select! {
        biased;
        _ = other.accept() => true,
        () = std::future::ready(()) => false,
    };
    assert!(!contacted);
}

/// A gateway reports in its own format that its server did not respond. The server may have acted,
/// so only a client with retries sends the request again.
#[tokio::test]
async fn gateway_error_is_an_interrupted_request() {
    let (html, json) = ("text/html", "application/json");
    for (status, kind, page) in [
        ("502 Bad Gateway", html, "<html>Bad gateway</html>"),
        ("503 Service Unavailable", html, ""),
        ("504 Gateway Timeout", json, r#"{"message":"Endpoint request timed out"}"#),
    ] {
        let gateway = move |length| {
            Reply::Raw(format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{page}"
            ))
        };
        let error = Hostile::serve(move |_| gateway(page.len())).await.call().await;
        assert!(error.as_transport_error().is_some_and(TransportError::is_interrupted), "{error}");
        assert!(error.to_string().contains(status), "{error}");

        let requests = AtomicUsize::new(0);
        let recovering = Hostile::serve(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => gateway(page.len()),
            _ => Reply::Result(json!({ "content": [{ "type": "text", "text": "done" }] })),
        });
        let http = HttpClient::builder(&recovering.await.url).build().unwrap();
        let client = Client::builder(http).build().with_retries(2);
        assert_eq!(client.call_tool("t", json!({})).await.unwrap().text(), "done");
    }
}
