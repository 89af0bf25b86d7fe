//! The dialect `tasks-2322`.

use std::sync::Arc;

use bytes::Bytes;
use mrtr_schema::RawJson;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Params, RequestId};
use mrtr_schema::tasks::CreateTaskResult;
use mrtr_transport::{NotificationSender, RequestHandler};
use serde_json::value::RawValue;

use super::answer::Answer;
use super::engine::{Caller, Engine, malformed};
use super::tasks::TaskAnswer;
use crate::wire::call::{Call, Reply, TASKS_INPUT_RESPONSE, add_is_error, write_response};
use crate::wire::members;
use crate::wire::tasks::{TASKS_2322, related_task, task_of, with_related_task};

/// Answers a message of a client.
pub(crate) async fn answer<H: RequestHandler>(
    engine: Arc<Engine<H>>,
    caller: Caller,
    body: Bytes,
    notifications: NotificationSender,
) -> Answer {
    let request = match Message::parse(&body) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification(_)) => return Answer::Accepted,
        Ok(Message::Response(response)) => {
            let message = "clients send requests; send answers in `inputResponses`";
            return Answer::error(response.id, ErrorObject::invalid_request(message));
        }
        Err(error) => return Answer::error(Message::salvage_id(&body), error),
    };
    drop(body);
    let id = request.id.clone();
    let answered = async {
        let call = Call::from_request(request)?;
        call_answer(&engine, &caller, call, notifications).await
    };
    answered.await.unwrap_or_else(|error| Answer::error(id, error))
}

async fn call_answer<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    mut call: Call,
    notifications: NotificationSender,
) -> Result<Answer, ErrorObject> {
    let (id, method) = (call.request.id.clone(), call.request.method.clone());
    if method == TASKS_INPUT_RESPONSE {
        return input_response(engine, caller, call).await;
    }
    match engine.task_method(caller, TASKS_2322, &call).await {
        Some(TaskAnswer::Other(answer)) => return Ok(answer),
        Some(TaskAnswer::Questions { id, task_id, requests }) => {
            return Ok(Answer::Json(write_questions(&id, &task_id, &requests)));
        }
        None => {}
    }
    if let Some(result) = engine.own_method(caller, &call.request).await {
        return Ok(Answer::Json(write_response(&id, &result?)));
    }
    let with_task = call.task.take().is_some();
    match engine.sealed_round(caller, call, with_task, notifications).await? {
        Reply::Complete(result) => {
            let mut all = members::read(result.as_str()).map_err(|error| malformed(&error))?;
            add_is_error(&method, &mut all).map_err(|error| malformed(&error))?;
            Ok(Answer::Json(write_response(&id, &members::write(&all))))
        }
        Reply::InputRequired { requests, state } => {
            let result = input_required(&requests, state.as_deref());
            Ok(Answer::Json(write_response(&id, &result)))
        }
        Reply::Task(result) => {
            let created: CreateTaskResult =
                serde_json::from_str(result.as_str()).map_err(|error| malformed(&error))?;
            Ok(Answer::Json(write_response(&id, &TASKS_2322.write_created(&created.task))))
        }
    }
}

async fn input_response<H: RequestHandler>(
    engine: &Engine<H>,
    caller: &Caller,
    call: Call,
) -> Result<Answer, ErrorObject> {
    let meta = call.request.params.as_ref().and_then(|params: &Params| params.member("_meta"));
    let meta = meta.and_then(|meta| RawValue::from_string(meta.to_owned()).ok());
    let task_id = task_of(meta.as_deref())?;
    let responses: InputResponses = call.input_responses.ok_or_else(|| {
        ErrorObject::invalid_params("Invalid params: missing field `inputResponses`")
    })?;
    engine.answer_task(caller, &task_id, responses).await?;
    let result = with_related_task(&ObjectWriter::with_capacity(2).end(), &task_id)
        .map_err(|error| malformed(&error))?;
    Ok(Answer::Json(write_response(&call.request.id, &result)))
}

/// Writes a result that requires input.
fn input_required(requests: &[(String, Box<RawValue>)], state: Option<&str>) -> RawJson {
    let mut object = ObjectWriter::with_capacity(1024).string("resultType", "input_required");
    if !requests.is_empty() {
        object = object.raw("inputRequests", &members::write(requests));
    }
    match state {
        Some(state) => object.string("requestState", state).end(),
        None => object.end(),
    }
}

/// Writes the questions of a task. The document has `_meta` beside `result`.
fn write_questions(id: &RequestId, task_id: &str, requests: &[(String, Box<RawValue>)]) -> RawJson {
    ObjectWriter::message(1024)
        .raw("id", &crate::wire::call::id_json(id))
        .raw("result", &input_required(requests, None))
        .raw("_meta", &related_task(task_id))
        .end()
}
