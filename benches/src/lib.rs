//! The parts of a request's processing, as operations that can be repeated.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

mod client;
mod server;

use std::hint::black_box;

use bytes::Bytes;
use http::HeaderMap;
use mrtr_codec::{Binding, Digest, KeyRing, Secret, UnixSeconds, Validity, open, seal};
use mrtr_schema::jsonrpc::Message;
use mrtr_schema::request_head::RequestHead;
use mrtr_transport::{headers, sse};

/// An operation that can be repeated.
pub type Operation = Box<dyn FnMut()>;

/// Operations by name. Each is built on demand.
pub const OPERATIONS: [(&str, fn() -> Operation); 17] = [
    ("envelope", envelope),
    ("headers", check_headers),
    ("echo", server::echo),
    ("authorized", server::authorized_echo),
    ("verified", server::verified_echo),
    ("signature", server::signature),
    ("flow", server::two_rounds),
    ("steps", server::steps),
    ("progress", server::progress),
    ("list", server::list),
    ("round", || server::round(0)),
    ("replay", || server::round(100)),
    ("seal", sealed),
    ("open", opened),
    ("digest", digest),
    ("events", events),
    ("client", client::two_rounds),
];

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"load","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}"#;

/// Returns the body of a call.
fn call(tool: &str, arguments: &str, more: &str) -> Bytes {
    format!(
        r#"{{"jsonrpc":"2.0","id":1000000001,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{more}"_meta":{META}}}}}"#
    )
    .into()
}

fn head(method: &'static str, name: &'static str) -> HeaderMap {
    let fields = [
        ("host", "127.0.0.1:3000"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("mcp-name", name),
    ];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

/// Parses a body into a request.
fn envelope() -> Operation {
    let body = call("echo", r#"{"text":"The quick brown fox"}"#, "");
    Box::new(move || drop(black_box(Message::parse(black_box(&body)).unwrap())))
}

/// Compares the headers of a request with its body.
fn check_headers() -> Operation {
    let Ok(Message::Request(request)) = Message::parse(&call("echo", "{}", "")) else {
        panic!("a request")
    };
    let head = head("tools/call", "echo");
    Box::new(move || {
        let mirrored = RequestHead::from_request(black_box(&request)).unwrap();
        headers::check_request(black_box(&head), &request.method, &mirrored).unwrap();
    })
}

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

fn ring() -> KeyRing {
    let secret = Secret::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap();
    KeyRing::builder("https://bench.example/mcp").active(secret).build().unwrap()
}

fn binding(arguments: Digest) -> Binding<'static> {
    Binding { principal: None, proof_key: None, method: "tools/call", target: "order", arguments }
}

/// Seals a state of 256 bytes.
fn sealed() -> Operation {
    let (ring, arguments) = (ring(), Digest::from_json(Some("{}")).unwrap());
    Box::new(move || {
        let validity = Validity::starting(NOW, 600);
        black_box(seal(&ring, &binding(arguments), validity, black_box(&[7; 256])).unwrap());
    })
}

/// Opens a token with a state of 256 bytes.
fn opened() -> Operation {
    let (ring, arguments) = (ring(), Digest::from_json(Some("{}")).unwrap());
    let token = seal(&ring, &binding(arguments), Validity::starting(NOW, 600), &[7; 256]).unwrap();
    Box::new(move || drop(open(&ring, black_box(&token), &binding(arguments), NOW).unwrap()))
}

/// Computes the canonical digest of arguments.
fn digest() -> Operation {
    let arguments =
        r#"{"item":"tea","people":2,"when":{"day":"Friday","at":[19,30]},"notes":"by the window"}"#;
    Box::new(move || _ = black_box(Digest::from_json(Some(black_box(arguments))).unwrap()))
}

/// Reads a stream of four events.
fn events() -> Operation {
    let event = r#"data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":3}}"#;
    let stream = format!("{event}\n\n").repeat(4);
    Box::new(move || {
        let (mut decoder, mut count) = (sse::Decoder::new(1 << 20), 0);
        decoder.push(black_box(stream.as_bytes()), |_| count += 1).unwrap();
        assert_eq!(count, 4);
    })
}
