//! Requests over HTTP, by reqwest.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};

use mrtr_openapi::{OpenApi, OpenApiTools, ReqwestClient};
use serde_json::json;

use super::{agreed, client, document};

/// Answers one request. Returns the address, and what was received.
fn answer_once(response: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answering = spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut received = String::new();
        // The body is the last part, and ends with a brace.
        while !received.ends_with('}') {
            let mut bytes = [0; 4096];
            let length = stream.read(&mut bytes).unwrap();
            assert!(length > 0, "{received}");
            received += std::str::from_utf8(&bytes[..length]).unwrap();
        }
        stream.write_all(response.as_bytes()).unwrap();
        received
    });
    (address, answering)
}

#[tokio::test]
async fn request_and_response_go_over_http() {
    let paths = json!({ "/things": { "put": {
        "operationId": "op",
        "requestBody": { "content": { "application/json": {} } },
    } } });
    for (limit, is_error) in [(15, false), (14, true)] {
        let (address, answering) = answer_once(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n{\"ok\":  [true]}",
        );
        let http = ReqwestClient::new(reqwest::Client::builder().no_proxy()).unwrap();
        let api = OpenApi::new(&document(&paths), &address, http).unwrap();
        let OpenApiTools { tools, .. } = api.max_response_bytes(limit).build();
        let (client, _) = client(tools, agreed());
        let result = client.call_tool("op", json!({ "body": { "a": 1 } })).await.unwrap();
        // If nothing was sent, this connection ends the thread.
        let _ = TcpStream::connect(address.trim_start_matches("http://"));
        let received = answering.join().unwrap();
        assert!(received.starts_with("PUT /things HTTP/1.1\r\n"), "{received}");
        assert!(received.ends_with("\r\n\r\n{\"a\":1}"), "{received}");
        assert_eq!(result.is_error, is_error, "{}", result.text());
        assert_eq!(result.structured_content.is_some(), !is_error);
    }
}

/// Credentials would go along.
#[tokio::test]
async fn redirects_are_not_followed() {
    let (elsewhere, other) = answer_once("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let redirect = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n"
    );
    let (address, answering) = answer_once(redirect.leak());
    let paths = json!({ "/": { "put": {
        "operationId": "op",
        "requestBody": { "content": { "application/json": {} } },
    } } });
    let http = ReqwestClient::new(reqwest::Client::builder().no_proxy()).unwrap();
    let OpenApiTools { tools, .. } =
        OpenApi::new(&document(&paths), &address, http).unwrap().build();
    let (client, _) = client(tools, agreed());
    let result = client.call_tool("op", json!({ "body": {} })).await.unwrap();
    assert_eq!(result.text(), "The API answered 307 Temporary Redirect.");
    answering.join().unwrap();
    let mut check = TcpStream::connect(elsewhere.trim_start_matches("http://")).unwrap();
    check.write_all(b"{}").unwrap();
    assert_eq!(other.join().unwrap(), "{}");
}

/// The connection takes some of it ahead of the client, but not all.
#[tokio::test]
async fn endless_response_is_not_read_to_its_end() {
    let part = vec![b'x'; 64 << 10];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answering = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        let mut chunk = format!("{:x}\r\n", part.len()).into_bytes();
        chunk.extend_from_slice(&part);
        chunk.extend_from_slice(b"\r\n");
        // 256 MiB, unless the client closes the connection.
        (0..4_096).take_while(|_| stream.write_all(&chunk).is_ok()).count()
    });
    let http = ReqwestClient::new(reqwest::Client::builder().no_proxy()).unwrap();
    let paths = json!({ "/": { "get": { "operationId": "op" } } });
    let OpenApiTools { tools, .. } =
        OpenApi::new(&document(&paths), &address, http).unwrap().max_response_bytes(1_024).build();
    let (client, _) = client(tools, agreed());
    let result = client.call_tool("op", json!({})).await.unwrap();
    assert!(result.is_error, "{}", result.text());
    let written = answering.await.unwrap();
    assert!(written < 512, "{written} parts");
}
