//! The dialects `incomplete` and `dependent`: questions, answers and state beside `id`.

use mrtr_schema::RawJson;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, Params, RequestId, Response};
use serde_json::value::RawValue;

use super::call::{Call, has_rounds, id_json};
use super::members::{self, Members};
use super::tasks::{related_task, task_of};

/// The beginning of the key of `dependent_requests` that carries the state. The rest of the key is
/// the state. Its request is a `ping`, which every client answers, under the same key.
pub const STATE_KEY: &str = "mrtr.state/";

/// The method of the request that carries the state.
const PING: &str = "ping";

/// The names of the members of one of the dialects.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    requests: &'static str,
    responses: &'static str,
    state: Option<&'static str>,
}

/// The names of the dialect `incomplete`.
pub const INCOMPLETE: Envelope = Envelope {
    requests: "input_requests",
    responses: "input_responses",
    state: Some("request_state"),
};

/// The names of the dialect `dependent`. The state travels in a key of the requests: see
/// [`STATE_KEY`].
pub const DEPENDENT: Envelope =
    Envelope { requests: "dependent_requests", responses: "dependent_responses", state: None };

/// A message of a client.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientMessage {
    /// A request.
    Call(Call),
    /// Answers to the questions of a task: a message without a method.
    Answers {
        /// The id of the message.
        id: RequestId,
        /// The task.
        task_id: String,
        /// The answers.
        responses: InputResponses,
    },
    /// A notification.
    Notification(Notification),
}

/// A message of a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerMessage {
    /// A result or an error.
    Response(Response),
    /// An incomplete response.
    Incomplete {
        /// The id of the request, which is over.
        id: RequestId,
        /// The questions.
        requests: Vec<(String, Box<RawValue>)>,
        /// The state to return. Of `dependent`: the keys of the requests without a question, as a
        /// JSON array.
        state: Option<String>,
    },
    /// A notification.
    Notification(Notification),
}

impl Envelope {
    /// Reads a message of a client. Members that the dialect does not have are ignored.
    ///
    /// An answer that is not an object with the member `result` does not count: the question is
    /// asked again.
    ///
    /// # Errors
    ///
    /// `-32700`, `-32600` or `-32602`, as for the current revision.
    pub fn read_request(&self, body: &[u8]) -> Result<ClientMessage, ErrorObject> {
        let parsed = Message::parse(body);
        if let Err(error) = &parsed
            && error.code != mrtr_schema::jsonrpc::code::INVALID_REQUEST
        {
            return Err(error.clone());
        }
        // It is JSON in UTF-8, without duplicate keys.
        let text = str::from_utf8(body).unwrap_or_default();
        let mut top = members::read(text).unwrap_or_default();
        let responses = members::take(&mut top, self.responses);
        match parsed {
            Ok(Message::Request(request)) => {
                let mut call = Call::from_request(without_foreign_members(request)?)?;
                (call.input_responses, call.request_state) = self.answers(responses, &mut top)?;
                Ok(ClientMessage::Call(call))
            }
            Ok(Message::Notification(notification)) => {
                Ok(ClientMessage::Notification(notification))
            }
            Err(_)
                if self.state.is_some()
                    && responses.is_some()
                    && !top.iter().any(|(name, _)| name == "method") =>
            {
                let id = members::take(&mut top, "id");
                let id =
                    id.and_then(|id| serde_json::from_str(id.get()).ok()).ok_or_else(|| {
                        ErrorObject::invalid_request("Invalid request: answers need an `id`")
                    })?;
                let task_id = task_of(members::take(&mut top, "_meta").as_deref())?;
                let (responses, _) = self.answers(responses, &mut top)?;
                let responses = responses.unwrap_or_default();
                Ok(ClientMessage::Answers { id, task_id, responses })
            }
            Ok(Message::Response(_)) => Err(ErrorObject::invalid_request(format!(
                "Invalid request: clients send answers in `{}` of a request",
                self.responses
            ))),
            Err(error) => Err(error),
        }
    }

    /// Reads answers and state.
    fn answers(
        &self,
        responses: Option<Box<RawValue>>,
        top: &mut Members,
    ) -> Result<(Option<InputResponses>, Option<String>), ErrorObject> {
        let wrong = |name: &str| {
            ErrorObject::invalid_params(format!("Invalid params: `{name}` has the wrong type"))
        };
        let mut state = None;
        if let Some(name) = self.state
            && let Some(value) = members::take(top, name)
        {
            state = Some(serde_json::from_str(value.get()).map_err(|_| wrong(name))?);
        }
        let Some(responses) = responses else { return Ok((None, state)) };
        let responses = members::read(responses.get()).map_err(|_| wrong(self.responses))?;
        let mut answers = InputResponses::default();
        for (key, wrapped) in responses {
            if self.state.is_none()
                && let Some(sealed) = key.strip_prefix(STATE_KEY)
            {
                if state.replace(sealed.to_owned()).is_some() {
                    let why = "Invalid params: `dependent_responses` has more than one state";
                    return Err(ErrorObject::invalid_params(why));
                }
                continue;
            }
            let result = members::read(wrapped.get())
                .ok()
                .and_then(|mut members| members::take(&mut members, "result"))
                .filter(|result| members::is_object(result));
            match result {
                Some(result) => answers.0.push((key, result)),
                None => tracing::debug!(
                    target: "mrtr::dialects",
                    key = %mrtr_schema::peer_text::quote(&key),
                    "an answer without a `result` was ignored"
                ),
            }
        }
        Ok((Some(answers), state))
    }

    /// Writes an incomplete response. `task_id` is the task whose questions these are.
    ///
    /// # Errors
    ///
    /// The reason why the dialect cannot carry it: a key that begins with [`STATE_KEY`].
    pub fn write_incomplete(
        &self,
        id: &RequestId,
        requests: &[(String, Box<RawValue>)],
        state: Option<&str>,
        task_id: Option<&str>,
    ) -> Result<RawJson, String> {
        let mut questions = members::write(requests);
        let mut has_questions = !requests.is_empty();
        if self.state.is_none() {
            if requests.iter().any(|(key, _)| key.starts_with(STATE_KEY)) {
                return Err(format!("the keys that begin with {STATE_KEY:?} are reserved"));
            }
            let ping = ObjectWriter::with_capacity(32).string("method", PING).end();
            let ping = members::value(ping).map_err(|error| error.to_string())?;
            let mut all = requests.to_vec();
            all.extend(state.map(|state| (format!("{STATE_KEY}{state}"), ping)));
            has_questions = true;
            questions = members::write(&all);
        }
        let mut object =
            ObjectWriter::message(questions.as_str().len() + 256).raw("id", &id_json(id));
        if has_questions {
            object = object.raw(self.requests, &questions);
        }
        if let (Some(name), Some(state)) = (self.state, state) {
            object = object.string(name, state);
        }
        if let Some(task_id) = task_id {
            object = object.raw("_meta", &related_task(task_id));
        }
        Ok(object.end())
    }

    /// Writes a request of a client.
    ///
    /// # Errors
    ///
    /// If the state did not come from [`read_response`](Self::read_response).
    pub fn write_request(&self, call: &Call) -> Result<RawJson, String> {
        let Call { request, input_responses, request_state, task } = call;
        let text = request.params.as_ref().map(Params::as_str);
        let mut object = ObjectWriter::message(text.map_or(0, str::len) + 1024)
            .raw("id", &id_json(&request.id))
            .string("method", &request.method);
        let text = match (text, task) {
            (text, Some(task)) => {
                let mut params = members::read(text.unwrap_or("{}")).map_err(|e| e.to_string())?;
                params.push(("task".to_owned(), task.clone()));
                Some(members::write(&params))
            }
            (Some(text), None) => Some(RawJson::from(
                RawValue::from_string(text.to_owned()).map_err(|e| e.to_string())?,
            )),
            (None, None) => None,
        };
        if let Some(text) = text {
            object = object.raw("params", &text);
        }
        let mut wrapped = Members::new();
        for (key, result) in input_responses.iter().flat_map(|responses| &responses.0) {
            wrapped.push((key.clone(), wrap(result)?));
        }
        match (self.state, request_state) {
            (Some(name), Some(state)) => {
                if input_responses.is_some() {
                    object = object.raw(self.responses, &members::write(&wrapped));
                }
                Ok(object.string(name, state).end())
            }
            (None, Some(state)) => {
                let keys: Vec<String> = serde_json::from_str(state)
                    .map_err(|_| "the state is not that of a server of this dialect".to_owned())?;
                for key in keys {
                    wrapped.push((key, empty_answer()?));
                }
                Ok(object.raw(self.responses, &members::write(&wrapped)).end())
            }
            (_, None) if input_responses.is_some() => {
                Ok(object.raw(self.responses, &members::write(&wrapped)).end())
            }
            (_, None) => Ok(object.end()),
        }
    }

    /// Writes the answers to the questions of a task.
    ///
    /// # Errors
    ///
    /// If JSON cannot represent them, which does not happen with JSON that was read.
    pub fn write_answers(
        &self,
        id: &RequestId,
        task_id: &str,
        responses: &InputResponses,
    ) -> Result<RawJson, String> {
        let wrapped: Result<Members, String> =
            responses.0.iter().map(|(key, result)| Ok((key.clone(), wrap(result)?))).collect();
        Ok(ObjectWriter::message(1024)
            .raw("id", &id_json(id))
            .raw(self.responses, &members::write(&wrapped?))
            .raw("_meta", &related_task(task_id))
            .end())
    }

    /// Reads a message of a server.
    ///
    /// # Errors
    ///
    /// If it is not a message of this dialect: among others, a response with none of `result`,
    /// `error`, questions and state.
    pub fn read_response(&self, body: &[u8]) -> Result<ServerMessage, String> {
        let error = match Message::parse(body) {
            Ok(Message::Response(response)) => return Ok(ServerMessage::Response(response)),
            Ok(Message::Notification(notification)) => {
                return Ok(ServerMessage::Notification(notification));
            }
            Ok(Message::Request(_)) => return Err("sent a request".to_owned()),
            Err(error) if error.code == mrtr_schema::jsonrpc::code::INVALID_REQUEST => error,
            Err(error) => return Err(format!("sent a malformed message: {error}")),
        };
        let text = str::from_utf8(body).unwrap_or_default();
        let mut top = members::read(text).unwrap_or_default();
        let has = |name: &str| top.iter().any(|(other, _)| other == name);
        let is_incomplete = !has("result") && !has("error") && !has("method");
        let requests = members::take(&mut top, self.requests);
        let state = self.state.and_then(|name| members::take(&mut top, name));
        if !is_incomplete || (requests.is_none() && state.is_none()) {
            return Err(format!("sent a malformed message: {error}"));
        }
        let wrong = |name: &str| format!("sent an incomplete response with a malformed `{name}`");
        let id = members::take(&mut top, "id").ok_or_else(|| wrong("id"))?;
        let id = serde_json::from_str(id.get()).map_err(|_| wrong("id"))?;
        let requests = requests.map(|requests| members::read(requests.get())).transpose();
        let requests = requests.map_err(|_| wrong(self.requests))?.unwrap_or_default();
        let Some(name) = self.state else {
            return Ok(without_pings(id, requests));
        };
        let state = state.map(|state| serde_json::from_str(state.get())).transpose();
        let state = state.map_err(|_| wrong(name))?;
        Ok(ServerMessage::Incomplete { id, requests, state })
    }
}

/// Answers the pings: their keys become the state.
fn without_pings(id: RequestId, requests: Members) -> ServerMessage {
    let is_ping = |request: &RawValue| {
        let members = members::read(request.get()).unwrap_or_default();
        members.iter().any(|(name, value)| name == "method" && value.get() == "\"ping\"")
    };
    let (pings, requests): (Members, Members) =
        requests.into_iter().partition(|(_, request)| is_ping(request));
    let keys: Vec<String> = pings.into_iter().map(|(key, _)| key).collect();
    let state = if keys.is_empty() { None } else { serde_json::to_string(&keys).ok() };
    ServerMessage::Incomplete { id, requests, state }
}

/// Removes answers and state from the parameters: they are members of the message in this dialect.
fn without_foreign_members(
    mut request: mrtr_schema::jsonrpc::Request,
) -> Result<mrtr_schema::jsonrpc::Request, ErrorObject> {
    let Some(params) = request.params.as_ref().filter(|_| has_rounds(&request.method)) else {
        return Ok(request);
    };
    if params.member("inputResponses").is_none() && params.member("requestState").is_none() {
        return Ok(request);
    }
    let invalid =
        |error: serde_json::Error| ErrorObject::invalid_params(format!("Invalid params: {error}"));
    let mut members = members::read(params.as_str()).map_err(invalid)?;
    members.retain(|(name, _)| name != "inputResponses" && name != "requestState");
    request.params = Some(Params::new(&members::write(&members)).map_err(invalid)?);
    Ok(request)
}

/// Wraps a result as `{"result": …}`.
fn wrap(result: &RawValue) -> Result<Box<RawValue>, String> {
    let object = ObjectWriter::with_capacity(result.get().len() + 16);
    members::value(object.raw("result", &members::raw(result)).end()).map_err(|e| e.to_string())
}

/// The answer to a ping.
fn empty_answer() -> Result<Box<RawValue>, String> {
    RawValue::from_string(r#"{"result":{}}"#.to_owned()).map_err(|e| e.to_string())
}
