//! A server on a free port, and raw HTTP requests.

use std::time::Duration;

use mrtr::http::{Endpoint, HostPolicy, RequestLimits, ServeOptions};
use mrtr::{Context, Server, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sum {
    a: u32,
    b: u32,
}

pub(crate) fn server() -> Server {
    let add = async |_: Context, sum: Sum| (sum.a + sum.b).to_string();
    Server::builder("test", "1")
        .ephemeral_key()
        .tool(Tool::new("add", "Adds", add))
        .allow_anonymous()
        .build()
        .unwrap()
}

/// Starts a server that runs until the test ends, and returns its port.
pub(crate) async fn serve(limits: RequestLimits) -> u16 {
    let options = ServeOptions::default().with_header_timeout(Duration::from_secs(5));
    serve_with(limits, options).await
}

pub(crate) async fn serve_with(limits: RequestLimits, options: ServeOptions) -> u16 {
    serve_server(server(), limits, options).await
}

pub(crate) async fn serve_server(
    server: Server,
    limits: RequestLimits,
    options: ServeOptions,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let endpoint = Endpoint::new(server).host_policy(HostPolicy::loopback()).limits(limits);
    let forever = std::future::pending();
    tokio::spawn(mrtr::http::serve(listener, endpoint, options, forever));
    port
}

/// The headers of a request, which a test can change.
#[derive(Clone)]
pub(crate) struct Head(pub(crate) Vec<(&'static str, String)>);

impl Head {
    pub(crate) fn new(method: &str, name: Option<&str>) -> Self {
        let mut all = vec![
            ("Host", "localhost".to_owned()),
            ("Content-Type", "application/json".to_owned()),
            ("Accept", "application/json, text/event-stream".to_owned()),
            ("MCP-Protocol-Version", "2026-07-28".to_owned()),
            ("Mcp-Method", method.to_owned()),
        ];
        all.extend(name.map(|name| ("Mcp-Name", name.to_owned())));
        Self(all)
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(other, _)| *other != name);
        self
    }

    pub(crate) fn with(self, name: &'static str, value: &str) -> Self {
        let mut this = self.without(name);
        this.0.push((name, value.to_owned()));
        this
    }

    pub(crate) fn text(&self, verb: &str) -> String {
        let mut text = format!("{verb} /mcp HTTP/1.1\r\n");
        for (name, value) in &self.0 {
            text.extend([*name, ": ", value, "\r\n"]);
        }
        text
    }
}

/// Returns parameters with the required `_meta`.
pub(crate) fn params(more: Value) -> Value {
    let mut params = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    let Value::Object(more) = more else { unreachable!() };
    params.as_object_mut().unwrap().extend(more);
    params
}

pub(crate) fn request(method: &str, params: &Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
        .to_string()
        .into_bytes()
}

/// Sends a request on a connection that stays open, and returns status, headers and body.
pub(crate) async fn exchange(
    stream: &mut TcpStream,
    verb: &str,
    head: &Head,
    body: &[u8],
) -> (u16, String, Value) {
    let text = format!("{}Content-Length: {}\r\n\r\n", head.text(verb), body.len());
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    read_response(stream).await
}

pub(crate) async fn read_response(stream: &mut TcpStream) -> (u16, String, Value) {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "the connection closed before the response"
        );
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |n| n.parse().unwrap());
    while bytes.len() < end + length {
        assert!(
            stream.read_buf(&mut bytes).await.unwrap() > 0,
            "the connection closed in the response"
        );
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, serde_json::from_slice(&bytes[end..]).unwrap_or_default())
}

pub(crate) async fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Asserts that the server responds to a valid call.
pub(crate) async fn assert_alive(port: u16) {
    let head = Head::new("tools/call", Some("add"));
    let body =
        request("tools/call", &params(json!({ "name": "add", "arguments": { "a": 2, "b": 3 } })));
    let (status, _, answer) = exchange(&mut connect(port).await, "POST", &head, &body).await;
    assert_eq!((status, &answer["result"]["content"][0]["text"]), (200, &json!("5")), "{answer}");
}
