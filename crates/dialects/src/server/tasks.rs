//! The tasks of the engine, as all dialects with tasks use them.

use std::pin::pin;
use std::time::Duration;

use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult};
use mrtr_schema::input::{InputRequest, InputResponses};
use mrtr_schema::jsonrpc::{ErrorObject, RequestId, code};
use mrtr_schema::method;
use mrtr_schema::roots::ListRootsResult;
use mrtr_schema::sampling::CreateMessageResult;
use mrtr_schema::tasks::{DetailedTask, GetTaskResult, Task, TaskState, TaskStatus};
use mrtr_transport::{RequestHandler, retry_after};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::answer::Answer;
use super::engine::{Caller, Engine, malformed};
use crate::Dialect;
use crate::wire::call::{Call, add_is_error, plain_result, write_response};
use crate::wire::members;
use crate::wire::tasks::{TaskForm, with_related_task};

pub(crate) const TASKS_RESULT: &str = "tasks/result";
pub(crate) const TASKS_LIST: &str = "tasks/list";

/// The longest wait of one request for a task. The request counts towards the endpoint's limits all
/// that time.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest wait for the end of a task that was cancelled.
const LONGEST_CANCELLATION: Duration = Duration::from_secs(2);

/// The first and the longest pause between two polls of a task that is working. It doubles, up to
/// the interval that the task asks for.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Parameters with a task id.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams {
    task_id: String,
}

/// What a task method answers that differs between the dialects.
pub(crate) enum TaskAnswer {
    /// The questions of the task.
    Questions {
        id: RequestId,
        task_id: String,
        requests: Vec<(String, Box<RawValue>)>,
    },
    Other(Answer),
}

/// A task, after a request has waited for it.
pub(crate) enum Waited {
    /// It has questions, or has ended.
    Settled(Box<DetailedTask>),
    /// It is working, and the server is shutting down: another replica has to wait.
    ShuttingDown,
    /// It is working: the client has to ask again.
    Working,
}

impl<H: RequestHandler> Engine<H> {
    /// Returns a task of the caller.
    pub(crate) async fn task(
        &self,
        caller: &Caller,
        task_id: &str,
    ) -> Result<DetailedTask, ErrorObject> {
        let params = json!({ "taskId": task_id });
        let result = self.request(caller, method::TASKS_GET, &params).await?;
        let result: GetTaskResult =
            serde_json::from_str(result.as_str()).map_err(|error| malformed(&error))?;
        Ok(result.task)
    }

    /// Waits until a task has questions or has ended, for at most [`LONGEST_WAIT`].
    ///
    /// The polls pass the layers of the server, as those of a client do. The task goes on also if
    /// one of them is refused or fails.
    pub(crate) async fn settled_task(
        &self,
        caller: &Caller,
        task_id: &str,
    ) -> Result<Waited, ErrorObject> {
        let mut shutdown = pin!(self.handler.shutdown_begun());
        let mut end = pin!(sleep(LONGEST_WAIT));
        let (mut poll, mut is_last) = (Poll::default(), false);
        loop {
            match self.task(caller, task_id).await {
                Ok(task) if task.task().status != TaskStatus::Working => {
                    return Ok(Waited::Settled(Box::new(task)));
                }
                read => poll.note(read.as_ref().map(DetailedTask::task))?,
            }
            if is_last {
                // What has failed all that time is reported.
                return poll.failure.map_or(Ok(Waited::Working), Err);
            }
            tokio::select! {
                () = &mut shutdown => return Ok(Waited::ShuttingDown),
                () = &mut end => is_last = true,
                () = sleep(poll.pause) => {}
            }
        }
    }

    /// Answers questions of a task. An answer that is not of the form of its question is left out:
    /// the question stays open.
    pub(crate) async fn answer_task(
        &self,
        caller: &Caller,
        task_id: &str,
        responses: InputResponses,
    ) -> Result<(), ErrorObject> {
        let task = self.task(caller, task_id).await?;
        let open = match task.state() {
            TaskState::InputRequired(requests) => &requests.0[..],
            _ => &[],
        };
        let mut accepted = InputResponses::default();
        for (key, response) in responses.0 {
            let question = open.iter().find(|(other, _)| *other == key);
            if question.is_some_and(|(_, question)| is_answer_to(question, &response)) {
                accepted.0.push((key, response));
            } else {
                let key = mrtr_schema::peer_text::quote(&key);
                tracing::debug!(target: "mrtr::dialects", key, "an answer was ignored");
            }
        }
        if !accepted.0.is_empty() {
            let params = json!({ "taskId": task_id, "inputResponses": accepted });
            self.request(caller, method::TASKS_UPDATE, &params).await?;
        }
        Ok(())
    }

    /// Answers the methods of tasks that both dialects have; `None` for all others.
    pub(crate) async fn task_method(
        &self,
        caller: &Caller,
        form: TaskForm,
        call: &Call,
    ) -> Option<TaskAnswer> {
        let id = call.request.id.clone();
        let answer = match call.request.method.as_str() {
            method::TASKS_GET => self.get_task(caller, form, call).await.map(TaskAnswer::Other),
            method::TASKS_CANCEL => {
                self.cancel_task(caller, form, call).await.map(TaskAnswer::Other)
            }
            TASKS_RESULT => self.task_result(caller, call).await,
            // Without an identity, a list would show the tasks of others.
            TASKS_LIST => Err(ErrorObject::method_not_found(TASKS_LIST)),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|error| TaskAnswer::Other(Answer::error(id, error))))
    }

    async fn get_task(
        &self,
        caller: &Caller,
        form: TaskForm,
        call: &Call,
    ) -> Result<Answer, ErrorObject> {
        let TaskParams { task_id } = call.request.decode_params()?;
        let task = self.task(caller, &task_id).await?;
        Ok(Answer::Json(write_response(&call.request.id, &form.write(&effective(&task)))))
    }

    async fn cancel_task(
        &self,
        caller: &Caller,
        form: TaskForm,
        call: &Call,
    ) -> Result<Answer, ErrorObject> {
        let TaskParams { task_id } = call.request.decode_params()?;
        let is_open =
            |task: &Task| matches!(task.status, TaskStatus::Working | TaskStatus::InputRequired);
        let mut task = effective(&self.task(caller, &task_id).await?);
        if !is_open(&task) {
            return Err(ErrorObject::invalid_params(format!(
                "Cannot cancel task: already in terminal status '{}'",
                task.status.as_str()
            )));
        }
        let params = json!({ "taskId": task_id });
        self.request(caller, method::TASKS_CANCEL, &params).await?;
        // The replica that runs the task learns of it later. Until then, the task can still end in
        // another way: the response has the status that it really has.
        let mut end = pin!(sleep(LONGEST_CANCELLATION));
        let (mut poll, mut is_last) = (Poll::default(), false);
        loop {
            let read = self.task(caller, &task_id).await.map(|task| effective(&task));
            poll.note(read.as_ref())?;
            task = read.unwrap_or(task);
            if is_last || !is_open(&task) {
                break;
            }
            tokio::select! {
                () = &mut end => is_last = true,
                () = sleep(poll.pause) => {}
            }
        }
        Ok(Answer::Json(write_response(&call.request.id, &form.write(&task))))
    }

    async fn task_result(&self, caller: &Caller, call: &Call) -> Result<TaskAnswer, ErrorObject> {
        let id = call.request.id.clone();
        let TaskParams { task_id } = call.request.decode_params()?;
        let task = match self.settled_task(caller, &task_id).await? {
            Waited::Settled(task) => task,
            Waited::ShuttingDown => {
                return Err(again("The server is shutting down; call tasks/result again"));
            }
            Waited::Working => return Err(again("The task is working; call tasks/result again")),
        };
        let (_, state) = task.into_parts();
        match state {
            TaskState::InputRequired(requests) => {
                let requests = json!(requests).to_string();
                let requests = members::read(&requests).map_err(|error| malformed(&error))?;
                Ok(TaskAnswer::Questions { id, task_id, requests })
            }
            TaskState::Completed(result) => {
                let result = if self.dialect == Dialect::Incomplete {
                    plain_result(method::TOOLS_CALL, &result.into())
                } else {
                    members::read(result.get()).and_then(|mut all| {
                        add_is_error(method::TOOLS_CALL, &mut all)?;
                        Ok(members::write(&all))
                    })
                };
                let result = result
                    .and_then(|result| with_related_task(&result, &task_id))
                    .map_err(|error| malformed(&error))?;
                Ok(TaskAnswer::Other(Answer::Json(write_response(&id, &result))))
            }
            TaskState::Failed(error) => Err(error),
            TaskState::Cancelled => Err(ErrorObject::internal("The task was cancelled")),
            TaskState::Working => Err(malformed(&"a task that is working")),
        }
    }
}

/// The pauses between polls of a task.
struct Poll {
    next: Duration,
    /// The pause before the next poll.
    pause: Duration,
    /// The error of the last poll, if none has succeeded, and it was not refused by a rate limit.
    failure: Option<ErrorObject>,
    has_succeeded: bool,
}

impl Default for Poll {
    fn default() -> Self {
        let pause = Duration::ZERO;
        Self { next: FIRST_PAUSE, pause, failure: None, has_succeeded: false }
    }
}

impl Poll {
    /// Sets the pause after a poll.
    ///
    /// # Errors
    ///
    /// The error of the poll, if the next one will not succeed either.
    fn note(&mut self, read: Result<&Task, &ErrorObject>) -> Result<(), ErrorObject> {
        self.failure = None;
        let (mut longest, mut least) = (LONGEST_PAUSE, FIRST_PAUSE);
        match read {
            Ok(task) => {
                self.has_succeeded = true;
                let interval = task.poll_interval_ms.map_or(LONGEST_PAUSE, Duration::from_millis);
                longest = interval.clamp(FIRST_PAUSE, LONGEST_PAUSE);
            }
            Err(error) => match retry_after(error) {
                Some(pause) => least = pause,
                None if error.code == code::INTERNAL_ERROR => {
                    self.failure = (!self.has_succeeded).then(|| error.clone());
                }
                None => return Err(error.clone()),
            },
        }
        self.pause = self.next.max(least);
        self.next = (self.next * 2).min(longest);
        Ok(())
    }
}

/// The error of a request that must be repeated.
fn again(why: &str) -> ErrorObject {
    ErrorObject::internal(why)
}

/// Returns the metadata of a task. A tool that has failed makes its task fail, in the revision on
/// which the dialects are built.
fn effective(task: &DetailedTask) -> Task {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OnlyIsError {
        #[serde(default)]
        is_error: bool,
    }
    let mut metadata = task.task().clone();
    if let TaskState::Completed(result) = task.state()
        && serde_json::from_str::<OnlyIsError>(result.get()).is_ok_and(|result| result.is_error)
    {
        metadata.status = TaskStatus::Failed;
    }
    metadata
}

/// Returns true if a response has the form of an answer to the question.
fn is_answer_to(question: &InputRequest, response: &RawValue) -> bool {
    let text = response.get();
    match question {
        InputRequest::Elicit(ElicitParams::Form(form)) => {
            serde_json::from_str::<ElicitResult>(text).is_ok_and(|result| {
                result.action != ElicitAction::Accept
                    || form.requested_schema.validate(result.content.unwrap_or_default()).is_ok()
            })
        }
        InputRequest::Elicit(ElicitParams::Url(_)) => {
            serde_json::from_str::<ElicitResult>(text).is_ok()
        }
        InputRequest::Sample(_) => serde_json::from_str::<CreateMessageResult>(text).is_ok(),
        InputRequest::Roots => serde_json::from_str::<ListRootsResult>(text).is_ok(),
        _ => serde_json::from_str::<IgnoredAny>(text).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use mrtr_transport::too_many_requests;

    use super::*;

    fn task(interval: Option<u64>) -> Task {
        let mut task = Task::new("t", TaskStatus::Working, "2026-07-28T00:00:00Z");
        task.poll_interval_ms = interval;
        task
    }

    #[test]
    fn pauses_grow_up_to_what_the_task_asks_for() {
        for (interval, longest) in
            [(Some(0), FIRST_PAUSE), (Some(100), Duration::from_millis(100)), (None, LONGEST_PAUSE)]
        {
            let (task, mut poll) = (task(interval), Poll::default());
            for _ in 0..20 {
                poll.note(Ok(&task)).unwrap();
                assert!((FIRST_PAUSE..=LONGEST_PAUSE).contains(&poll.pause), "{:?}", poll.pause);
            }
            assert_eq!(poll.pause, longest);
        }
        let mut poll = Poll::default();
        poll.note(Ok(&task(Some(60_000)))).unwrap();
        poll.note(Err(&too_many_requests(Duration::from_secs(7)))).unwrap();
        assert_eq!(poll.pause, Duration::from_secs(7));
        poll.note(Ok(&task(None))).unwrap();
        assert!(poll.pause < LONGEST_PAUSE);
    }

    #[test]
    fn failure_is_reported_if_no_poll_succeeds() {
        let (broken, limited) =
            (ErrorObject::internal("no"), too_many_requests(Duration::from_secs(1)));
        let mut poll = Poll::default();
        poll.note(Err(&broken)).unwrap();
        assert!(poll.failure.is_some());
        poll.note(Err(&limited)).unwrap();
        assert!(poll.failure.is_none(), "the limit may be over next time");
        poll.note(Ok(&task(None))).unwrap();
        poll.note(Err(&broken)).unwrap();
        assert!(poll.failure.is_none());
        poll.note(Err(&ErrorObject::invalid_params("unknown task"))).unwrap_err();
    }
}
