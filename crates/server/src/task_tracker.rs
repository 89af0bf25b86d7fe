//! Tracking of detached tasks, which run to completion without their client.

use std::future::Future;

use tokio::sync::watch;

/// Counts the detached tasks of a server.
#[derive(Debug, Clone)]
pub(crate) struct TaskTracker(watch::Sender<usize>);

/// Counts one task until it is dropped.
#[derive(Debug)]
pub(crate) struct TrackedTask(watch::Sender<usize>);

impl TaskTracker {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Starts to count a task.
    pub(crate) fn track(&self) -> TrackedTask {
        self.0.send_modify(|count| *count += 1);
        TrackedTask(self.0.clone())
    }

    /// Waits until no task is tracked.
    pub(crate) fn wait_idle(&self) -> impl Future<Output = ()> + use<> {
        let mut count = self.0.subscribe();
        // An error means that all senders were dropped, so no task is tracked: each holds one.
        async move { drop(count.wait_for(|count| *count == 0).await) }
    }
}

impl Drop for TrackedTask {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
