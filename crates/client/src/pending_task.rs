//! The task that a call has become, as part of a paused call.

use std::time::Duration;

use mrtr_schema::peer_text::quote;
use mrtr_schema::tasks::Task;
use serde::{Deserialize, Serialize};

use crate::error::CallError;

/// Maximum number of bytes of a task id. It is sent in a header, and servers limit these to 8 KiB
/// and more.
const MAX_ID: usize = 4096;

/// The shortest and the longest delay between polls, whatever the server suggests.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_hours(1);

/// The delay before the first poll if the server suggests none. It doubles with each poll.
const DEFAULT_DELAY: Duration = Duration::from_millis(500);
const MAX_DOUBLINGS: u32 = 5;

/// A task, and what the client has to know about it. Its serialized form is part of format version
/// 2 of a pending call, and does not change.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PendingTask {
    #[serde(rename = "taskId")]
    pub(crate) id: String,
    /// The keys of the input requests that were answered. Each refers to one request for the
    /// lifetime of the task.
    pub(crate) answered_keys: Vec<String>,
    pub(crate) poll_interval_ms: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    /// The sum of the delays between polls so far: a lower bound of the task's age.
    pub(crate) waited_ms: u64,
    /// Polls in a row that returned only input requests that were answered.
    pub(crate) stuck_polls: u32,
    /// Read from its serialized form, so the server has not been asked for some time.
    #[serde(skip, default = "yes")]
    pub(crate) is_restored: bool,
    /// The task as the server described it last. `None` after deserialization.
    #[serde(skip)]
    pub(crate) described: Option<Box<Task>>,
}

fn yes() -> bool {
    true
}

impl PendingTask {
    pub(crate) fn new(task: &Task) -> Result<Self, CallError> {
        let pending = Self {
            id: task.task_id.clone(),
            answered_keys: Vec::new(),
            poll_interval_ms: task.poll_interval_ms,
            ttl_ms: task.ttl_ms,
            waited_ms: 0,
            stuck_polls: 0,
            is_restored: false,
            described: Some(Box::new(task.clone())),
        };
        pending.validate().map_err(CallError::protocol)?;
        Ok(pending)
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.id.len() <= MAX_ID {
            return Ok(());
        }
        let (id, length) = (quote(&self.id), self.id.len());
        Err(format!("the task id {id} has {length} bytes, more than {MAX_ID}"))
    }

    /// Returns the delay before the next poll. `polls` counts those since the task has last
    /// changed.
    pub(crate) fn delay(&self, polls: u32) -> Duration {
        if self.is_restored {
            return MIN_DELAY;
        }
        let default = || DEFAULT_DELAY * (1 << polls.saturating_sub(1).min(MAX_DOUBLINGS));
        self.poll_interval_ms
            .map_or_else(default, Duration::from_millis)
            .clamp(MIN_DELAY, MAX_DELAY)
    }

    /// Subtracts from the age the part of a planned delay that is not waited for, because the call
    /// was stored meanwhile. `polls` is that of [`delay`](Self::delay).
    pub(crate) fn resume(&mut self, polls: u32) {
        if std::mem::take(&mut self.is_restored) {
            let left = self.delay(polls).saturating_sub(MIN_DELAY).as_millis();
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            self.waited_ms = self.waited_ms.saturating_sub(left);
        }
    }

    pub(crate) fn is_answered(&self, key: &str) -> bool {
        self.answered_keys.iter().any(|answered| answered == key)
    }
}
