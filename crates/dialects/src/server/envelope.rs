//! The dialects `incomplete` and `dependent`.

use std::sync::Arc;

use bytes::Bytes;
use mrtr_schema::jsonrpc::{ErrorObject, Message};
use mrtr_schema::method;
use mrtr_schema::tasks::CreateTaskResult;
use mrtr_transport::{NotificationSender, RequestHandler};

use super::answer::Answer;
use super::engine::{Caller, Engine, malformed};
use super::tasks::TaskAnswer;
use crate::Dialect;
use crate::wire::call::{Call, Reply, plain_result, write_response};
use crate::wire::envelope::{ClientMessage, Envelope};
use crate::wire::tasks::TASKS_INCOMPLETE;

/// Answers a message of a client.
pub(crate) async fn answer<H: RequestHandler>(
    engine: Arc<Engine<H>>,
    envelope: Envelope,
    caller: Caller,
    body: Bytes,
    notifications: NotificationSender,
) -> Answer {
    let message = match envelope.read_request(&body) {
        Ok(message) => message,
        Err(error) => return Answer::error(Message::salvage_id(&body), error),
    };
    drop(body);
    match message {
        ClientMessage::Notification(_) => Answer::Accepted,
        ClientMessage::Answers { id, task_id, responses } => {
            match engine.answer_task(&caller, &task_id, responses).await {
                // The proposal has no response to answers.
                Ok(()) => Answer::Accepted,
                Err(error) => Answer::error(id, error),
            }
        }
        ClientMessage::Call(call) => {
            let id = call.request.id.clone();
            let answered = call_answer(&engine, envelope, &caller, call, notifications).await;
            answered.unwrap_or_else(|error| Answer::error(id, error))
        }
    }
}

async fn call_answer<H: RequestHandler>(
    engine: &Engine<H>,
    envelope: Envelope,
    caller: &Caller,
    mut call: Call,
    notifications: NotificationSender,
) -> Result<Answer, ErrorObject> {
    let (id, method) = (call.request.id.clone(), call.request.method.clone());
    let has_tasks = engine.dialect == Dialect::Incomplete;
    if has_tasks && let Some(answer) = engine.task_method(caller, TASKS_INCOMPLETE, &call).await {
        return match answer {
            TaskAnswer::Other(answer) => Ok(answer),
            TaskAnswer::Questions { id, task_id, requests } => envelope
                .write_incomplete(&id, &requests, None, Some(&task_id))
                .map(Answer::Json)
                .map_err(|why| malformed(&why)),
        };
    }
    if let Some(result) = engine.own_method(caller, &call.request).await {
        return Ok(Answer::Json(write_response(&id, &result?)));
    }
    let with_task = has_tasks && call.task.take().is_some();
    match engine.sealed_round(caller, call, with_task, notifications).await? {
        Reply::Complete(result) if method == method::DISCOVER => {
            Ok(Answer::Json(write_response(&id, &result)))
        }
        Reply::Complete(result) => {
            let result = plain_result(&method, &result).map_err(|error| malformed(&error))?;
            Ok(Answer::Json(write_response(&id, &result)))
        }
        Reply::InputRequired { requests, state } => envelope
            .write_incomplete(&id, &requests, state.as_deref(), None)
            .map(Answer::Json)
            .map_err(|why| malformed(&why)),
        Reply::Task(result) => {
            let created: CreateTaskResult =
                serde_json::from_str(result.as_str()).map_err(|error| malformed(&error))?;
            let result = TASKS_INCOMPLETE.write_created(&created.task);
            Ok(Answer::Json(write_response(&id, &result)))
        }
    }
}
