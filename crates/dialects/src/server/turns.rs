//! The dialect `multi-turn-sse`: a call in turns. The event id that ends a turn is the sealed call.

use std::sync::Arc;

use ::http::{HeaderName, HeaderValue, StatusCode};
use bytes::Bytes;
use mrtr_codec::encoding::{DecodeError, Decoder, Encoder};
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Params, Request, code};
use mrtr_schema::method;
use mrtr_schema::peer_text;
use mrtr_schema::tasks::{CreateTaskResult, TaskState};
use mrtr_transport::{NotificationSender, RequestHandler};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::answer::{Answer, SESSION_ID};
use super::engine::{Caller, Engine, malformed};
use super::handshake::{INITIALIZE, InitializeParams};
use super::seal::{Part, invalid_state, pack, unpack};
use super::tasks::Waited;
use crate::wire::call::{Call, Reply, plain_result, write_response};
use crate::wire::members;
use crate::wire::turn::{MAX_ANSWERS, read_answers, write_turn};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The longest session id in bytes: it is a header of every request.
const MAX_SESSION_ID: usize = 4 << 10;

/// The format of a sealed turn.
const FORMAT: u8 = 1;

/// Answers a message of a client.
pub(crate) async fn answer<H: RequestHandler>(
    engine: Arc<Engine<H>>,
    caller: Caller,
    body: Bytes,
    notifications: NotificationSender,
) -> Answer {
    answer_message(engine, caller, body, notifications).await.in_session()
}

async fn answer_message<H: RequestHandler>(
    engine: Arc<Engine<H>>,
    mut caller: Caller,
    body: Bytes,
    notifications: NotificationSender,
) -> Answer {
    if let Some(token) = caller.headers.get(&SESSION_ID) {
        let session = token.to_str().ok().and_then(|token| open_session(&engine, &caller, token));
        let Some(session) = session else {
            return Answer::rejected(StatusCode::NOT_FOUND, "no such session: initialize again");
        };
        let declared = session.capabilities;
        if declared.elicitation.is_some() || declared.sampling.is_some() {
            caller.capabilities = declared;
        } else {
            // The proposal's clients declare nothing: what is assumed without a session holds.
            caller.capabilities.roots = declared.roots.or(caller.capabilities.roots);
        }
        caller.client = session.client;
    }
    if body.trim_ascii_start().starts_with(b"[") {
        return resume(&engine, &caller, &body, notifications).await;
    }
    let request = match Message::parse(&body) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification(_)) => return Answer::Accepted,
        Ok(Message::Response(response)) => {
            let message = "the answers of a turn are a JSON array with the header Last-Event-ID";
            return Answer::error(response.id, ErrorObject::invalid_request(message));
        }
        Err(error) => return Answer::error(Message::salvage_id(&body), error),
    };
    drop(body);
    let id = request.id.clone();
    begin(&engine, &caller, request, notifications)
        .await
        .unwrap_or_else(|error| Answer::error(id, error))
}

/// Begins a call.
async fn begin<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    request: Request,
    notifications: NotificationSender,
) -> Result<Answer, ErrorObject> {
    if let Some(result) = engine.own_method(caller, &request).await {
        let response = write_response(&request.id, &result?);
        if request.method != INITIALIZE {
            return Ok(Answer::Json(response));
        }
        let params: InitializeParams = request.decode_params()?;
        let session = Session { capabilities: params.capabilities, client: params.client_info };
        return Ok(Answer::Session(response, seal_session(engine, caller, &session)?));
    }
    let mut call = Call::from_request(request)?;
    // A client of this dialect has no answers and no state of its own to send.
    (call.input_responses, call.request_state, call.task) = (None, None, None);
    let request = call.request.clone();
    let reply = engine.round(caller, call, true, notifications).await?;
    turn(engine, caller, request, reply).await
}

/// Continues a call with the answers to the questions of a turn.
async fn resume<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    body: &[u8],
    notifications: NotificationSender,
) -> Answer {
    let Some(event_id) = caller.headers.get(&LAST_EVENT_ID) else {
        let message = "an array of answers needs the header Last-Event-ID";
        return Answer::rejected(StatusCode::BAD_REQUEST, message);
    };
    let opened = event_id
        .to_str()
        .map_err(|_| invalid_state())
        .and_then(|token| engine.seal.open(Part::Turn, caller.principal(), token))
        .and_then(|packed| Turn::unpack(&packed).map_err(|_| invalid_state()));
    let turn = match opened {
        Ok(turn) => turn,
        Err(error) => return Answer::error(None, error),
    };
    let id = turn.request.id.clone();
    continue_turn(engine, caller, turn, body, notifications)
        .await
        .unwrap_or_else(|error| Answer::error(id, error))
}

async fn continue_turn<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    sealed: Turn,
    body: &[u8],
    notifications: NotificationSender,
) -> Result<Answer, ErrorObject> {
    let Turn { request, name, keys, place } = sealed;
    let mut responses = InputResponses::default();
    for (key, answer) in read_answers(body, &name, &keys)? {
        match answer {
            Ok(result) if members::is_object(&result) => {
                responses.0.push((key.to_owned(), result));
            }
            // It is not an answer: the question is asked again.
            Ok(_) => {}
            Err(error) => {
                let (key, why) = (peer_text::quote(key), peer_text::truncate(&error.message));
                return Err(ErrorObject::internal(format!(
                    "the client answered the question {key} with the error {}: {why}",
                    error.code
                )));
            }
        }
    }
    let reply = match place {
        Place::Task(task_id) => {
            engine.answer_task(caller, &task_id, responses).await?;
            return task_turn(engine, caller, request, task_id).await;
        }
        Place::Round(state) => {
            let mut call = Call::from_request(request.clone())?;
            call.request_state = state.map(|state| unpack(&state)).transpose()?;
            call.input_responses = Some(responses);
            engine.round(caller, call, true, notifications).await?
        }
    };
    turn(engine, caller, request, reply).await
}

/// Ends a turn: with the result of the call, or with questions.
async fn turn<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    request: Request,
    reply: Reply,
) -> Result<Answer, ErrorObject> {
    match reply {
        Reply::Complete(result) if request.method == method::DISCOVER => {
            Ok(Answer::Json(write_response(&request.id, &result)))
        }
        Reply::Complete(result) => {
            let result = plain_result(&request.method, &result).map_err(|e| malformed(&e))?;
            Ok(Answer::Json(write_response(&request.id, &result)))
        }
        Reply::InputRequired { requests, state } => {
            ask(engine, caller, request, &requests, Place::Round(state.as_deref().map(pack)))
        }
        Reply::Task(result) => {
            let created: CreateTaskResult =
                serde_json::from_str(result.as_str()).map_err(|error| malformed(&error))?;
            task_turn(engine, caller, request, created.task.task_id).await
        }
    }
}

/// Waits for a task, whose journal is in the task store.
async fn task_turn<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    request: Request,
    task_id: String,
) -> Result<Answer, ErrorObject> {
    let task = match engine.settled_task(caller, &task_id).await {
        Ok(Waited::Settled(task)) => task,
        Err(error) if error.code != code::INTERNAL_ERROR => return Err(error),
        // A turn without questions: the client comes back, to another replica if this one is
        // shutting down. An error of the store does not lose the call.
        _ => return ask(engine, caller, request, &[], Place::Task(task_id)),
    };
    let (_, state) = task.into_parts();
    match state {
        TaskState::InputRequired(requests) => {
            let requests = json!(requests).to_string();
            let requests = members::read(&requests).map_err(|error| malformed(&error))?;
            ask(engine, caller, request, &requests, Place::Task(task_id))
        }
        TaskState::Completed(result) => {
            let result =
                plain_result(&request.method, &result.into()).map_err(|e| malformed(&e))?;
            Ok(Answer::Json(write_response(&request.id, &result)))
        }
        TaskState::Failed(error) => Err(error),
        TaskState::Cancelled => Err(ErrorObject::internal("The task was cancelled")),
        TaskState::Working => Err(malformed(&"a task that is working")),
    }
}

/// Ends a turn with questions.
fn ask<H>(
    engine: &Engine<H>,
    caller: &Caller,
    request: Request,
    questions: &[(String, Box<RawValue>)],
    place: Place,
) -> Result<Answer, ErrorObject> {
    if questions.len() > MAX_ANSWERS {
        let count = questions.len();
        tracing::error!(target: "mrtr::dialects", count, "a round asks too many questions");
        return Err(ErrorObject::internal(format!(
            "This call asks {count} questions in one round; the limit is {MAX_ANSWERS}"
        )));
    }
    let random = getrandom::u64().map_err(|error| malformed(&error))?;
    let keys = questions.iter().map(|(key, _)| key.clone()).collect();
    let turn = Turn { request, name: format!("{random:016x}"), keys, place };
    let packed = turn.pack();
    // Base64 adds a third.
    let too_long = |length: usize| {
        let limit = engine.max_event_id;
        tracing::error!(target: "mrtr::dialects", length, limit, "a call is too long for an event id");
        ErrorObject::internal(format!(
            "The state of this call is too long for an event id: {length} bytes; the limit is {limit}"
        ))
    };
    if packed.len() / 3 * 4 > engine.max_event_id {
        return Err(too_long(packed.len() / 3 * 4));
    }
    let event_id = engine.seal.seal(Part::Turn, caller.principal(), &packed)?;
    if event_id.len() > engine.max_event_id {
        return Err(too_long(event_id.len()));
    }
    let events = write_turn(&turn.name, questions, &event_id).map_err(|e| malformed(&e))?;
    Ok(Answer::Events(events))
}

/// A call between two turns.
struct Turn {
    request: Request,
    /// The beginning of the ids of its questions.
    name: String,
    /// The keys of its questions, in their order.
    keys: Vec<String>,
    place: Place,
}

/// Where the journal of a call is.
enum Place {
    /// In the packed state.
    Round(Option<Vec<u8>>),
    /// In the task store.
    Task(String),
}

impl Turn {
    fn pack(&self) -> Vec<u8> {
        let Self { request, name, keys, place } = self;
        let mut out = Encoder::new();
        out.byte(FORMAT);
        out.bytes(crate::wire::call::id_json(&request.id).as_str().as_bytes());
        out.bytes(request.method.as_bytes());
        // A task has its arguments.
        let params = request.params.as_ref().filter(|_| matches!(place, Place::Round(_)));
        out.option(params.map(|params| params.as_str().as_bytes()));
        out.bytes(name.as_bytes()).number(keys.len() as u64);
        for key in keys {
            out.bytes(key.as_bytes());
        }
        match place {
            Place::Round(state) => out.byte(0).option(state.as_deref()),
            Place::Task(task_id) => out.byte(1).bytes(task_id.as_bytes()),
        };
        out.finish()
    }

    fn unpack(packed: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(packed);
        if input.byte()? != FORMAT {
            return Err(DecodeError);
        }
        let id = serde_json::from_str(input.text()?).map_err(|_| DecodeError)?;
        let method = input.text()?.to_owned();
        let params = match input.optional_text()? {
            None => None,
            Some(text) => {
                let value: &RawValue = serde_json::from_str(text).map_err(|_| DecodeError)?;
                Some(Params::new(&value).map_err(|_| DecodeError)?)
            }
        };
        let request = Request::new(id, method, params);
        let name = input.text()?.to_owned();
        let mut keys = Vec::new();
        for _ in 0..input.number()? {
            keys.push(input.text()?.to_owned());
        }
        let place = match input.byte()? {
            0 => Place::Round(input.option()?.map(<[u8]>::to_vec)),
            1 => Place::Task(input.text()?.to_owned()),
            _ => return Err(DecodeError),
        };
        input.end()?;
        Ok(Self { request, name, keys, place })
    }
}

/// What `initialize` has told about the client.
#[derive(Serialize, Deserialize)]
struct Session {
    #[serde(rename = "c")]
    capabilities: ClientCapabilities,
    #[serde(rename = "i")]
    client: Option<Implementation>,
}

fn seal_session<H>(
    engine: &Engine<H>,
    caller: &Caller,
    session: &Session,
) -> Result<HeaderValue, ErrorObject> {
    let mut session = json!(session);
    // What the revision does not have must not be used.
    if let Some(capabilities) = session.get_mut("c").and_then(|c| c.as_object_mut()) {
        capabilities
            .retain(|name, _| matches!(name.as_str(), "elicitation" | "sampling" | "roots"));
    }
    let body = session.to_string();
    if body.len() > MAX_SESSION_ID / 2 {
        return Err(ErrorObject::invalid_params(
            "Invalid params: the capabilities and the name of the client are too long",
        ));
    }
    let token = engine.seal.seal(Part::Session, caller.principal(), body.as_bytes())?;
    HeaderValue::from_str(&token).map_err(|error| malformed(&error))
}

fn open_session<H>(engine: &Engine<H>, caller: &Caller, token: &str) -> Option<Session> {
    if token.len() > MAX_SESSION_ID {
        return None;
    }
    let body = engine.seal.open(Part::Session, caller.principal(), token).ok()?;
    serde_json::from_slice(&body).ok()
}
