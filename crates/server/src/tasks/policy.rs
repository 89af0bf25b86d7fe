//! When a call becomes a task, and how long the task is kept.

use std::time::Duration;

/// When the calls of a tool become [tasks](crate::tasks), and how long these are kept.
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_server::tasks::TaskPolicy;
/// use mrtr_server::{Context, Tool};
///
/// async fn build(_: Context) -> String {
///     "built".to_owned()
/// }
///
/// // Most builds take less than 5 s, and never touch the store.
/// let policy = TaskPolicy::after(Duration::from_secs(5)).ttl(Duration::from_hours(24));
/// let tool = Tool::new("build", "Builds the project", build).task(policy);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "give it to `Tool::task`"]
pub struct TaskPolicy {
    pub(crate) start: TaskStart,
    pub(crate) required: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) retention: Duration,
    pub(crate) poll_interval: Duration,
}

/// The time at which a call becomes a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskStart {
    /// Before the handler runs.
    Immediately,
    /// When the handler has run for this time.
    After(Duration),
    /// When the handler calls `detach`.
    OnDetach,
}

impl TaskPolicy {
    /// The call becomes a task before the handler runs.
    pub fn immediately() -> Self {
        Self::new(TaskStart::Immediately)
    }

    /// The call becomes a task if the handler has not returned after `time`, or when it calls
    /// [`Context::detach`](crate::Context::detach). The handler and its steps continue without
    /// interruption.
    ///
    /// A call that returns or asks earlier does not touch the store.
    pub fn after(time: Duration) -> Self {
        Self::new(TaskStart::After(time))
    }

    /// The call becomes a task when its handler calls
    /// [`Context::detach`](crate::Context::detach).
    pub fn on_detach() -> Self {
        Self::new(TaskStart::OnDetach)
    }

    fn new(start: TaskStart) -> Self {
        Self {
            start,
            required: false,
            ttl: Some(Duration::from_hours(24)),
            retention: Duration::from_hours(1),
            poll_interval: Duration::from_secs(1),
        }
    }

    /// Refuses clients that do not declare the extension, with -32021 (missing client capability).
    /// Default: for them, the call is not a task.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Sets the time from its creation after which a task is deleted, even if it has not ended.
    /// Default: 24 h. Counted in milliseconds; less than 1 s is a build error.
    pub fn ttl(mut self, time: Duration) -> Self {
        self.ttl = Some(time);
        self
    }

    /// Keeps tasks until the store is cleared by hand: there is no time after which they are
    /// deleted.
    pub fn unlimited(mut self) -> Self {
        self.ttl = None;
        self
    }

    /// Sets the minimum time for which a task is kept after its end. Default: 1 h.
    pub fn retention(mut self, time: Duration) -> Self {
        self.retention = time;
        self
    }

    /// Sets the interval at which clients are asked to poll. Default: 1 s.
    pub fn poll_interval(mut self, time: Duration) -> Self {
        self.poll_interval = time;
        self
    }
}
