//! Input from peers that speak a dialect: messages of clients, and responses of servers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a fuzz target reports a finding with a panic"
)]

use std::time::Duration;

use http::{HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};
use mrtr_dialects::wire::call::{Call, Reply};
use mrtr_dialects::wire::envelope::{
    ClientMessage, DEPENDENT, Envelope, INCOMPLETE, STATE_KEY, ServerMessage,
};
use mrtr_dialects::wire::tasks::{TASKS_2322, TASKS_INCOMPLETE};
use mrtr_dialects::wire::{sse, turn};
use mrtr_dialects::{Dialect, DialectEndpoint};
use mrtr_schema::RawJson;
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{Message, RequestId};
use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{Context, Result, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use tower_service::Service as _;

use super::protocol::{builder, default_head};

/// The most requests in one input.
const MAX_LINES: usize = 32;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

async fn echo(cx: Context) -> Result<String> {
    let Text { text } = cx.elicit("echo", "What?").await?;
    Ok(text)
}

/// Serves a client of a dialect. The first line is the name of the dialect. Each other line is the
/// body of a POST. `$state` stands for the last state, key of a state, or event id; `$id` for the id
/// of the last question; and `$task` for the last task. An array goes with the last event id.
///
/// # Panics
///
/// If a response is not one of the protocol, or the server fails.
pub fn dialect_request(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(serve(text));
}

async fn serve(text: &str) {
    let mut lines = text.lines();
    let Some(dialect) = lines.next().and_then(Dialect::from_name) else { return };
    let tool = Tool::new("echo", "Echoes", echo).task(TaskPolicy::immediately());
    let server = builder().task_store(MemoryTaskStore::new(10)).tool(tool);
    let server = server.build().expect("a server");
    let runner = server.clone();
    tokio::spawn(async move { runner.run_tasks().await });
    let endpoint = DialectEndpoint::new(dialect, server.clone(), server.sealer());
    let mut client =
        Client { endpoint, state: String::new(), id: String::new(), task: String::new() };
    for line in lines.take(MAX_LINES) {
        let line = line.replace("$state", &client.state).replace("$id", &client.id);
        client.send(line.replace("$task", &client.task)).await;
    }
    server.begin_shutdown();
}

struct Client {
    endpoint: DialectEndpoint<Server>,
    state: String,
    id: String,
    task: String,
}

impl Client {
    async fn send(&mut self, body: String) {
        let mut head = default_head();
        if let Ok(event) = HeaderValue::from_str(&self.state)
            && body.starts_with('[')
        {
            head.insert("last-event-id", event);
        }
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.headers_mut() = head;
        let answered = async {
            let Ok(response) = self.endpoint.call(request).await;
            let status = response.status();
            let known = [200, 202, 400, 404].contains(&status.as_u16());
            assert!(known, "{status} is not a status of the protocol");
            let Ok(body) = response.into_body().collect().await;
            body.to_bytes()
        };
        // The result of a task that waits for nothing may take for ever.
        let Ok(body) = timeout(Duration::from_mins(10), answered).await else { return };
        let text = std::str::from_utf8(&body).expect("UTF-8");
        if text.is_empty() {
            return;
        }
        if text.starts_with("event: ") {
            let mut decoder = sse::Decoder::new(1 << 20);
            let read = decoder.push(text.as_bytes(), |event| {
                self.state = event.id.unwrap_or_default();
                if !event.data.is_empty() {
                    self.read(&serde_json::from_str(&event.data).expect("JSON"));
                }
            });
            read.expect("events");
            return;
        }
        self.read(&serde_json::from_str(text).expect("JSON"));
    }

    fn read(&mut self, message: &Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        assert_ne!(message["error"]["message"], "Internal error", "{message}");
        if message.get("method").is_some() {
            message["id"].as_str().unwrap_or_default().clone_into(&mut self.id);
        }
        if let Some(id) = message["result"]["task"]["taskId"].as_str() {
            id.clone_into(&mut self.task);
        }
        let states = [&message["request_state"], &message["result"]["requestState"]];
        let keys = message["dependent_requests"].as_object().into_iter().flatten();
        let key = keys.map(|(key, _)| key.as_str()).find(|key| key.starts_with(STATE_KEY));
        let state = states.into_iter().find_map(Value::as_str).or(key);
        if let Some(state) = state {
            state.clone_into(&mut self.state);
        }
    }
}

/// Reads a response of a server in each dialect. The client's next request must be one that a
/// server reads, with the same answers and state.
///
/// # Panics
///
/// If that does not hold.
pub fn dialect_response(data: &[u8]) {
    check_envelope(&INCOMPLETE, data);
    check_envelope(&DEPENDENT, data);
    let mut decoder = sse::Decoder::new(1 << 16);
    let mut events = Vec::new();
    let is_whole = decoder.push(data, |event| events.push(event)).is_ok();
    // Events do not depend on where the bytes are cut.
    let mut piecewise = Vec::new();
    let mut decoder = sse::Decoder::new(1 << 16);
    let mut pieces = data.chunks(1);
    let is_piecewise =
        pieces.all(|piece| decoder.push(piece, |event| piecewise.push(event)).is_ok());
    assert_eq!((is_whole, &events), (is_piecewise, &piecewise));
    let Ok(text) = std::str::from_utf8(data) else { return };
    for form in [TASKS_2322, TASKS_INCOMPLETE] {
        if let Ok(task) = form.read(text) {
            // One of the forms has no time of the last change.
            let again = form.read(form.write(&task).as_str()).expect("a task");
            assert_eq!((&again.task_id, again.status), (&task.task_id, task.status));
            assert_eq!(form.read(form.write(&again).as_str()).as_ref(), Ok(&again));
        }
        let _ = form.read_created(text);
    }
    if let Ok(Message::Response(response)) = Message::parse(data)
        && let Ok(result) = response.outcome
        && let Ok(Reply::InputRequired { requests, state: Some(state) }) =
            Reply::from_result(RawJson::from(result))
    {
        check_turn(&requests, &state);
    }
}

fn answers_to(requests: &[(String, Box<RawValue>)]) -> InputResponses {
    let answer = to_raw_value(&serde_json::json!({ "action": "decline" })).expect("JSON");
    InputResponses(requests.iter().map(|(key, _)| (key.clone(), answer.clone())).collect())
}

fn keys(responses: Option<&InputResponses>) -> Vec<&String> {
    responses.into_iter().flat_map(|all| &all.0).map(|(key, _)| key).collect()
}

fn check_envelope(envelope: &Envelope, data: &[u8]) {
    let _ = envelope.read_request(data);
    let Ok(ServerMessage::Incomplete { requests, state, .. }) = envelope.read_response(data) else {
        return;
    };
    let begin = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#;
    let Ok(Message::Request(request)) = Message::parse(begin) else { return };
    let mut call = Call::from_request(request).expect("a call");
    call.input_responses = Some(answers_to(&requests));
    call.request_state = state;
    let written = envelope.write_request(&call).expect("a request");
    let Ok(ClientMessage::Call(read)) = envelope.read_request(written.as_str().as_bytes()) else {
        // Two states of ours in one response: no server sends that.
        let text = String::from_utf8_lossy(data);
        assert!(text.matches(STATE_KEY).count() > 1 || text.contains('\\'), "{written:?}");
        return;
    };
    // A key of a ping that is not a state of ours comes back as an answer.
    let read_keys = keys(read.input_responses.as_ref());
    assert!(
        keys(call.input_responses.as_ref())
            .iter()
            .all(|key| read_keys.contains(key) || key.starts_with(STATE_KEY)),
        "{written:?}"
    );
    if envelope
        .write_incomplete(&RequestId::Number(1), &[], Some("s"), None)
        .is_ok_and(|incomplete| incomplete.as_str().contains("request_state"))
    {
        assert_eq!(read.request_state, call.request_state);
    }
}

/// Writes questions as a turn, and reads answers to them.
fn check_turn(requests: &[(String, Box<RawValue>)], state: &str) {
    if !state.bytes().all(|byte| byte.is_ascii_graphic()) {
        return;
    }
    let Ok(events) = turn::write_turn("t", requests, state) else { return };
    let mut decoder = sse::Decoder::new(1 << 20);
    let mut all = Vec::new();
    decoder.push(events.as_bytes(), |event| all.push(event)).expect("events");
    assert_eq!(all.len(), requests.len() + 2, "{events}");
    assert_eq!(all[all.len() - 1].id.as_deref(), Some(state));
    let names: Vec<String> = requests.iter().map(|(key, _)| key.clone()).collect();
    let ids: Vec<RequestId> =
        (1..=requests.len()).map(|n| RequestId::String(format!("t-{n}"))).collect();
    let answers = answers_to(requests);
    let array =
        turn::write_answers(ids.iter().zip(&answers.0).map(|(id, (_, answer))| (id, &**answer)));
    if requests.len() <= turn::MAX_ANSWERS {
        let read = turn::read_answers(array.as_bytes(), "t", &names).expect("answers");
        assert_eq!(read.len(), requests.len());
    }
}
