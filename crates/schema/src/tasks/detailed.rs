//! Tasks with the members of their status.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::task::{Task, TaskStatus, lifetime};
use crate::input::InputRequests;
use crate::jsonrpc::ErrorObject;
use crate::result::ResultType;
use crate::{Object, json};

/// The status of a task, with what only this status has.
#[derive(Debug, Clone)]
pub enum TaskState {
    /// The server is processing the request.
    Working,
    /// The server needs responses to these requests: all that are outstanding. Each key refers to
    /// one request for the lifetime of the task.
    InputRequired(InputRequests),
    /// The result that the request itself would have had, as JSON text; it is an object.
    Completed(Box<RawValue>),
    /// The error that the request itself would have had.
    Failed(ErrorObject),
    /// The request was cancelled before it completed.
    Cancelled,
}

impl TaskState {
    /// Returns the status.
    pub fn status(&self) -> TaskStatus {
        match self {
            Self::Working => TaskStatus::Working,
            Self::InputRequired(_) => TaskStatus::InputRequired,
            Self::Completed(_) => TaskStatus::Completed,
            Self::Failed(_) => TaskStatus::Failed,
            Self::Cancelled => TaskStatus::Cancelled,
        }
    }
}

/// A task as `tasks/get` and `notifications/tasks` return it. In JSON, its metadata and the members
/// of its status are in one object, and `status` determines the members.
///
/// # Example
///
/// ```
/// use mrtr_schema::tasks::{DetailedTask, Task, TaskState, TaskStatus};
/// use serde_json::value::RawValue;
///
/// let task = Task::new("kT9w", TaskStatus::Working, "2026-11-24T10:30:00Z");
/// let result = RawValue::from_string(r#"{"content":[]}"#.to_owned())?;
/// let task = DetailedTask::new(task, TaskState::Completed(result));
/// assert_eq!(task.task().status, TaskStatus::Completed);
///
/// let json = serde_json::to_string(&task)?;
/// assert!(json.contains(r#""status":"completed""#));
/// assert!(json.ends_with(r#""result":{"content":[]}}"#));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DetailedTask {
    task: Task,
    state: TaskState,
}

impl DetailedTask {
    /// Creates a task from its metadata and its state. The status is that of the state.
    pub fn new(mut task: Task, state: TaskState) -> Self {
        task.status = state.status();
        Self { task, state }
    }

    /// Returns the metadata.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Returns the state.
    pub fn state(&self) -> &TaskState {
        &self.state
    }

    /// Returns the metadata and the state.
    pub fn into_parts(self) -> (Task, TaskState) {
        (self.task, self.state)
    }

    /// Writes the members of the task into an object.
    pub(super) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.task.write(map)?;
        match &self.state {
            TaskState::InputRequired(requests) => map.serialize_entry("inputRequests", requests),
            TaskState::Completed(result) => map.serialize_entry("result", result),
            TaskState::Failed(error) => map.serialize_entry("error", error),
            TaskState::Working | TaskState::Cancelled => Ok(()),
        }
    }
}

impl Serialize for DetailedTask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write(&mut map)?;
        map.end()
    }
}

/// Deserializes from `serde_json` only, and not through a buffering layer, as
/// [`InputRequest`](crate::input::InputRequest) does.
impl<'de> Deserialize<'de> for DetailedTask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Wire::deserialize(deserializer)?.detailed().map_err(D::Error::custom)
    }
}

/// Parameters of [`name::TASK`](crate::subscription::name::TASK): the task as `tasks/get` would
/// return it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskNotification {
    /// The task.
    pub task: DetailedTask,
    /// Metadata, with [`SUBSCRIPTION_ID`](crate::subscription::SUBSCRIPTION_ID).
    pub meta: Object,
}

impl TaskNotification {
    /// Creates the parameters from a task and metadata.
    pub fn new(task: DetailedTask, meta: Object) -> Self {
        Self { task, meta }
    }
}

impl Serialize for TaskNotification {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.task.write(&mut map)?;
        map.serialize_entry("_meta", &self.meta)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for TaskNotification {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut wire = Wire::deserialize(deserializer)?;
        let meta = wire.meta.take().unwrap_or_default();
        Ok(Self { task: wire.detailed().map_err(D::Error::custom)?, meta })
    }
}

/// All members that an object with a task can have. Those of a status stay raw until the status
/// says which of them count.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wire {
    #[serde(default)]
    pub(super) result_type: ResultType,
    task_id: String,
    status: TaskStatus,
    #[serde(default)]
    status_message: Option<String>,
    created_at: String,
    last_updated_at: String,
    #[serde(deserialize_with = "lifetime")]
    ttl_ms: Option<u64>,
    #[serde(default, deserialize_with = "lifetime")]
    poll_interval_ms: Option<u64>,
    #[serde(default)]
    input_requests: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
    #[serde(rename = "_meta", default)]
    pub(super) meta: Option<Object>,
}

impl Wire {
    pub(super) fn task(self) -> Task {
        self.split().0
    }

    /// Returns the task with the members of its status.
    pub(super) fn detailed(self) -> Result<DetailedTask, String> {
        let (task, [input_requests, result, error]) = self.split();
        let state = match task.status {
            TaskStatus::Working => TaskState::Working,
            TaskStatus::Cancelled => TaskState::Cancelled,
            TaskStatus::InputRequired => {
                TaskState::InputRequired(member("inputRequests", task.status, input_requests)?)
            }
            TaskStatus::Failed => TaskState::Failed(member("error", task.status, error)?),
            TaskStatus::Completed => {
                let result: Box<RawValue> = member("result", task.status, result)?;
                if !result.get().starts_with('{') {
                    return Err("`result`: expected an object".to_owned());
                }
                TaskState::Completed(result)
            }
        };
        Ok(DetailedTask { task, state })
    }

    /// Returns the metadata; and `inputRequests`, `result` and `error`, as far as they are present.
    fn split(self) -> (Task, [Option<Box<RawValue>>; 3]) {
        let task = Task {
            task_id: self.task_id,
            status: self.status,
            status_message: self.status_message,
            created_at: self.created_at,
            last_updated_at: self.last_updated_at,
            ttl_ms: self.ttl_ms,
            poll_interval_ms: self.poll_interval_ms,
        };
        (task, [self.input_requests, self.result, self.error])
    }
}

fn member<T: DeserializeOwned>(
    name: &str,
    status: TaskStatus,
    text: Option<Box<RawValue>>,
) -> Result<T, String> {
    let status = status.as_str();
    let text = text.ok_or_else(|| format!("the status {status:?} requires `{name}`"))?;
    json::from_str(text.get()).map_err(|e| format!("`{name}`: {e}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn task(status: &str, more: &Value) -> Value {
        let mut task = json!({ "taskId": "t1", "status": status, "statusMessage": "m",
            "createdAt": "2026-11-24T10:30:00Z", "lastUpdatedAt": "2026-11-24T10:31:00Z",
            "ttlMs": null, "pollIntervalMs": 5000 });
        for (key, value) in more.as_object().unwrap() {
            task[key] = value.clone();
        }
        task
    }

    #[test]
    fn status_picks_the_members_of_a_task() {
        let form = json!({ "mode": "form", "message": "?",
            "requestedSchema": { "type": "object", "properties": {} } });
        for (status, more) in [
            ("working", json!({})),
            ("working", json!({ "ttlMs": 1 })),
            ("cancelled", json!({})),
            ("completed", json!({ "result": { "content": [], "isError": true, "x": [1.50] } })),
            ("failed", json!({ "error": { "code": -32603, "message": "no", "data": 1 } })),
            (
                "input_required",
                json!({ "inputRequests": { "b": { "method": "elicitation/create", "params": form } } }),
            ),
        ] {
            let value = task(status, &more);
            let read: DetailedTask = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(read.task().status.as_str(), status);
            assert_eq!(read.task().status, read.state().status());
            assert_eq!(serde_json::to_value(&read).unwrap(), value);

            let mut value = value;
            value["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": 12 });
            let read: TaskNotification = serde_json::from_value(value.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), value);
        }
    }

    #[test]
    fn task_without_a_member_of_its_status_is_rejected() {
        for (status, more, why) in [
            ("completed", json!({}), "the status \"completed\" requires `result`"),
            ("completed", json!({ "result": [1] }), "`result`: expected an object"),
            ("failed", json!({ "result": {} }), "the status \"failed\" requires `error`"),
            ("failed", json!({ "error": { "code": 1 } }), "`error`: missing field `message`"),
            ("input_required", json!({}), "the status \"input_required\" requires `inputRequests`"),
            ("input_required", json!({ "inputRequests": { "a": 5 } }), "`inputRequests`: a:"),
            ("done", json!({}), "unknown variant `done`"),
            ("working", json!({ "taskId": 5 }), "invalid type: integer `5`"),
            ("working", json!({ "ttlMs": "1" }), "invalid type: string \"1\""),
        ] {
            let text = task(status, &more).to_string();
            let error = serde_json::from_str::<DetailedTask>(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        let mut value = task("working", &json!({}));
        value.as_object_mut().unwrap().shift_remove("ttlMs");
        let error = serde_json::from_value::<DetailedTask>(value).unwrap_err().to_string();
        assert!(error.contains("missing field `ttlMs`"), "{error}");
        // Members of another status do not count, whatever they are.
        let value = task("working", &json!({ "inputRequests": 5, "result": 6, "ttlMs": -1 }));
        let read: DetailedTask = serde_json::from_value(value).unwrap();
        assert_eq!(read.task().ttl_ms, Some(0));
    }

    #[test]
    fn result_of_a_task_is_written_byte_for_byte() {
        let text = r#"{"content":[ ],"n":1.0,"s":"\u00e9"}"#;
        let state = TaskState::Completed(RawValue::from_string(text.to_owned()).unwrap());
        let task = Task::new("t", TaskStatus::Working, "2026-11-24T10:30:00Z");
        let json = serde_json::to_string(&DetailedTask::new(task, state)).unwrap();
        assert!(json.ends_with(&format!(r#""ttlMs":null,"result":{text}}}"#)), "{json}");
        let read: DetailedTask = serde_json::from_str(&json).unwrap();
        assert!(matches!(read.state(), TaskState::Completed(result) if result.get() == text));
    }
}
