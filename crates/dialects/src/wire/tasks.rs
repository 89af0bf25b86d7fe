//! Tasks as the proposals have them: in `tasks-2322`, and in `incomplete`, where other words stand
//! for the statuses.

use mrtr_schema::RawJson;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::tasks::{Task, TaskStatus};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::members;

/// The key of `_meta` that names the task to which a message belongs.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// The form of tasks in a dialect.
#[derive(Debug, Clone, Copy)]
pub struct TaskForm {
    working: &'static str,
    completed: &'static str,
    failed: &'static str,
    cancelled: &'static str,
    has_last_updated: bool,
}

/// The form of `tasks-2322`, and of revision 2025-11-25.
pub const TASKS_2322: TaskForm = TaskForm {
    working: "working",
    completed: "completed",
    failed: "failed",
    cancelled: "cancelled",
    has_last_updated: true,
};

/// The form of `incomplete`.
pub const TASKS_INCOMPLETE: TaskForm = TaskForm {
    working: "Working",
    completed: "Completed",
    failed: "Failed",
    cancelled: "Cancelled",
    has_last_updated: false,
};

impl TaskForm {
    fn status(&self, status: TaskStatus) -> &'static str {
        match status {
            TaskStatus::Working => self.working,
            TaskStatus::Completed => self.completed,
            TaskStatus::Failed => self.failed,
            TaskStatus::Cancelled => self.cancelled,
            // Spelled the same in both.
            TaskStatus::InputRequired => status.as_str(),
        }
    }

    /// Writes the members of a task.
    pub fn write(&self, task: &Task) -> RawJson {
        let number = |number: Option<u64>| {
            let text = number.map_or_else(|| "null".to_owned(), |number| number.to_string());
            RawValue::from_string(text).map(RawJson::from)
        };
        let mut object = ObjectWriter::with_capacity(256)
            .string("taskId", &task.task_id)
            .string("status", self.status(task.status));
        if let Some(message) = &task.status_message {
            object = object.string("statusMessage", message);
        }
        object = object.string("createdAt", &task.created_at);
        if self.has_last_updated {
            object = object.string("lastUpdatedAt", &task.last_updated_at);
        }
        if let Ok(ttl) = number(task.ttl_ms) {
            object = object.raw("ttl", &ttl);
        }
        if let Some(interval) = task.poll_interval_ms
            && let Ok(interval) = number(Some(interval))
        {
            object = object.raw("pollInterval", &interval);
        }
        object.end()
    }

    /// Writes the result that creates a task.
    pub fn write_created(&self, task: &Task) -> RawJson {
        ObjectWriter::with_capacity(300).raw("task", &self.write(task)).end()
    }

    /// Reads a task.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn read(&self, text: &str) -> Result<Task, String> {
        let wire: Wire = mrtr_schema::json::from_str(text).map_err(|error| error.to_string())?;
        let status = [
            TaskStatus::Working,
            TaskStatus::InputRequired,
            TaskStatus::Completed,
            TaskStatus::Failed,
            TaskStatus::Cancelled,
        ];
        let status =
            status.into_iter().find(|status| self.status(*status) == wire.status).ok_or_else(
                || format!("unknown status {}", mrtr_schema::peer_text::quote(&wire.status)),
            )?;
        let mut task = Task::new(wire.task_id, status, wire.created_at);
        if let Some(updated) = wire.last_updated_at {
            task.last_updated_at = updated;
        }
        task.status_message = wire.status_message;
        task.ttl_ms = wire.ttl;
        task.poll_interval_ms = wire.poll_interval;
        Ok(task)
    }

    /// Reads the task in a result that creates one; `None` if the result is another.
    ///
    /// # Errors
    ///
    /// What is wrong with the task.
    pub fn read_created(&self, result: &str) -> Option<Result<Task, String>> {
        let mut members = members::read(result).ok()?;
        let task = members::take(&mut members, "task")?;
        members::is_object(&task).then(|| self.read(task.get()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    task_id: String,
    status: String,
    #[serde(default)]
    status_message: Option<String>,
    created_at: String,
    #[serde(default)]
    last_updated_at: Option<String>,
    #[serde(default)]
    ttl: Option<u64>,
    #[serde(default)]
    poll_interval: Option<u64>,
}

/// Writes the `_meta` that names a task.
pub fn related_task(task_id: &str) -> RawJson {
    ObjectWriter::with_capacity(task_id.len() + 64)
        .object(RELATED_TASK, |object| object.string("taskId", task_id))
        .end()
}

/// Reads the task in a `_meta`.
///
/// # Errors
///
/// `-32602` if it names none.
pub fn task_of(meta: Option<&RawValue>) -> Result<String, ErrorObject> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Related {
        task_id: String,
    }
    let related = meta
        .and_then(|meta| members::read(meta.get()).ok())
        .and_then(|mut meta| members::take(&mut meta, RELATED_TASK))
        .and_then(|related| serde_json::from_str::<Related>(related.get()).ok());
    related.map(|related| related.task_id).ok_or_else(|| {
        ErrorObject::invalid_params(format!(
            "Invalid params: `_meta` has no task in {RELATED_TASK}"
        ))
    })
}

/// Adds the task to the `_meta` of a result.
///
/// # Errors
///
/// If the result, or its `_meta`, is not an object.
pub fn with_related_task(result: &RawJson, task_id: &str) -> Result<RawJson, serde_json::Error> {
    let mut all = members::read(result.as_str())?;
    let meta = members::take(&mut all, "_meta");
    let mut meta = meta.map_or_else(|| Ok(Vec::new()), |meta| members::read(meta.get()))?;
    drop(members::take(&mut meta, RELATED_TASK));
    let related = members::value(related_task(task_id))?;
    meta.extend(members::read(related.get())?);
    all.push(("_meta".to_owned(), members::value(members::write(&meta))?));
    Ok(members::write(&all))
}
