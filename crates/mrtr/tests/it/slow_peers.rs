//! Connections that take their time, and requests that could be read as two.

use std::time::Duration;

use mrtr::http::{RequestLimits, ServeOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http_wire::{Head, assert_alive, connect, params, request, serve, serve_by};

/// A head is given so long; tests wait for the server to act, not for the time.
const SHORT: Duration = Duration::from_millis(50);

fn short() -> ServeOptions {
    ServeOptions::default().with_header_timeout(SHORT)
}

/// All that the server says until it closes the connection.
async fn rest(stream: &mut tokio::net::TcpStream) -> String {
    let mut said = Vec::new();
    // Closed with an error or without.
    let _ = stream.read_to_end(&mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_waited_for() {
    let port = serve_by(RequestLimits::default(), short()).await;
    for sent in ["", "P", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = connect(port).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 408 "), "{sent:?}: {said}");
    }
    // One byte after the other changes nothing.
    let mut stream = connect(port).await;
    let (mut reading, mut writing) = stream.split();
    let drip = async {
        loop {
            if writing.write_all(b"x").await.is_err() {
                return;
            }
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    let mut said = Vec::new();
    tokio::select! {
        () = drip => {}
        _ = reading.read_to_end(&mut said) => {}
    }
    assert_alive(port).await;
}

#[tokio::test]
async fn connections_that_say_nothing_give_way() {
    let port = serve_by(RequestLimits::default(), short().with_max_connections(4)).await;
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(connect(port).await);
    }
    // It waits behind them, and has its turn.
    assert_alive(port).await;
    drop(silent);
}

#[tokio::test]
async fn who_takes_no_responses_gives_way() {
    let port = serve_by(RequestLimits::default(), short().with_max_connections(1)).await;
    let mut stream = connect(port).await;
    let head = Head::new("tools/call", Some("add"));
    let arguments = json!({ "name": "add", "arguments": { "a": 2, "b": 3 } });
    let body = String::from_utf8(request("tools/call", &params(arguments))).unwrap();
    let asking = format!("{}Content-Length: {}\r\n\r\n{body}", head.text("POST"), body.len());
    // It asks for as long as it can, and reads nothing.
    let asking = async { while stream.write_all(asking.as_bytes()).await.is_ok() {} };
    tokio::join!(asking, assert_alive(port));
}

/// Two lengths, or a length and chunks: what stands behind the shorter one could be another request.
#[tokio::test]
async fn a_request_that_could_be_read_as_two_is_not() {
    let port = serve(RequestLimits::default()).await;
    let head = Head::new("tools/call", Some("add"));
    let body = |a| {
        let arguments = json!({ "name": "add", "arguments": { "a": a, "b": 3 } });
        String::from_utf8(request("tools/call", &params(arguments))).unwrap()
    };
    let (first, second) = (body(2), body(1000));
    let hidden = format!("{}Content-Length: {}\r\n\r\n{second}", head.text("POST"), second.len());
    let chunked = format!("{:x}\r\n{first}\r\n0\r\n\r\n", first.len());
    let lengths = [
        (format!("Content-Length: {}\r\nContent-Length: 1\r\n", first.len()), &first),
        (format!("Content-Length: {}, 1\r\n", first.len()), &first),
        (format!("Content-Length: +{}\r\n", first.len()), &first),
        (format!("Content-Length: {}\r\nTransfer-Encoding: identity\r\n", first.len()), &first),
        ("Transfer-Encoding: chunked, identity\r\n".to_owned(), &chunked),
        (format!("Content-Length : {}\r\n", first.len()), &first),
    ];
    for (lengths, body) in lengths {
        let mut stream = connect(port).await;
        let sent = format!("{}{lengths}\r\n{body}{hidden}", head.text("POST"));
        // It may be refused before all of it is written.
        let _ = stream.write_all(sent.as_bytes()).await;
        let _ = stream.shutdown().await;
        let said = rest(&mut stream).await;
        assert!(!said.contains("1003"), "{lengths:?} let a second request through: {said}");
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{lengths:?}: {said}");
        assert!(said.starts_with("HTTP/1.1 400 "), "{lengths:?}: {said}");
    }
    assert_alive(port).await;
}
