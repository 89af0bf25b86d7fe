//! Input from peers: messages, headers, events, authentic states with arbitrary content, results,
//! templates and forms.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a fuzz target reports a finding with a panic"
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use mrtr_client::{Action, Event, Machine, RequestIds, RoundLimits};
use mrtr_codec::{Binding, Digest, UnixSeconds, Validity, seal};
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::form::FormSchema;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::MAX_DEPTH;
use mrtr_schema::jsonrpc::{Message, Params};
use mrtr_schema::known_meta::KnownMeta;
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::request_head::RequestHead;
use mrtr_schema::{Object, PROTOCOL_VERSION};
use mrtr_server::{Clock, Context, ResourceTemplate, Result, Server, ServerBuilder, Tool};
use mrtr_transport::host_policy::HostPolicy;
use mrtr_transport::http::Endpoint;
use mrtr_transport::{headers, sse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower_service::Service as _;

use super::{NOW, ring};

#[derive(Deserialize, JsonSchema)]
struct Consent {
    yes: bool,
}

/// A handler that records every kind of journal entry.
async fn book(cx: Context) -> Result<String> {
    let held: u32 = cx.step("hold", async |_| Ok(5)).await?;
    let first: Consent = cx.elicit("first", "Continue?").await?;
    let won = cx.race("which", async { Ok(1) }, async { Ok(2) }).await?;
    let other: Option<Consent> = cx.elicit("other", "And now?").optional().await?;
    cx.checkpoint("here").await?;
    cx.progress(1.0, None, None);
    Ok(format!("{held} {} {won} {}", first.yes, other.is_some_and(|other| other.yes)))
}

/// A clock that stands still.
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> UnixSeconds {
        NOW
    }
}

pub(super) fn builder() -> ServerBuilder {
    let server =
        Server::builder("fuzzed", "1").key_ring(ring()).clock(FixedClock).allow_anonymous();
    server.tool(Tool::new("book", "Books", book))
}

thread_local! {
    static RUNTIME: Runtime = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime")
    };
    static ENDPOINT: Endpoint<Server> =
        Endpoint::new(builder().build().expect("a server")).host_policy(HostPolicy::loopback());
}

/// Posts a body to the server that all inputs share.
fn post_to_shared_server(head: HeaderMap, body: &[u8]) -> (StatusCode, Value) {
    post(&mut ENDPOINT.with(Clone::clone), head, body)
}

/// Posts a body. Asserts that the response has a status of the protocol, and a body of JSON or
/// events.
fn post(endpoint: &mut Endpoint<Server>, head: HeaderMap, body: &[u8]) -> (StatusCode, Value) {
    let mut request = Request::new(Full::from(body.to_vec()));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = head;
    let answered = async {
        let Ok(response) = endpoint.call(request).await;
        let status = response.status();
        let known = [200, 202, 400, 403, 404, 406, 415].contains(&status.as_u16());
        assert!(known, "{status} is not a status of the protocol");
        let is_json = headers::has_json_content_type(response.headers());
        let mut body = response.into_body();
        if !is_json {
            // Events, of which the first is polled, or an empty body.
            let _ = body.frame().now_or_never();
            return (status, Value::Null);
        }
        let Ok(body) = body.collect().await;
        let answer: Value = serde_json::from_slice(&body.to_bytes()).expect("JSON");
        assert_eq!(answer["jsonrpc"], "2.0");
        // The server answers a panic like this.
        assert_ne!(answer["error"]["message"], "Internal error", "{answer}");
        (status, answer)
    };
    RUNTIME.with(|runtime| runtime.block_on(answered))
}

pub(super) fn default_head() -> HeaderMap {
    [
        ("host", "localhost"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ]
    .into_iter()
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .collect()
}

/// Returns the headers that a request must have, if it can be parsed.
fn head_of(body: &[u8]) -> HeaderMap {
    let mut head = default_head();
    if let Ok(Message::Request(request)) = Message::parse(body)
        && let Ok(mirrored) = RequestHead::from_request(&request)
        && let Ok(method) = HeaderValue::from_str(&headers::encode(&request.method))
    {
        head.insert(headers::METHOD, method);
        head.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(PROTOCOL_VERSION));
        head.extend(headers::request_headers(&request.method, &mirrored));
    }
    head
}

/// Posts a body that may be a message. A parsed message must survive serialization, also with a
/// known `_meta`. The endpoint must answer any body with a status of the protocol.
///
/// # Panics
///
/// If that does not hold.
pub fn message(data: &[u8]) {
    if let Ok(Message::Request(request)) = Message::parse(data) {
        let serialize = |message: Message| match message {
            Message::Request(request) => serde_json::to_string(&request).expect("JSON"),
            other => panic!("a request became {other:?}"),
        };
        let written = serde_json::to_string(&request).expect("JSON");
        let again = Message::parse(written.as_bytes()).expect("a serialized value parses");
        assert_eq!(serialize(again), written);
        let known = request.params.as_ref().and_then(|params| params.member("_meta"));
        if let Some(known) = known.filter(|known| known.starts_with('{')) {
            let known = KnownMeta::new(known);
            let again = Message::parse_with_known_meta(data, MAX_DEPTH, &known);
            let again = again.expect("the message parses");
            assert_eq!(serialize(again), written);
        }
    }
    post_to_shared_server(head_of(data), data);
}

/// Posts a valid request with arbitrary headers.
///
/// # Panics
///
/// If the response has a status outside the protocol, or a value changes when it is encoded and
/// decoded.
pub fn header(data: &[u8]) {
    const NAMES: [&str; 10] = [
        "host",
        "origin",
        "content-type",
        "content-encoding",
        "accept",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "mcp-param-a",
        "expect",
    ];
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "book", "arguments": {}, "_meta": meta() },
    });
    let body = body.to_string();
    let mut head = head_of(body.as_bytes());
    for line in data.split(|byte| *byte == b'\n') {
        let Some((first, value)) = line.split_first() else { continue };
        let Some(name) = NAMES.get(usize::from(first & 15)) else { continue };
        if let Ok(text) = std::str::from_utf8(value) {
            let encoded = headers::encode(text);
            assert_eq!(headers::decode(&encoded).as_deref(), Some(text));
        }
        let Ok(value) = HeaderValue::from_bytes(value) else { continue };
        let name = HeaderName::from_static(name);
        if first & 16 == 0 {
            head.insert(name, value);
        } else {
            head.append(name, value);
        }
    }
    post_to_shared_server(head, body.as_bytes());
}

/// Decodes a stream of events. The events must not depend on how the stream is split, and none may
/// exceed the limit.
///
/// # Panics
///
/// If that does not hold.
pub fn events(data: &[u8]) {
    const LIMIT: usize = 512;
    let read = |size: usize| {
        let (mut decoder, mut events) = (sse::Decoder::new(LIMIT), Vec::new());
        let mut pieces = data.chunks(size);
        let read = pieces.try_for_each(|piece| decoder.push(piece, |event| events.push(event)));
        (events, read.is_ok())
    };
    let whole = read(data.len().max(1));
    assert!(whole.0.iter().all(|event| event.len() <= LIMIT));
    assert_eq!(read(1), whole);
    assert_eq!(read(7), whole);
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": PROTOCOL_VERSION,
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    })
}

/// Posts an authentic state with an arbitrary body. The server must accept or reject it as the
/// protocol says.
///
/// # Panics
///
/// If that does not hold.
pub fn journal(data: &[u8]) {
    let arguments = Digest::from_json(Some("{}")).expect("a digest");
    let binding = Binding {
        principal: None,
        proof_key: None,
        method: "tools/call",
        target: "book",
        arguments,
    };
    let Ok(state) = seal(&ring(), &binding, Validity::starting(NOW, 600), data) else { return };
    let answer = json!({ "action": "accept", "content": { "yes": true } });
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "book", "arguments": {}, "requestState": state,
            "inputResponses": { "first": answer, "other": answer }, "_meta": meta(),
        },
    });
    let body = body.to_string();
    let (status, answer) = post_to_shared_server(head_of(body.as_bytes()), body.as_bytes());
    assert!(
        answer.get("result").is_some() == (status == StatusCode::OK)
            || answer["error"]["code"] == -32603
    );
}

/// Feeds a client with the responses of a server, one per line. The client must end within its
/// limits, and must send valid requests.
///
/// # Panics
///
/// If that does not hold.
pub fn client(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines =
        text.lines().filter_map(|line| serde_json::from_str::<Box<RawValue>>(line).ok());
    let params = vec![("name".to_owned(), to_raw_value(&"book").expect("JSON"))];
    let (ids, limits) = (RequestIds::default(), RoundLimits::default());
    let mut sampling = SamplingCapability::default();
    (sampling.tools, sampling.context) = (Some(Object::new()), Some(Object::new()));
    let declared = ClientCapabilities::new()
        .with_elicitation(ElicitationCapability::form_and_url())
        .with_sampling(sampling)
        .with_roots(RootsCapability::default());
    let meta = RequestMeta::new(PROTOCOL_VERSION, declared);
    let started = Machine::start(ids.clone(), "tools/call", params, meta.clone(), limits);
    let (mut machine, mut action) = started.expect("a call");
    for step in 0_u32.. {
        assert!(step < 64, "the client exceeds its limits");
        let event = match action {
            Action::Send(request) => {
                let sent = serde_json::to_string(&request).expect("JSON");
                assert!(
                    matches!(Message::parse(sent.as_bytes()), Ok(Message::Request(_))),
                    "{sent}"
                );
                let Some(line) = lines.next() else { return };
                Event::Response(Ok(line))
            }
            Action::RequestInput(questions) => {
                let answer = ElicitResult::decline();
                let answers = questions.0.into_iter();
                let answers = answers.map(|(key, _)| (key, to_raw_value(&answer).expect("JSON")));
                Event::Input(InputResponses(answers.collect()))
            }
            Action::Wait(_) => Event::Waited,
            Action::Complete(_) => return,
            other => unreachable!("unknown action {other:?}"),
        };
        // Once, the call is paused and resumed.
        if let (Event::Input(_), 3) = (&event, step) {
            let Some(call) = machine.pause() else { return };
            (machine, action) = Machine::resume(call, ids.clone(), meta.clone(), limits);
            continue;
        }
        match machine.next(event) {
            Ok(next) => action = next,
            Err(_) => return,
        }
    }
}

/// Reads a URI (second line) with a template (first line). The values of variables must not lead to
/// another folder.
///
/// # Panics
///
/// If that does not hold.
pub fn template(data: &[u8]) {
    let Some((template, uri)) =
        std::str::from_utf8(data).ok().and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    // The server would catch a panic of the handler.
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let all = Arc::clone(&seen);
    let show = move |_: Context, values: HashMap<String, String>| {
        let mut seen = all.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(values.values().cloned());
        let mut text = String::new();
        for (name, value) in values {
            let _ = write!(text, "{name}={value};");
        }
        std::future::ready(Ok::<_, mrtr_server::Error>(text))
    };
    let Ok(server) =
        builder().resource_template(ResourceTemplate::new(template, "t", show)).build()
    else {
        return;
    };
    let Ok(params) = Params::new(&json!({ "uri": uri, "_meta": meta() })) else { return };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}}"#,
        params.as_str()
    );
    post(&mut Endpoint::new(server), head_of(body.as_bytes()), body.as_bytes());
    for value in &*seen.lock().unwrap_or_else(PoisonError::into_inner) {
        let escapes = value.split('/').any(|part| part == ".." || part == ".");
        assert!(!escapes && !value.contains('\0'), "{value:?}");
    }
}

/// Validates an answer (second line) against the schema of a form (first line). A parsed form must
/// survive serialization, and a validated answer must be valid again.
///
/// # Panics
///
/// If that does not hold.
pub fn form(data: &[u8]) {
    let Some((schema, answer)) =
        std::str::from_utf8(data).ok().and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    let Ok(form) = serde_json::from_str::<FormSchema>(schema) else { return };
    let written = serde_json::to_string(&form).expect("JSON");
    let again: FormSchema = serde_json::from_str(&written).expect("a serialized value parses");
    assert_eq!(again, form);
    let _ = form.defaults();
    let Ok(answer) = serde_json::from_str::<Object>(answer) else { return };
    if let Ok(checked) = form.validate(answer) {
        assert_eq!(form.validate(checked.clone()).as_ref().ok(), Some(&checked));
    }
}
