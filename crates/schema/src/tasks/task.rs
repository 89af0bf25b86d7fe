//! The members that all shapes of a task share.

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::result::ttl_ms;
use crate::setters::setters;

/// The status of a task.
///
/// A task begins as [`Working`](Self::Working), as a rule, and changes between that and
/// [`InputRequired`](Self::InputRequired) until it reaches a terminal status, which is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// The server is processing the request.
    Working,
    /// The server needs input from the client.
    InputRequired,
    /// The request has a result, which may be the result of a failed tool (`isError`). Terminal.
    Completed,
    /// The request ended with a JSON-RPC error. Terminal.
    Failed,
    /// The request was cancelled before it completed. Terminal.
    Cancelled,
}

impl TaskStatus {
    /// Returns true if the task has ended: its status does not change any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the status as it is written in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The metadata of a task.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Task {
    /// The identifier, which the server generates. It may be all that a caller needs to read the
    /// task, so it must not be guessable.
    pub task_id: String,
    /// The status.
    pub status: TaskStatus,
    /// A description of the current state, for the user or the model.
    #[serde(default)]
    pub status_message: Option<String>,
    /// The time of creation (ISO 8601).
    pub created_at: String,
    /// The time of the last change (ISO 8601).
    pub last_updated_at: String,
    /// The time in milliseconds after `created_at` for which the server retains the task. `None`,
    /// which is `null` in JSON, means that it is not limited. It can change while the task exists.
    ///
    /// Not a caching hint: a task must not be cached.
    #[serde(deserialize_with = "lifetime")]
    pub ttl_ms: Option<u64>,
    /// The time in milliseconds that the client should wait between polls. It can change while the
    /// task exists.
    #[serde(default, deserialize_with = "lifetime")]
    pub poll_interval_ms: Option<u64>,
}

setters!(Task {
    with_status_message(status_message: String),
    with_ttl_ms(ttl_ms: u64),
    with_poll_interval_ms(poll_interval_ms: u64),
});

impl Task {
    /// Creates the metadata of a task with unlimited lifetime. `created_at` is an ISO 8601 time,
    /// and also that of the last change.
    pub fn new(
        task_id: impl Into<String>,
        status: TaskStatus,
        created_at: impl Into<String>,
    ) -> Self {
        let created_at = created_at.into();
        Self {
            task_id: task_id.into(),
            status,
            status_message: None,
            last_updated_at: created_at.clone(),
            created_at,
            ttl_ms: None,
            poll_interval_ms: None,
        }
    }

    /// Sets [`last_updated_at`](Self::last_updated_at).
    pub fn with_last_updated_at(mut self, last_updated_at: impl Into<String>) -> Self {
        self.last_updated_at = last_updated_at.into();
        self
    }

    /// Writes the members of the task into an object.
    pub(super) fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("taskId", &self.task_id)?;
        map.serialize_entry("status", &self.status)?;
        if let Some(message) = &self.status_message {
            map.serialize_entry("statusMessage", message)?;
        }
        map.serialize_entry("createdAt", &self.created_at)?;
        map.serialize_entry("lastUpdatedAt", &self.last_updated_at)?;
        map.serialize_entry("ttlMs", &self.ttl_ms)?;
        if let Some(interval) = self.poll_interval_ms {
            map.serialize_entry("pollIntervalMs", &interval)?;
        }
        Ok(())
    }
}

impl Serialize for Task {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.write(&mut map)?;
        map.end()
    }
}

/// Deserializes milliseconds or `null`. As with other `ttlMs`, a negative number is 0.
pub(super) fn lifetime<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    struct Milliseconds(#[serde(deserialize_with = "ttl_ms")] u64);
    Ok(Option::<Milliseconds>::deserialize(deserializer)?.map(|Milliseconds(ms)| ms))
}
