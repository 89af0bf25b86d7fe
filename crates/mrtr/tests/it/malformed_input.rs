//! Malformed requests get the specified error, and the server still responds to others.

use std::time::Duration;

use mrtr::http::RequestLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http_wire::{
    Head, assert_alive, connect, exchange, params, read_response, request, serve,
};

struct Case {
    name: &'static str,
    verb: &'static str,
    head: Head,
    body: Vec<u8>,
    status: u16,
    /// The JSON-RPC error code; 0 for no error.
    code: i64,
    /// A text that the response contains.
    contains: &'static str,
}

fn cases() -> Vec<Case> {
    let initialize =
        Head::new("initialize", None).without("MCP-Protocol-Version").without("Mcp-Method");
    let call = Head::new("tools/call", Some("add"));
    let good = params(json!({ "name": "add", "arguments": { "a": 1, "b": 2 } }));
    let body = request("tools/call", &good);
    let case = |name, head: &Head, body: &[u8], status, code, contains| {
        let (head, body) = (head.clone(), body.to_vec());
        Case { name, verb: "POST", head, body, status, code, contains }
    };
    let mut bare = good.clone();
    bare.as_object_mut().unwrap().remove("_meta");
    let discover = Head::new("server/discover", None);
    let mut cases = vec![
        case("malformed JSON", &call, b"{\"jsonrpc\":", 400, -32700, "Parse error"),
        case("an empty body", &call, b"", 400, -32700, "EOF"),
        case("bytes that are not UTF-8", &call, b"{\"jsonrpc\":\"\xff\"}", 400, -32700, "Parse error"),
        case("duplicate keys", &call, br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#, 400, -32700, "duplicate key"),
        case("deep nesting", &call, "[".repeat(5000).as_bytes(), 400, -32700, "recursion"),
        case("a batch", &call, b"[]", 400, -32600, "batches"),
        case("no JSON-RPC version", &call, br#"{"id":7,"method":"x"}"#, 400, -32600, "jsonrpc"),
        case("a null id", &call, br#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, 400, -32600, "must not be null"),
        case("a response", &call, br#"{"jsonrpc":"2.0","id":7,"result":{}}"#, 400, -32600, "not responses"),
        case("another content type", &call.clone().with("Content-Type", "text/plain"), &body, 415, -32600, "Content-Type"),
        case("no content type", &call.clone().without("Content-Type"), &body, 415, -32600, "Content-Type"),
        case("a compressed body", &call.clone().with("Content-Encoding", "gzip"), &body, 415, -32600, "compressed"),
        case("only JSON accepted", &call.clone().with("Accept", "application/json"), &body, 406, -32600, "Accept"),
        case("no Accept", &call.clone().without("Accept"), &body, 406, -32600, "Accept"),
        case("another host", &call.clone().with("Host", "evil.example"), &body, 403, -32600, "evil.example"),
        case("another origin", &call.clone().with("Origin", "https://evil.example"), &body, 403, -32600, "evil.example"),
        case("no version header", &call.clone().without("MCP-Protocol-Version"), &body, 400, -32020, "missing"),
        case("no method header", &call.clone().without("Mcp-Method"), &body, 400, -32020, "missing"),
        case("no name header", &call.clone().without("Mcp-Name"), &body, 400, -32020, "missing"),
        case("another version header", &call.clone().with("MCP-Protocol-Version", "2025-11-25"), &body, 400, -32020, "2025-11-25"),
        case("another method header", &call.clone().with("Mcp-Method", "tools/list"), &body, 400, -32020, "tools/list"),
        case("another name header", &call.clone().with("Mcp-Name", "pay"), &body, 400, -32020, "pay"),
        case("no _meta", &call, &request("tools/call", &bare), 400, -32602, "protocolVersion"),
        case("no parameters", &discover, br#"{"jsonrpc":"2.0","id":7,"method":"server/discover"}"#, 400, -32602, "protocolVersion"),
        case("parameters that are a list", &discover, br#"{"jsonrpc":"2.0","id":7,"method":"server/discover","params":[]}"#, 400, -32600, "must be an object"),
        case("an unknown method", &Head::new("no/such", None), &request("no/such", &params(json!({}))), 404, -32601, "no/such"),
        case("an unknown tool", &Head::new("tools/call", Some("nope")), &request("tools/call", &params(json!({ "name": "nope" }))), 400, -32602, "Unknown tool"),
        case("a tool without a name", &call, &request("tools/call", &params(json!({}))), 400, -32602, "name"),
        case("a name that is not a string", &call, &request("tools/call", &params(json!({ "name": 5 }))), 400, -32602, "name"),
        case("arguments that are a list", &call, &request("tools/call", &params(json!({ "name": "add", "arguments": [1] }))), 400, -32602, "arguments"),
        case("a forged request state", &call, &request("tools/call", &params(json!({ "name": "add", "requestState": "mrtr1.AAAA" }))), 400, -32602, "requestState"),
        case("an older initialize", &initialize, br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#, 400, -32022, "2026-07-28"),
    ];
    let mut old = good.clone();
    old["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2025-11-25");
    let mut loud = good.clone();
    loud["_meta"]["io.modelcontextprotocol/logLevel"] = json!("loud");
    let note = br#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    let bad_note = br#"{"jsonrpc":"2.0","method":"notifications/x","params":[]}"#;
    cases.extend([
        case("an older version", &call.clone().with("MCP-Protocol-Version", "2025-11-25"),
            &request("tools/call", &old), 400, -32022, "2026-07-28"),
        case("an unknown log level", &call, &request("tools/call", &loud), 400, -32602, "loud"),
        case("a list that is not a message", &call, b"[5]", 400, -32600, "batches"),
        case("an older initialize with a token", &initialize, br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-11-25","_meta":{"progressToken":1}}}"#, 400, -32022, "2026-07-28"),
        case("an initialize of this revision", &initialize, br#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}"#, 400, -32022, "has no initialize"),
        case("an initialize without a version", &initialize, br#"{"jsonrpc":"2.0","id":7,"method":"initialize"}"#, 400, -32022, "2026-07-28"),
        case("a notification from another origin", &Head::new("notifications/x", None).with("Origin", "https://evil.example"), note, 403, -32600, "evil.example"),
        case("a notification with a list", &Head::new("notifications/x", None), bad_note, 400, -32600, "must be an object"),
        case("a notification", &Head::new("notifications/x", None), note, 202, 0, "null"),
    ]);
    for (method, key) in [("prompts/get", "name"), ("resources/read", "uri")] {
        let body = request(method, &params(json!({ key: "a:1" })));
        cases.push(case(
            "no name header of this method",
            &Head::new(method, None),
            &body,
            400,
            -32020,
            "mcp-name is missing",
        ));
        cases.push(case(
            "another name header of this method",
            &Head::new(method, Some("a:2")),
            &body,
            400,
            -32020,
            "a:1",
        ));
    }
    for verb in ["GET", "DELETE", "PUT", "OPTIONS"] {
        cases.push(Case { verb, ..case("another verb", &call, b"", 405, -32600, "POST") });
    }
    let wrong_types = request(
        "tools/call",
        &params(json!({ "name": "add", "arguments": { "a": "one", "b": 2 } })),
    );
    cases.push(case(
        "arguments of the wrong type",
        &call,
        &wrong_types,
        200,
        0,
        "a: invalid type: string \"one\"",
    ));
    cases
}

/// Asserts that a response matches its case.
fn check(case: &Case, (status, head, answer): &(u16, String, Value)) {
    let Case { name, .. } = case;
    assert_eq!(*status, case.status, "{name}: {answer}");
    assert_eq!(answer["error"]["code"].as_i64().unwrap_or_default(), case.code, "{name}: {answer}");
    assert!(answer.to_string().replace("\\\"", "\"").contains(case.contains), "{name}: {answer}");
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.len() < 200 && !message.contains('\n'), "{name}: {message}");
    if case.status == 202 {
        assert!(head.contains("content-length: 0\r\n"), "{name}: {head}");
    }
    if case.status == 405 {
        assert!(head.contains("allow: post"), "{name}: {head}");
    }
}

#[tokio::test]
async fn malformed_requests_get_the_specified_error() {
    let port = serve(RequestLimits::default()).await;
    for case in cases() {
        let mut stream = connect(port).await;
        check(&case, &exchange(&mut stream, case.verb, &case.head, &case.body).await);
    }
    assert_alive(port).await;
}

#[tokio::test]
async fn error_has_the_id_of_its_request_if_the_body_was_read() {
    let port = serve(RequestLimits::default()).await;
    for case in cases()
        .iter()
        .filter(|case| case.code != 0 && case.body.windows(6).any(|six| six == b"\"id\":7"))
    {
        let (_, _, answer) =
            exchange(&mut connect(port).await, case.verb, &case.head, &case.body).await;
        // A request that is rejected before its body is read has no known id.
        if matches!(case.status, 400 | 404) {
            assert_eq!(answer["id"], 7, "{}: {answer}", case.name);
        }
    }
}

/// Covers two limits: the requests in flight, and the total bytes of their bodies.
#[tokio::test]
async fn requests_above_the_limits_get_503_and_can_be_retried() {
    let port =
        serve(RequestLimits::default().with_max_in_flight(1).with_max_total_body_bytes(64 << 10))
            .await;
    let call = Head::new("tools/call", Some("add"));
    let mut slow = connect(port).await;
    let partial = format!("{}Content-Length: 100\r\n\r\n{{", call.text("POST"));
    slow.write_all(partial.as_bytes()).await.unwrap();
    let body =
        request("tools/call", &params(json!({ "name": "add", "arguments": { "a": 2, "b": 3 } })));
    loop {
        // Repeats until the slow request is in flight.
        let (status, head, answer) = exchange(&mut connect(port).await, "POST", &call, &body).await;
        if status == 503 {
            assert!(head.contains("retry-after: 1"), "{head}");
            assert_eq!(answer["error"]["code"], -32603);
            break;
        }
    }
    drop(slow);
    while exchange(&mut connect(port).await, "POST", &call, &body).await.0 == 503 {}
    let long = [body, vec![b' '; 64 << 10]].concat();
    assert_eq!(exchange(&mut connect(port).await, "POST", &call, &long).await.0, 503);
    assert_alive(port).await;
}

#[tokio::test]
async fn long_head_gets_431() {
    let port = serve(RequestLimits::default()).await;
    for (bytes, status) in [(40 << 10, 200), (64 << 10, 431), (300 << 10, 431)] {
        let head = Head::new("tools/call", Some("add")).with("X-Long", &"x".repeat(bytes));
        let body = request(
            "tools/call",
            &params(json!({ "name": "add", "arguments": { "a": 2, "b": 3 } })),
        );
        let mut stream = connect(port).await;
        let text = format!("{}Content-Length: {}\r\n\r\n", head.text("POST"), body.len());
        // The server may reject the request before all of it is written.
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.write_all(&body).await;
        assert_eq!(read_response(&mut stream).await.0, status, "{bytes}");
    }
    assert_alive(port).await;
}

#[tokio::test]
async fn json_depth_is_limited() {
    let port = serve(RequestLimits::default().with_max_depth(5)).await;
    let call = Head::new("tools/call", Some("add"));
    let nested = |depth: usize| {
        // The request, its parameters and its arguments are three levels. Brackets in a string do
        // not count.
        let deep = format!("{}1{}", "[".repeat(depth - 3), "]".repeat(depth - 3));
        let arguments = format!(r#"{{"a":1,"b":2,"deep":{deep},"text":"[[[[[[\"[["}}"#);
        let body = request("tools/call", &params(json!({ "name": "add", "arguments": "HERE" })));
        String::from_utf8(body).unwrap().replace("\"HERE\"", &arguments).into_bytes()
    };
    for (depth, status) in [(5, 200), (6, 400)] {
        let (got, _, answer) =
            exchange(&mut connect(port).await, "POST", &call, &nested(depth)).await;
        assert_eq!(got, status, "{depth}: {answer}");
        if status == 400 {
            assert_eq!(answer["error"]["code"], -32700);
        }
    }
}

/// Headers of sessions in older revisions have no meaning in this one.
#[tokio::test]
async fn session_headers_are_ignored() {
    let port = serve(RequestLimits::default()).await;
    let body =
        request("tools/call", &params(json!({ "name": "add", "arguments": { "a": 2, "b": 3 } })));
    let head = Head::new("tools/call", Some("add"));
    let head = head.with("Mcp-Session-Id", "s").with("Last-Event-ID", "5");
    let (status, head, answer) = exchange(&mut connect(port).await, "POST", &head, &body).await;
    assert_eq!((status, &answer["result"]["content"][0]["text"]), (200, &json!("5")));
    assert!(!head.contains("session"), "{head}");
}

/// Sends 10,000 malformed requests of all kinds on eight persistent connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_responds_after_ten_thousand_malformed_requests() {
    const CONNECTIONS: usize = 8;
    let port = serve(RequestLimits::default()).await;
    let clients = (0..CONNECTIONS).map(|start| {
        tokio::spawn(async move {
            let cases = cases();
            let mut stream = connect(port).await;
            for n in 0..10_000 / CONNECTIONS {
                let case = &cases[(start + n) % cases.len()];
                let answer = exchange(&mut stream, case.verb, &case.head, &case.body).await;
                check(case, &answer);
                if answer.1.contains("connection: close") {
                    stream = connect(port).await;
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert_alive(port).await;
}

#[tokio::test]
async fn notification_gets_202_without_a_body() {
    let port = serve(RequestLimits::default()).await;
    let body = br#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#;
    let (status, _, answer) =
        exchange(&mut connect(port).await, "POST", &Head::new("notifications/unknown", None), body)
            .await;
    assert_eq!((status, answer), (202, Value::Null));
}

#[tokio::test]
async fn unknown_path_gets_404() {
    let port = serve(RequestLimits::default()).await;
    let mut stream = connect(port).await;
    stream
        .write_all(b"POST /other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_response(&mut stream).await.0, 404);
    // CONNECT has no path.
    let mut stream = connect(port).await;
    stream.write_all(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut stream).await.0, 404);
    // A client that writes all of its body before it reads sees the status, not a broken pipe.
    let mut stream = connect(port).await;
    let body = vec![b' '; 4 << 20];
    let head = format!(
        "POST /other HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    assert_eq!(read_response(&mut stream).await.0, 404);
}

/// It was told to go on, so it sends all of its body before it reads.
#[tokio::test]
async fn body_that_was_continued_gets_its_status() {
    let port = serve(RequestLimits::default()).await;
    let mut stream = connect(port).await;
    let head = Head::new("tools/call", Some("add")).with("Expect", "100-continue").text("POST");
    stream.write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert!(interim.starts_with(b"HTTP/1.1 100 "));
    let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..8 {
        stream.write_all(&chunk).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut stream).await.0, 413);
}

/// A client that writes all of 20 MB before it reads must see the answer, not a broken pipe.
#[tokio::test]
async fn body_of_twenty_megabytes_gets_413() {
    let port = serve(RequestLimits::default()).await;
    let body = vec![b' '; 20 << 20];
    let call = Head::new("tools/call", Some("add"));
    let (status, _, answer) = exchange(&mut connect(port).await, "POST", &call, &body).await;
    assert_eq!((status, &answer["error"]["code"]), (413, &json!(-32600)), "{answer}");
    // A client that sends `Expect: 100-continue` gets the status before it sends the body.
    let mut stream = connect(port).await;
    let head = call.with("Expect", "100-continue").text("POST");
    stream
        .write_all(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes())
        .await
        .unwrap();
    assert_eq!(read_response(&mut stream).await.0, 413);
    assert_alive(port).await;
}

/// The server reads a limited part of an endless chunked body, and closes the connection.
#[tokio::test]
async fn endless_body_gets_413_and_the_connection_is_closed() {
    let limits =
        RequestLimits::default().with_max_body_bytes(1 << 20).with_max_discarded_bytes(4 << 20);
    let port = serve(limits).await;
    let (mut read, mut write) = connect(port).await.into_split();
    let head = Head::new("tools/call", Some("add")).text("POST");
    let writer = tokio::spawn(async move {
        write
            .write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
        let mut sent = 0_usize;
        while write.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
            assert!(sent < 1 << 30, "the server reads without a limit");
        }
    });
    let mut answer = Vec::new();
    // The connection may be reset after the response.
    let _ = read.read_to_end(&mut answer).await;
    assert!(
        String::from_utf8_lossy(&answer).starts_with("HTTP/1.1 413"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    writer.await.unwrap();
    assert_alive(port).await;
}

#[tokio::test]
async fn stalled_body_gets_408() {
    let limits = RequestLimits::default().with_body_timeout(Duration::from_millis(50));
    let port = serve(limits).await;
    let mut stream = connect(port).await;
    let head = Head::new("tools/call", Some("add")).text("POST");
    stream.write_all(format!("{head}Content-Length: 100\r\n\r\n{{").as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut stream).await.0, 408);
    assert_alive(port).await;
}
