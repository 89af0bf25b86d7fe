//! Calls in `incomplete`, `dependent` and `tasks-2322`.

use ::http::HeaderMap;
use mrtr_schema::RawJson;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, Params, RequestId, Response, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::method;
use mrtr_schema::result::ResultType;
use mrtr_schema::tasks::{CreateTaskResult, EXTENSION};
use mrtr_transport::TransportError;
use serde::Serialize;
use serde_json::value::RawValue;

use super::connection::{post, read};
use super::dialect_client::DialectClient;
use crate::Dialect;
use crate::wire::call::{Call, Reply};
use crate::wire::envelope::{DEPENDENT, Envelope, INCOMPLETE, ServerMessage};
use crate::wire::members;
use crate::wire::tasks::{TASKS_2322, TASKS_INCOMPLETE, TaskForm};

pub(super) type OnNotification<'a> = &'a (dyn Fn(Notification) + Send + Sync);

/// What a server has answered.
pub(super) enum Received {
    Result(Box<RawValue>),
    Error(ErrorObject),
    Incomplete { requests: Vec<(String, Box<RawValue>)>, state: Option<String> },
}

impl DialectClient {
    /// Returns the names of the dialect's members; `None` if it has those of the current revision.
    pub(super) fn envelope(&self) -> Option<Envelope> {
        match self.dialect {
            Dialect::Incomplete => Some(INCOMPLETE),
            Dialect::Dependent => Some(DEPENDENT),
            _ => None,
        }
    }

    /// Returns the form of tasks in the dialect, if it has some.
    pub(super) fn task_form(&self) -> Option<TaskForm> {
        match self.dialect {
            Dialect::Incomplete => Some(TASKS_INCOMPLETE),
            Dialect::Tasks2322 => Some(TASKS_2322),
            _ => None,
        }
    }

    pub(super) async fn send_call(
        &self,
        mut call: Call,
        meta: &RequestMeta,
        on_notification: OnNotification<'_>,
    ) -> Result<Response, TransportError> {
        let id = call.request.id.clone();
        if let Some(form) = self.task_form()
            && let Some(response) = self.send_task_method(form, &call).await
        {
            return response;
        }
        let capabilities = meta.client_capabilities.as_ref();
        let wants_task = self.task_form().is_some()
            && call.request.method == method::TOOLS_CALL
            && capabilities.is_some_and(|declared| declared.has_extension(EXTENSION));
        if wants_task {
            call.task = Some(
                members::value(ObjectWriter::with_capacity(2).end()).map_err(|e| unusable(&e))?,
            );
        }
        let mut received = self.exchange(&call, on_notification).await?;
        if wants_task && is_refused(&received) {
            // The server has no tasks for this tool, and has not acted on the request.
            call.task = None;
            call.request.id = self.own_id();
            received = self.exchange(&call, on_notification).await?;
        }
        match received {
            Received::Error(error) => Ok(Response::error(Some(id), error)),
            Received::Incomplete { requests, state } => {
                Ok(respond(id, input_required(&requests, state.as_deref()))?)
            }
            Received::Result(result) => {
                let created = self.task_form().filter(|_| wants_task);
                match created.and_then(|form| form.read_created(result.get())) {
                    None => Ok(Response { id: Some(id), outcome: Ok(result) }),
                    Some(Ok(task)) => respond_with(id, &CreateTaskResult::new(task)),
                    Some(Err(why)) => Err(TransportError::protocol(format!(
                        "the server created a malformed task: {why}"
                    ))),
                }
            }
        }
    }

    /// Sends a request and waits for what the server answers.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        on_notification: OnNotification<'_>,
    ) -> Result<Received, TransportError> {
        let text = match self.envelope() {
            Some(envelope) => envelope.write_request(call),
            None => write_request(call),
        };
        let text = text.map_err(TransportError::not_sent)?;
        let id = &call.request.id;
        let received = self.post_text(text.into(), Some(id), on_notification).await?;
        received.ok_or_else(|| {
            TransportError::protocol("the server accepted a request and did not answer it")
        })
    }

    /// Sends a message. `None`: the server has accepted it and says nothing.
    pub(super) async fn post_text(
        &self,
        text: String,
        id: Option<&RequestId>,
        on_notification: OnNotification<'_>,
    ) -> Result<Option<Received>, TransportError> {
        let response = post(&self.http, HeaderMap::new(), text, false).await?;
        let envelope = self.envelope();
        read(response, |event| {
            if event.data.is_empty() {
                return Ok(None);
            }
            let message = match envelope {
                Some(envelope) => envelope.read_response(event.data.as_bytes())?,
                None => read_response(event.data.as_bytes())?,
            };
            let (answered, received) = match message {
                ServerMessage::Notification(notification) => {
                    on_notification(notification);
                    return Ok(None);
                }
                ServerMessage::Incomplete { id, requests, state } => {
                    (Some(id), Received::Incomplete { requests, state })
                }
                ServerMessage::Response(Response { id, outcome: Err(error) }) => {
                    (id, Received::Error(error))
                }
                ServerMessage::Response(Response { id, outcome: Ok(result) }) => {
                    (id, Received::Result(result))
                }
            };
            // An error about a message that could not be read has no id.
            let is_ours = answered.as_ref() == id
                || (answered.is_none() && matches!(received, Received::Error(_)));
            if is_ours { Ok(Some(received)) } else { Err("answered another request".to_owned()) }
        })
        .await
    }
}

/// Returns true if the server refuses tasks for a tool.
fn is_refused(received: &Received) -> bool {
    matches!(received, Received::Error(error) if error.code == code::METHOD_NOT_FOUND)
}

/// Writes a request with answers, state and task in its parameters.
fn write_request(call: &Call) -> Result<RawJson, String> {
    let mut request = call.clone().into_request().map_err(|error| error.to_string())?;
    if let Some(task) = &call.task {
        let text = request.params.as_ref().map_or("{}", Params::as_str);
        let mut all = members::read(text).map_err(|error| error.to_string())?;
        all.push(("task".to_owned(), task.clone()));
        request.params = Some(Params::new(&members::write(&all)).map_err(|e| e.to_string())?);
    }
    RawJson::new(&request).map_err(|error| error.to_string())
}

/// Reads a message of a server of `tasks-2322`.
fn read_response(body: &[u8]) -> Result<ServerMessage, String> {
    match Message::parse(body) {
        Ok(Message::Notification(notification)) => Ok(ServerMessage::Notification(notification)),
        Ok(Message::Request(_)) => Err("sent a request".to_owned()),
        Err(error) => Err(format!("sent a malformed message: {error}")),
        Ok(Message::Response(Response { id: Some(id), outcome: Ok(result) })) => {
            // The type says it, or, in the first text, the members.
            let is_typed = ResultType::from_result(&result)
                .is_ok_and(|kind| kind == ResultType::InputRequired);
            let mut all = members::read(result.get()).unwrap_or_default();
            let has = |name: &str| all.iter().any(|(other, _)| other == name);
            if !is_typed && !has("inputRequests") && !has("requestState") {
                return Ok(ServerMessage::Response(Response { id: Some(id), outcome: Ok(result) }));
            }
            all.retain(|(name, _)| name == "inputRequests" || name == "requestState");
            let kind = RawValue::from_string("\"input_required\"".to_owned());
            all.push(("resultType".to_owned(), kind.map_err(|error| error.to_string())?));
            match Reply::from_result(members::write(&all)) {
                Ok(Reply::InputRequired { requests, state }) => {
                    Ok(ServerMessage::Incomplete { id, requests, state })
                }
                _ => Err("sent a malformed result that requires input".to_owned()),
            }
        }
        Ok(Message::Response(response)) => Ok(ServerMessage::Response(response)),
    }
}

/// Writes the result of the current revision that requires input.
pub(super) fn input_required(requests: &[(String, Box<RawValue>)], state: Option<&str>) -> RawJson {
    let mut object = ObjectWriter::with_capacity(1024).string("resultType", "input_required");
    if !requests.is_empty() {
        object = object.raw("inputRequests", &members::write(requests));
    }
    match state {
        Some(state) => object.string("requestState", state).end(),
        None => object.end(),
    }
}

pub(super) fn respond(id: RequestId, result: RawJson) -> Result<Response, TransportError> {
    let result = members::value(result).map_err(|error| unusable(&error))?;
    Ok(Response { id: Some(id), outcome: Ok(result) })
}

pub(super) fn respond_with(
    id: RequestId,
    result: &impl Serialize,
) -> Result<Response, TransportError> {
    respond(id, RawJson::new(result).map_err(|error| unusable(&error))?)
}

pub(super) fn unusable(error: &dyn std::fmt::Display) -> TransportError {
    TransportError::protocol(format!("the server sent a message that cannot be used: {error}"))
}
