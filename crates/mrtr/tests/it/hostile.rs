//! Our client against servers that mean harm: each call ends in an error of its own, and no server makes it take more than it
//! said it would.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr::client::{RoundLimits, SubscriptionEvent, TransportError};
use mrtr::http::HttpClient;
use mrtr::schema::subscription::SubscriptionFilter;
use mrtr::{CallError, Client, ElicitResult};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// What the server does with a request.
enum Deed {
    /// A result, under the right id.
    Result(Value),
    /// A body as it is, as JSON.
    Body(String),
    /// Anything, byte by byte.
    Raw(String),
    /// This, and then this again and again; with a pause between, if there is one.
    Endless(String, String, Option<Duration>),
}

struct Hostile {
    url: String,
    /// How many bytes were written.
    written: Arc<AtomicUsize>,
}

impl Hostile {
    /// Does the same for every request; it is given the request's id.
    async fn serve(deed: impl Fn(&Value) -> Deed + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let written = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&written);
        tokio::spawn(async move {
            let deed = Arc::new(deed);
            while let Ok((stream, _)) = listener.accept().await {
                let (deed, counter) = (Arc::clone(&deed), Arc::clone(&counter));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(id) = request(&mut stream).await {
                        if !answer(&mut stream, &id, deed(&id), &counter).await {
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

    /// A client whose every request may take so long.
    fn client(&self, time: Duration) -> HttpClient {
        HttpClient::builder(&self.url).timeout(time).max_response(1 << 20).build().unwrap()
    }

    /// A call by that client.
    async fn call_within(&self, time: Duration) -> CallError {
        let limits = RoundLimits::default().with_input_rounds(3).with_state_rounds(2);
        let client = Client::builder(self.client(time))
            .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "a": "x" }))?))
            .on_progress(|_| {})
            .round_limits(limits)
            .call_timeout(Duration::from_mins(2))
            .build();
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(!error.is_timeout(), "it was held up: {error}");
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

/// Whether the connection is good for another request.
async fn answer(
    stream: &mut BufReader<tokio::net::TcpStream>,
    id: &Value,
    deed: Deed,
    written: &AtomicUsize,
) -> bool {
    let whole = |body: String| {
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let text = match deed {
        Deed::Result(result) => {
            whole(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
        }
        Deed::Body(body) => whole(body),
        Deed::Raw(text) => text,
        Deed::Endless(head, again, pause) => {
            let mut next = head;
            while stream.write_all(next.as_bytes()).await.is_ok() {
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
        "message": "Say what?",
        "requestedSchema": { "type": "object", "properties": { "a": { "type": "string" } } },
    } })
}

fn asks(requests: &Value, state: &Value) -> Value {
    json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state })
}

#[tokio::test]
async fn a_server_that_never_has_enough_is_left() {
    let asking = Hostile::serve(|_| Deed::Result(asks(&json!({ "q": form() }), &json!("s")))).await;
    let error = asking.call().await;
    assert!(error.is_too_many_rounds());
    assert_eq!(
        error.to_string(),
        r#"the server requested input in more than 3 rounds; last input requests: "q" "Say what?""#
    );

    let putting_off = Hostile::serve(|_| {
        Deed::Result(json!({ "resultType": "input_required", "requestState": "s" }))
    });
    let error = putting_off.await.call().await;
    assert!(error.is_too_many_rounds(), "{error}");

    let many = Hostile::serve(|_| {
        let all = (0..10_000).map(|n| (format!("q{n}"), json!({ "method": "roots/list" })));
        Deed::Result(asks(&Value::Object(all.collect()), &json!("s")))
    });
    let error = many.await.call().await;
    assert!(
        error.is_too_many_rounds() && error.to_string().contains("sent 10000 input requests"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_not_the_protocol_is_named() {
    type Make = Box<dyn Fn(&Value) -> Deed + Send + Sync>;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let result = |result: Value| Box::new(move |_: &Value| Deed::Result(result.clone())) as Make;
    let body =
        |make: fn(&Value) -> String| Box::new(move |id: &Value| Deed::Body(make(id))) as Make;
    let cases: Vec<(Make, &str)> = vec![
        (result(asks(&json!({}), &json!(5))), "expected a string"),
        (result(asks(&json!([]), &json!("s"))), "map of input requests"),
        (result(asks(&json!({ "q": 5 }), &json!("s"))), "malformed result"),
        (result(asks(&json!({ "q": { "method": "sudo" } }), &json!("s"))), "sudo"),
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
            body(|id| {
                let form = form();
                let asks = format!(r#"{{"q":{form},"q":{form}}}"#);
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"input_required","inputRequests":{asks}}}}}"#
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
        (Box::new(move |_| Deed::Body(deep.clone())), ""),
    ];
    for (deed, why) in cases {
        let error = Hostile::serve(deed).await.call().await;
        let (mut text, mut source) = (error.to_string(), error.source());
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        assert!(error.is_protocol() && text.contains(why), "{why}: {text}");
    }
}

/// A body is read as far as it may be long, whatever it is.
#[tokio::test]
async fn nothing_grows_without_bound() {
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
        let deed = move |_: &Value| Deed::Endless(head.clone(), text.clone(), None);
        let hostile = Hostile::serve(deed).await;
        let error = hostile.call().await;
        let what = again.get(..20).unwrap_or(&again);
        assert!(error.is_protocol(), "{what:?}: {error}");
        // What was read, and what the buffers of two sockets hold.
        let written = hostile.written.load(Ordering::SeqCst);
        assert!(written < 16 << 20, "{what:?}: {written} bytes");
    }
    // So is the answer to a subscription, if it is no stream of events.
    let deed = move |_: &Value| Deed::Endless(json.to_owned(), "x".repeat(64 << 10), None);
    let hostile = Hostile::serve(deed).await;
    let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
    let mut heard = client.listen(&SubscriptionFilter::default()).unwrap();
    let error = heard.next().await.unwrap().unwrap_err();
    assert!(error.is_protocol(), "{error}");
    let written = hostile.written.load(Ordering::SeqCst);
    assert!(written < 16 << 20, "{written} bytes");
    // A state of 2 MiB, where 1 MiB is the most that is read.
    let state = "s".repeat(2 << 20);
    let bomb = Hostile::serve(move |_| Deed::Result(asks(&json!({}), &json!(state)))).await;
    let error = bomb.call().await;
    assert!(
        error.is_protocol() && error.to_string().contains("more than 1048576 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_drips_is_left_in_time() {
    let pause = Some(Duration::from_millis(20));
    for (head, again) in [
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n", " "),
        ("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", ":\n\n"),
        ("HTTP/1.1 200 OK\r\n", "X: x\r\n"),
    ] {
        let deed = move |_: &Value| Deed::Endless(head.to_owned(), again.to_owned(), pause);
        let hostile = Hostile::serve(deed).await;
        let error = hostile.call_within(Duration::from_millis(300)).await;
        assert!(error.to_string().contains("did not answer in time"), "{error}");
    }
}

/// What stands in front of a server is known by its status.
#[tokio::test]
async fn the_status_of_what_is_no_answer_is_told() {
    for (status, kind, body) in [
        (401, "text/plain", "who?"),
        (403, "application/json", "{\"error\":\"no\"}"),
        (429, "text/html", ""),
        (503, "text/html", ""),
    ] {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let error = Hostile::serve(move |_| Deed::Raw(answer.clone())).await.call().await;
        let told = error.as_transport_error().and_then(TransportError::status);
        assert_eq!(told, Some(status), "{error}");
    }
}

/// What was meant to last is not over because there was no room for it once.
#[tokio::test]
async fn a_subscription_that_found_no_room_comes_back() {
    let asked = AtomicUsize::new(0);
    let deed = move |id: &Value| {
        let busy = json!({ "jsonrpc": "2.0", "id": id,
            "error": { "code": -32603, "message": "too many requests are in flight" } });
        let length = busy.to_string().len();
        let acknowledged = json!({ "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged", "params": { "notifications": {} } });
        Deed::Raw(match asked.fetch_add(1, Ordering::SeqCst) {
            0 => format!(
                "HTTP/1.1 503 X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{busy}"
            ),
            _ => format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {acknowledged}\n\n"
            ),
        })
    };
    let hostile = Hostile::serve(deed).await;
    let client = Client::builder(hostile.client(Duration::from_mins(1))).build();
    let mut heard = client.listen(&SubscriptionFilter::default()).unwrap();
    let first = heard.next().await;
    assert!(matches!(first, Some(Ok(SubscriptionEvent::Acknowledged(_)))), "{first:?}");
}

/// When to come back is told, by gateways in their words and by servers in those of the protocol.
#[tokio::test]
async fn who_has_too_much_to_do_says_when_to_come_back() {
    let busy = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"too many"}}"#;
    for (status, kind, body) in [
        (429, "text/html", "<html>slowly</html>"),
        (429, "application/json", busy),
        (503, "application/json", busy),
        (503, "text/plain", ""),
    ] {
        let length = body.len();
        for (said, seconds) in [("7", Some(7)), ("soon", None), ("-1", None), ("1e9", None)] {
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nRetry-After: {said}\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let error = Hostile::serve(move |_| Deed::Raw(answer.clone())).await.call().await;
            let told = error.as_transport_error().unwrap();
            assert_eq!(told.retry_after(), seconds.map(Duration::from_secs), "{said}");
            assert!(told.is_broken() && told.status() == Some(status), "{error}");
            assert!(body != busy || error.to_string().contains("too many"), "{error}");
        }
    }
}

/// Connections may be made as somebody wishes, here through a proxy; redirects are not followed all the same.
#[tokio::test]
async fn connections_are_made_as_was_said() {
    use mrtr::http::reqwest::{Client as Http, Proxy, redirect::Policy};

    let proxy = Hostile::serve(|_| Deed::Result(json!({ "content": [] }))).await;
    let through = Http::builder().proxy(Proxy::http(&proxy.url).unwrap());
    let http = HttpClient::builder("http://booking.invalid/mcp").connections(through);
    let client = Client::builder(http.build().unwrap()).build();
    client.call_tool("t", json!({})).await.unwrap();

    let head = "HTTP/1.1 307 X\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n";
    let redirects = Hostile::serve(|_| Deed::Raw(head.to_owned())).await;
    let follows = Http::builder().redirect(Policy::limited(5));
    let http = HttpClient::builder(&redirects.url).connections(follows).build().unwrap();
    let error = Client::builder(http).build().call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_transport_error().and_then(TransportError::status), Some(307), "{error}");
}

/// Nobody but the server that was named gets the arguments, the answers and the credentials.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", other.local_addr().unwrap());
    for status in
        ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let head = format!("HTTP/1.1 {status}\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
        let error = Hostile::serve(move |_| Deed::Raw(head.clone())).await.call().await;
        assert!(error.is_protocol(), "{error}");
    }
    let contacted = tokio::select! {
        biased;
        _ = other.accept() => true,
        () = std::future::ready(()) => false,
    };
    assert!(!contacted);
}

/// A gateway that got no answer from its server says so in its own words: the server may have acted, and a leg that may be
/// sent again is.
#[tokio::test]
async fn a_gateway_without_an_answer_is_a_connection_that_broke() {
    let (html, json) = ("text/html", "application/json");
    for (status, kind, page) in [
        ("502 Bad Gateway", html, "<html>It is not there.</html>"),
        ("503 Service Unavailable", html, ""),
        ("504 Gateway Timeout", json, r#"{"message":"Endpoint request timed out"}"#),
    ] {
        let gateway = move |length| {
            Deed::Raw(format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{page}"
            ))
        };
        let error = Hostile::serve(move |_| gateway(page.len())).await.call().await;
        assert!(error.as_transport_error().is_some_and(TransportError::is_broken), "{error}");
        assert!(error.to_string().contains(status), "{error}");

        let asked = AtomicUsize::new(0);
        let back = Hostile::serve(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => gateway(page.len()),
            _ => Deed::Result(json!({ "content": [{ "type": "text", "text": "done" }] })),
        });
        let http = HttpClient::builder(&back.await.url).build().unwrap();
        let client = Client::builder(http).build().with_retries(2);
        assert_eq!(client.call_tool("t", json!({})).await.unwrap().text(), "done");
    }
}
