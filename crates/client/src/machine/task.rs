//! Calls that the server turns into a task (extension `io.modelcontextprotocol/tasks`).

use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use mrtr_schema::result::ResultType;
use mrtr_schema::tasks::{
    CreateTaskResult, EXTENSION, GetTaskResult, Task, TaskState, TaskStatus, UpdateTaskResult,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::event::Action;
use super::{Exchange, Machine, Phase};
use crate::error::CallError;
use crate::pending_call::allows_task;
use crate::pending_task::PendingTask;

/// Maximum number of polls in a row that return only input requests that were answered.
const MAX_STUCK_POLLS: u32 = 60;

impl Machine {
    /// Receives a [`CreateTaskResult`].
    pub(super) fn receive_created(&mut self, result: &RawValue) -> Result<Action, CallError> {
        let method = &self.call.method;
        if !allows_task(method) {
            return Err(CallError::protocol(format!("{method} must not create a task")));
        }
        let declared = self.meta.client_capabilities.as_ref();
        if !declared.is_some_and(|declared| declared.has_extension(EXTENSION)) {
            return Err(CallError::protocol(format!(
                "the server created a task, but the client did not declare {EXTENSION}"
            )));
        }
        let CreateTaskResult { task, .. } = decode(method, result)?;
        self.call.task = Some(PendingTask::new(&task)?);
        self.call.state = None;
        self.responses = None;
        self.call.pace = 0;
        let status = task.status;
        self.new_task = Some(task);
        // Any other status has members that only a poll returns.
        if status == TaskStatus::Working { self.wait_to_poll() } else { self.poll() }
    }

    /// Receives the result of `tasks/get`.
    pub(super) fn receive_task(&mut self, result: &RawValue) -> Result<Action, CallError> {
        let GetTaskResult { task, .. } = decode(method::TASKS_GET, result)?;
        let (task, state) = task.into_parts();
        let pending = self.call.task.as_mut().ok_or_else(no_task)?;
        if task.task_id != pending.id {
            return Err(CallError::protocol("the server returned another task"));
        }
        pending.poll_interval_ms = task.poll_interval_ms;
        pending.ttl_ms = task.ttl_ms;
        pending.described = Some(Box::new(task.clone()));
        if task.status != TaskStatus::InputRequired {
            pending.stuck_polls = 0;
        }
        let message = task.status_message.clone();
        self.new_task = Some(task);
        match state {
            TaskState::Working => self.wait_to_poll(),
            TaskState::InputRequired(requests) => self.receive_task_input(requests),
            TaskState::Completed(result) => self.receive_task_result(result),
            TaskState::Failed(error) => Err(CallError::task_failed(error)),
            TaskState::Cancelled => {
                let why = message.map_or_else(String::new, |m| format!(": {}", quote(&m)));
                Err(CallError::task_cancelled(format!("the task was cancelled{why}")))
            }
        }
    }

    /// Requests input for the keys that were not answered yet.
    fn receive_task_input(&mut self, requests: InputRequests) -> Result<Action, CallError> {
        let pending = self.call.task.as_mut().ok_or_else(no_task)?;
        let requests = requests.0.into_iter().filter(|(key, _)| !pending.is_answered(key));
        let requests = InputRequests(requests.collect());
        if !requests.0.is_empty() {
            pending.stuck_polls = 0;
            return self.request_input(requests);
        }
        pending.stuck_polls = pending.stuck_polls.saturating_add(1);
        if pending.stuck_polls > MAX_STUCK_POLLS {
            return Err(CallError::too_many_rounds(format!(
                "the task still requires input after {MAX_STUCK_POLLS} polls, \
                 although all its input requests were answered"
            )));
        }
        self.wait_to_poll()
    }

    /// Receives the result that the call itself would have had.
    fn receive_task_result(&mut self, result: Box<RawValue>) -> Result<Action, CallError> {
        match super::result_type(&result)? {
            ResultType::Complete => Ok(Action::Complete(result)),
            ResultType::Other(other) if self.accepted_result_types.contains(&other) => {
                Ok(Action::Complete(result))
            }
            other => Err(CallError::protocol(format!(
                "the task completed with a result of type {}",
                quote(other.as_str())
            ))),
        }
    }

    /// Receives the acknowledgement of `tasks/update`.
    pub(super) fn receive_update(&mut self, result: &RawValue) -> Result<Action, CallError> {
        let UpdateTaskResult { result_type, .. } = decode(method::TASKS_UPDATE, result)?;
        if result_type != ResultType::Complete {
            return Err(CallError::protocol(format!(
                "the server acknowledged {} with a result of type {}",
                method::TASKS_UPDATE,
                quote(result_type.as_str())
            )));
        }
        let pending = self.call.task.as_mut().ok_or_else(no_task)?;
        let InputResponses(responses) = self.responses.take().unwrap_or_default();
        pending.answered_keys.extend(responses.into_iter().map(|(key, _)| key));
        self.call.pace = 0;
        self.wait_to_poll()
    }

    fn wait_to_poll(&mut self) -> Result<Action, CallError> {
        self.call.pace = self.call.pace.saturating_add(1);
        let delay = self.call.delay();
        let pending = self.call.task.as_mut().ok_or_else(no_task)?;
        if let Some(ttl) = pending.ttl_ms.filter(|ttl| pending.waited_ms > *ttl) {
            return Err(CallError::task_expired(format!(
                "the task has not ended within its ttlMs of {ttl}"
            )));
        }
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        pending.waited_ms = pending.waited_ms.saturating_add(delay_ms);
        self.phase = Phase::Waiting;
        Ok(Action::Wait(delay))
    }

    fn poll(&mut self) -> Result<Action, CallError> {
        self.phase = Phase::Sent;
        self.exchange = Exchange::GetTask;
        self.request()
    }

    /// Returns the task as the last response described it, once.
    pub(crate) fn take_new_task(&mut self) -> Option<Task> {
        self.new_task.take()
    }
}

fn decode<R: DeserializeOwned>(method: &str, result: &RawValue) -> Result<R, CallError> {
    crate::json::decode_result(method, result)
}

fn no_task() -> CallError {
    CallError::request("internal error: the call is not a task")
}
