//! The results and parameters of the extension's methods.

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::RESULT_TYPE;
use super::detailed::{DetailedTask, Wire};
use super::task::Task;
use crate::Object;
use crate::input::InputResponses;
use crate::jsonrpc::{ErrorObject, Request};
use crate::meta::RequestMeta;
use crate::peer_text::quote;
use crate::result::ResultType;

/// A result that creates a task instead of completing the request. Only `tools/call` can have it,
/// and only if the client declared the extension in this request.
///
/// # Example
///
/// ```
/// use mrtr_schema::tasks::{CreateTaskResult, Task, TaskStatus};
///
/// let task = Task::new("kT9w", TaskStatus::Working, "2026-11-24T10:30:00Z")
///     .with_poll_interval_ms(5_000u64);
/// let json = serde_json::to_value(CreateTaskResult::new(task))?;
/// assert_eq!(json["resultType"], "task");
/// assert_eq!(json["taskId"], "kT9w");
/// assert!(json["ttlMs"].is_null());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CreateTaskResult {
    /// The task as it is at first.
    pub task: Task,
    /// Metadata.
    pub meta: Option<Object>,
}

impl CreateTaskResult {
    /// Creates a result.
    pub fn new(task: Task) -> Self {
        Self { task, meta: None }
    }

    /// Sets [`meta`](Self::meta).
    pub fn with_meta(mut self, meta: Object) -> Self {
        self.meta = Some(meta);
        self
    }
}

impl Serialize for CreateTaskResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("resultType", RESULT_TYPE)?;
        self.task.write(&mut map)?;
        if let Some(meta) = &self.meta {
            map.serialize_entry("_meta", meta)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for CreateTaskResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut wire = Wire::deserialize(deserializer)?;
        match &wire.result_type {
            ResultType::Other(other) if other == RESULT_TYPE => {
                let meta = wire.meta.take();
                Ok(Self { task: wire.task(), meta })
            }
            other => Err(unexpected(other, RESULT_TYPE)),
        }
    }
}

/// Result of `tasks/get`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GetTaskResult {
    /// The task.
    pub task: DetailedTask,
    /// Metadata.
    pub meta: Option<Object>,
}

impl GetTaskResult {
    /// Creates a result.
    pub fn new(task: DetailedTask) -> Self {
        Self { task, meta: None }
    }

    /// Sets [`meta`](Self::meta).
    pub fn with_meta(mut self, meta: Object) -> Self {
        self.meta = Some(meta);
        self
    }
}

impl Serialize for GetTaskResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("resultType", &ResultType::Complete)?;
        self.task.write(&mut map)?;
        if let Some(meta) = &self.meta {
            map.serialize_entry("_meta", meta)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for GetTaskResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut wire = Wire::deserialize(deserializer)?;
        match &wire.result_type {
            ResultType::Complete => {
                let meta = wire.meta.take();
                Ok(Self { task: wire.detailed().map_err(D::Error::custom)?, meta })
            }
            other => Err(unexpected(other, "complete")),
        }
    }
}

fn unexpected<E: serde::de::Error>(result_type: &ResultType, expected: &str) -> E {
    E::custom(format_args!(
        "the resultType is {}, expected {expected:?}",
        quote(result_type.as_str())
    ))
}

/// Defines the parameters of a method that has only a task id.
macro_rules! task_id_params {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[non_exhaustive]
        pub struct $type {
            /// The identifier of the task.
            pub task_id: String,
            /// The request's `_meta`.
            #[serde(rename = "_meta", default)]
            pub meta: RequestMeta,
        }

        impl $type {
            /// Creates parameters.
            pub fn new(task_id: impl Into<String>) -> Self {
                Self { task_id: task_id.into(), meta: RequestMeta::default() }
            }

            /// Decodes the parameters of a request.
            ///
            /// # Errors
            ///
            /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending
            /// field.
            pub fn from_request(request: &Request) -> Result<Self, ErrorObject> {
                request.decode_params()
            }
        }
    };
}

task_id_params!(
    /// Parameters of `tasks/get`.
    GetTaskParams
);
task_id_params!(
    /// Parameters of `tasks/cancel`.
    CancelTaskParams
);

/// Parameters of `tasks/update`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UpdateTaskParams {
    /// The identifier of the task.
    pub task_id: String,
    /// Responses to outstanding input requests: all of them or some. The server ignores those under
    /// other keys.
    pub input_responses: InputResponses,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

impl UpdateTaskParams {
    /// Creates parameters.
    pub fn new(task_id: impl Into<String>, input_responses: InputResponses) -> Self {
        Self { task_id: task_id.into(), input_responses, meta: RequestMeta::default() }
    }

    /// Decodes the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn from_request(request: &Request) -> Result<Self, ErrorObject> {
        request.decode_params()
    }
}

/// Defines an empty acknowledgement.
macro_rules! acknowledgement {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        #[non_exhaustive]
        pub struct $type {
            /// Always complete.
            #[serde(default)]
            pub result_type: ResultType,
            /// Metadata.
            #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
            pub meta: Option<Object>,
        }

        impl $type {
            /// Creates an acknowledgement.
            pub fn new() -> Self {
                Self::default()
            }
        }
    };
}

acknowledgement!(
    /// Result of `tasks/update`: the server accepted the responses. The task's status may reflect
    /// them later.
    UpdateTaskResult
);
acknowledgement!(
    /// Result of `tasks/cancel`: the server knows that the client wants the task cancelled. The
    /// task may nevertheless complete.
    CancelTaskResult
);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::jsonrpc::Message;

    fn task() -> Value {
        json!({ "taskId": "t", "status": "working", "createdAt": "2026-11-24T10:30:00Z",
            "lastUpdatedAt": "2026-11-24T10:30:00Z", "ttlMs": 3_600_000 })
    }

    fn with(result_type: &str) -> Value {
        let mut task = task();
        task["resultType"] = json!(result_type);
        task
    }

    #[test]
    fn result_type_task_is_that_of_a_created_task_and_of_no_other_result() {
        let create = serde_json::from_value::<CreateTaskResult>;
        let get = serde_json::from_value::<GetTaskResult>;
        assert_eq!(serde_json::to_value(create(with("task")).unwrap()).unwrap(), with("task"));
        assert_eq!(serde_json::to_value(get(with("complete")).unwrap()).unwrap(), with("complete"));
        for (error, why) in [
            (
                create(with("complete")).unwrap_err(),
                "the resultType is \"complete\", expected \"task\"",
            ),
            (create(task()).unwrap_err(), "expected \"task\""),
            (get(with("task")).unwrap_err(), "the resultType is \"task\", expected \"complete\""),
        ] {
            assert!(error.to_string().contains(why), "{error}");
        }
        // Servers of older revisions omit it.
        get(task()).unwrap();
    }

    #[test]
    fn responses_under_unknown_keys_are_decoded() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{"taskId":"t",
            "inputResponses":{"unknown-key":{"ignored":true}}}}"#;
        let Ok(Message::Request(request)) = Message::parse(text.as_bytes()) else { unreachable!() };
        let params = UpdateTaskParams::from_request(&request).unwrap();
        assert_eq!(params.input_responses.get("unknown-key").unwrap().get(), r#"{"ignored":true}"#);
        let error = GetTaskParams::from_request(&Request::new(request.id, "tasks/get", None));
        assert!(error.unwrap_err().message.contains("taskId"));
    }

    #[test]
    fn acknowledgements_are_empty() {
        let expected = json!({ "resultType": "complete" });
        assert_eq!(serde_json::to_value(UpdateTaskResult::new()).unwrap(), expected);
        assert_eq!(serde_json::to_value(CancelTaskResult::new()).unwrap(), expected);
    }
}
