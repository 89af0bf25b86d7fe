//! The methods of tasks, as servers of `incomplete` and `tasks-2322` have them.

use mrtr_schema::RawJson;
use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, Response};
use mrtr_schema::method;
use mrtr_schema::tasks::{
    CancelTaskResult, DetailedTask, GetTaskResult, Task, TaskState, TaskStatus, UpdateTaskResult,
};
use mrtr_transport::TransportError;
use serde_json::json;

use super::calls::{Received, respond_with, unusable};
use super::dialect_client::DialectClient;
use crate::wire::call::{Call, TASKS_INPUT_RESPONSE};
use crate::wire::members;
use crate::wire::tasks::{RELATED_TASK, TaskForm};

impl DialectClient {
    /// Sends a method of tasks; `None` if it is another method.
    pub(super) async fn send_task_method(
        &self,
        form: TaskForm,
        call: &Call,
    ) -> Option<Result<Response, TransportError>> {
        let id = call.request.id.clone();
        let method = call.request.method.as_str();
        if !matches!(method, method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL) {
            return None;
        }
        let task_id = call.request.params.as_ref().and_then(|params| params.string("taskId"));
        let Some(task_id) = task_id else {
            let error = ErrorObject::invalid_params("Invalid params: missing field `taskId`");
            return Some(Ok(Response::error(Some(id), error)));
        };
        let outcome = match method {
            method::TASKS_GET => self
                .get_task(form, &task_id)
                .await
                .map(|task| task.map(|task| respond_with(id.clone(), &GetTaskResult::new(task)))),
            method::TASKS_UPDATE => {
                let responses = call.input_responses.clone().unwrap_or_default();
                self.update_task(&task_id, &responses).await.map(|outcome| {
                    outcome.map(|()| respond_with(id.clone(), &UpdateTaskResult::new()))
                })
            }
            _ => self.task_request(method, &task_id).await.map(|received| match received {
                Received::Error(error) => Err(error),
                _ => Ok(respond_with(id.clone(), &CancelTaskResult::new())),
            }),
        };
        Some(match outcome {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => Ok(Response::error(Some(id), error)),
            Err(error) => Err(error),
        })
    }

    async fn task_request(&self, method: &str, task_id: &str) -> Result<Received, TransportError> {
        let params = Params::new(&json!({ "taskId": task_id })).map_err(|e| unusable(&e))?;
        let request = Request::new(self.own_id(), method, Some(params));
        let call = Call::from_request(request).map_err(|error| unusable(&error))?;
        self.exchange(&call, &|_| ()).await
    }

    /// Returns a task, with its questions or its result.
    async fn get_task(
        &self,
        form: TaskForm,
        task_id: &str,
    ) -> Result<Result<DetailedTask, ErrorObject>, TransportError> {
        let task: Task = match self.task_request(method::TASKS_GET, task_id).await? {
            Received::Error(error) => return Ok(Err(error)),
            Received::Incomplete { .. } => {
                return Err(unusable(&"an incomplete response to tasks/get"));
            }
            Received::Result(task) => form.read(task.get()).map_err(|why| unusable(&why))?,
        };
        let state = match task.status {
            TaskStatus::Working => TaskState::Working,
            TaskStatus::Cancelled => TaskState::Cancelled,
            TaskStatus::InputRequired | TaskStatus::Completed | TaskStatus::Failed => {
                match self.task_request("tasks/result", task_id).await? {
                    Received::Result(result) => TaskState::Completed(result),
                    // An error may also be that of the request, for example of a store that is
                    // unavailable: only a failed task ends with it.
                    Received::Error(error) if task.status != TaskStatus::Failed => {
                        return Ok(Err(error));
                    }
                    Received::Error(error) => TaskState::Failed(error),
                    Received::Incomplete { requests, .. } => {
                        let requests = members::write(&requests);
                        let requests: InputRequests = serde_json::from_str(requests.as_str())
                            .map_err(|error| unusable(&error))?;
                        TaskState::InputRequired(requests)
                    }
                }
            }
        };
        Ok(Ok(DetailedTask::new(task, state)))
    }

    /// Answers questions of a task.
    async fn update_task(
        &self,
        task_id: &str,
        responses: &InputResponses,
    ) -> Result<Result<(), ErrorObject>, TransportError> {
        let id = self.own_id();
        let text = match self.envelope() {
            Some(envelope) => {
                envelope.write_answers(&id, task_id, responses).map_err(TransportError::not_sent)?
            }
            None => {
                let params = json!({
                    "inputResponses": responses,
                    "_meta": { RELATED_TASK: { "taskId": task_id } },
                });
                let params = Params::new(&params).map_err(|error| unusable(&error))?;
                let request = Request::new(id.clone(), TASKS_INPUT_RESPONSE, Some(params));
                RawJson::new(&request).map_err(|error| unusable(&error))?
            }
        };
        match self.post_text(text.into(), Some(&id), &|_| ()).await? {
            Some(Received::Error(error)) => Ok(Err(error)),
            None | Some(Received::Result(_)) => Ok(Ok(())),
            Some(Received::Incomplete { .. }) => {
                Err(unusable(&"an incomplete response to answers"))
            }
        }
    }
}
