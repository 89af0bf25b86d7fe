//! `tasks/get`, `tasks/update` and `tasks/cancel`.

use std::sync::Arc;

use mrtr_codec::OpenError;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::peer_text::quote;
use mrtr_schema::tasks::{
    CancelTaskParams, CancelTaskResult, DetailedTask, EXTENSION, GetTaskParams, GetTaskResult,
    Task, TaskState, TaskStatus, UpdateTaskParams, UpdateTaskResult,
};
use mrtr_schema::{Object, method};
use serde_json::value::RawValue;

use super::scopes::check_scopes;
use crate::registry::{Methods, Registry, ResponseFuture};
use crate::request_parts::RequestParts;
use crate::rounds::{MAX_STORED_ANSWERS, MAX_STORED_ENTRY};
use crate::tasks::{
    Part, StoredStatus, TaskKey, TaskPolicy, TaskRecord, UnixMillis, View, ViewOutcome,
    within_request,
};

pub(crate) const METHODS: Methods =
    &[(method::TASKS_GET, get), (method::TASKS_UPDATE, update), (method::TASKS_CANCEL, cancel)];

fn get(server: Arc<Registry>, request: &Request, parts: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move {
        check_extension(&parts)?;
        let GetTaskParams { task_id, .. } = GetTaskParams::from_request(request)?;
        let task = server.detailed_task(&task_id, &parts).await?;
        server.complete(&GetTaskResult::new(task))
    })
}

fn update(
    server: Arc<Registry>,
    request: &Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'_> {
    Box::pin(async move {
        check_extension(&parts)?;
        let UpdateTaskParams { task_id, input_responses, .. } =
            UpdateTaskParams::from_request(request)?;
        let service = server.task_service()?;
        let (record, view) = server.read_task(&task_id, &parts).await?;
        let key = TaskKey::of(&task_id);
        let seal = server.task_seal(key);
        let is_outstanding = |question: &String| {
            view.questions.iter().any(|open| open.wire_key == *question)
                && !record.answered.contains(question)
        };
        // What is sealed is written in Base64.
        let plain = |sealed: u64| sealed / 4 * 3;
        let (mut answers, mut total) = (Vec::new(), plain(record.answer_bytes));
        for (question, answer) in input_responses.0 {
            // Answers to anything else are ignored.
            if !is_outstanding(&question) {
                continue;
            }
            let length = answer.get().len();
            if length > MAX_STORED_ENTRY {
                return Err(ErrorObject::invalid_params(format!(
                    "Invalid params: the response to {} has {length} bytes; the limit is \
                     {MAX_STORED_ENTRY}",
                    quote(&question)
                )));
            }
            let sealed = seal.seal(Part::Answer(&question), answer.get().as_bytes());
            let sealed = sealed.map_err(|error| {
                tracing::error!(target: "mrtr::tasks", %error, "sealing an answer failed");
                ErrorObject::internal("Internal error")
            })?;
            total += plain(sealed.len() as u64);
            if total > MAX_STORED_ANSWERS {
                return Err(ErrorObject::invalid_params(format!(
                    "Invalid params: with the response to {}, the responses of this task have \
                     {total} bytes; the limit is {MAX_STORED_ANSWERS}",
                    quote(&question)
                )));
            }
            answers.push((question, sealed));
        }
        if record.status == StoredStatus::Open && !answers.is_empty() {
            within_request(service.store.answer(key, answers)).await?;
        }
        server.complete(&UpdateTaskResult::new())
    })
}

fn cancel(
    server: Arc<Registry>,
    request: &Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'_> {
    Box::pin(async move {
        check_extension(&parts)?;
        let CancelTaskParams { task_id, .. } = CancelTaskParams::from_request(request)?;
        let service = server.task_service()?;
        let (record, _) = server.read_task(&task_id, &parts).await?;
        if record.status == StoredStatus::Open {
            within_request(service.store.cancel(TaskKey::of(&task_id))).await?;
        }
        server.complete(&CancelTaskResult::new())
    })
}

/// Returns true if the client declares the extension with this request.
pub(super) fn declares_tasks(parts: &RequestParts) -> bool {
    !parts.is_legacy() && parts.capabilities().has_extension(EXTENSION)
}

/// Creates the error response to a client without the extension.
pub(super) fn missing_extension() -> ErrorObject {
    let required = ClientCapabilities::new().with_extension(EXTENSION, Object::new());
    ErrorObject::missing_client_capability(&required)
}

/// Checks that the client declares the extension, before anything is looked up.
pub(super) fn check_extension(parts: &RequestParts) -> Result<(), ErrorObject> {
    if declares_tasks(parts) { Ok(()) } else { Err(missing_extension()) }
}

impl Registry {
    /// Reads a task, if it exists and belongs to the caller.
    ///
    /// # Errors
    ///
    /// The same error response for an unknown, an expired, and another caller's task, and for one
    /// whose tool is hidden from the caller; or that of an unavailable store.
    async fn read_task(
        &self,
        task_id: &str,
        parts: &RequestParts,
    ) -> Result<(TaskRecord, View), ErrorObject> {
        let not_found = || {
            let why = "Invalid params: unknown `taskId`: the task does not exist";
            ErrorObject::invalid_params(why)
        };
        let key = TaskKey::of(task_id);
        let record = within_request(self.task_service()?.store.read(key)).await?;
        let record = record.ok_or_else(not_found)?;
        let opened = self.task_seal(key).open(Part::View(parts.principal.as_ref()), &record.view);
        let view =
            opened.and_then(|view| View::unpack(&view).map_err(|_| OpenError::UnknownFormat));
        match view {
            Ok(view) => {
                // The answers of a caller have to be allowed what the call is allowed, also while the
                // tool is disabled.
                if let Some(tool) = self.tools.find_any(&record.handler.tool) {
                    if !tool.options.is_visible_to(parts) {
                        return Err(not_found());
                    }
                    check_scopes(&tool.options, parts, None)?;
                }
                Ok((record, view))
            }
            Err(error) => {
                let reason = error.reason();
                tracing::warn!(target: "mrtr::tasks", ?key, reason, "a task was not opened");
                Err(not_found())
            }
        }
    }

    /// Returns a task of the caller.
    pub(super) async fn detailed_task(
        &self,
        task_id: &str,
        parts: &RequestParts,
    ) -> Result<DetailedTask, ErrorObject> {
        let (record, view) = self.read_task(task_id, parts).await?;
        // A tool without a policy, or none at all: another version of the server created the task.
        let policy = self.tool(&record.handler.tool).and_then(|tool| tool.task.clone());
        task_on_wire(task_id, &record, &view, &policy.unwrap_or_else(TaskPolicy::on_detach))
    }
}

/// Returns a task as it is sent.
pub(super) fn task_on_wire(
    task_id: &str,
    record: &TaskRecord,
    view: &View,
    policy: &TaskPolicy,
) -> Result<DetailedTask, ErrorObject> {
    let malformed = |error: serde_json::Error| {
        tracing::error!(target: "mrtr::tasks", %error, "a stored task is malformed");
        ErrorObject::internal("Internal error")
    };
    let state = match (record.status, &view.outcome) {
        (StoredStatus::Open, _) => {
            let outstanding = view.outstanding(&record.answered).map_err(malformed)?;
            if outstanding.0.is_empty() {
                TaskState::Working
            } else {
                TaskState::InputRequired(outstanding)
            }
        }
        (StoredStatus::Completed, Some(ViewOutcome::Result(json))) => {
            TaskState::Completed(RawValue::from_string(json.clone()).map_err(malformed)?)
        }
        (StoredStatus::Failed, Some(ViewOutcome::Error(json))) => {
            TaskState::Failed(serde_json::from_str(json).map_err(malformed)?)
        }
        (StoredStatus::Cancelled, _) => TaskState::Cancelled,
        (StoredStatus::Completed | StoredStatus::Failed, _) => {
            TaskState::Failed(ErrorObject::internal("Internal error"))
        }
    };
    let mut task = Task::new(task_id, TaskStatus::Working, iso8601(record.created))
        .with_last_updated_at(iso8601(record.updated));
    task.status_message.clone_from(&view.message);
    task.ttl_ms = record.expires.map(|expires| expires.0.saturating_sub(record.created.0));
    task.poll_interval_ms = Some(policy.poll_interval.as_millis().try_into().unwrap_or(u64::MAX));
    Ok(DetailedTask::new(task, state))
}

/// Formats a time as ISO 8601, in UTC with milliseconds.
fn iso8601(UnixMillis(millis): UnixMillis) -> String {
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in a calendar whose years begin in March: the leap day is the last.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = 400 * era + year + next_year;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_iso_8601() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_785_196_800_000, "2026-07-28T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso8601(UnixMillis(millis)), text);
        }
    }
}
