//! Slow connections, and requests of ambiguous length.

use std::time::Duration;

use mrtr::http::{RequestLimits, ServeOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::http_wire::{Head, assert_alive, connect, params, request, serve, serve_with};

/// The header timeout. Tests wait for the server to act, not for this time.
const TIMEOUT: Duration = Duration::from_millis(50);

fn options() -> ServeOptions {
    ServeOptions::default().with_header_timeout(TIMEOUT)
}

/// Fails instead of waiting for ever.
async fn soon<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_mins(1), awaited).await.unwrap()
}

/// Reads all output of the server until it closes the connection.
async fn read_to_close(stream: &mut tokio::net::TcpStream) -> String {
    let mut output = Vec::new();
    // The connection may end with an error.
    let _ = soon(stream.read_to_end(&mut output)).await;
    String::from_utf8_lossy(&output).into_owned()
}

#[tokio::test]
async fn header_timeout_disconnects_a_client_with_an_endless_head() {
    let port = serve_with(RequestLimits::default(), options()).await;
    for sent in ["", "P", "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut stream = connect(port).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let output = read_to_close(&mut stream).await;
        assert!(output.is_empty() || output.starts_with("HTTP/1.1 408 "), "{sent:?}: {output}");
    }
    // Slow single bytes do not extend the timeout.
    let mut stream = connect(port).await;
    let (mut reading, mut writing) = stream.split();
    let drip = async {
        loop {
            if writing.write_all(b"x").await.is_err() {
                return;
            }
            tokio::time::sleep(TIMEOUT / 10).await;
        }
    };
    let mut output = Vec::new();
    let closed = async {
        tokio::select! {
            () = drip => {}
            _ = reading.read_to_end(&mut output) => {}
        }
    };
    soon(closed).await;
    assert_alive(port).await;
}

#[tokio::test]
async fn header_timeout_closes_idle_connections() {
    let port = serve_with(RequestLimits::default(), options().with_max_connections(4)).await;
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(connect(port).await);
    }
    // This connection is accepted after idle ones were closed.
    soon(assert_alive(port)).await;
    drop(idle);
}

#[tokio::test]
async fn idle_timeout_disconnects_a_client_that_does_not_read() {
    let port = serve_with(RequestLimits::default(), options().with_max_connections(1)).await;
    let mut stream = connect(port).await;
    let head = Head::new("tools/call", Some("add"));
    let arguments = json!({ "name": "add", "arguments": { "a": 2, "b": 3 } });
    let body = String::from_utf8(request("tools/call", &params(arguments))).unwrap();
    let call = format!("{}Content-Length: {}\r\n\r\n{body}", head.text("POST"), body.len());
    // The client sends calls for as long as it can, and reads nothing.
    let sending = async { while stream.write_all(call.as_bytes()).await.is_ok() {} };
    soon(async { tokio::join!(sending, assert_alive(port)) }).await;
}

/// With two lengths, or a length and chunks, the bytes after the shorter body could be a second
/// request.
#[tokio::test]
async fn request_of_ambiguous_length_is_rejected() {
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
        // The server may reject the request before all of it is written.
        let _ = stream.write_all(sent.as_bytes()).await;
        let _ = stream.shutdown().await;
        let output = read_to_close(&mut stream).await;
        assert!(!output.contains("1003"), "{lengths:?}: the second request was served: {output}");
        assert_eq!(output.matches("HTTP/1.1 ").count(), 1, "{lengths:?}: {output}");
        assert!(output.starts_with("HTTP/1.1 400 "), "{lengths:?}: {output}");
    }
    assert_alive(port).await;
}
