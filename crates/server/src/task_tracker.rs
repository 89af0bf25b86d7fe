//! Legs that go on without their client.

use std::future::Future;

use tokio::sync::watch;

/// Counts them.
#[derive(Debug, Clone)]
pub(crate) struct TaskTracker(watch::Sender<usize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct TrackedTask(watch::Sender<usize>);

impl TaskTracker {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(crate) fn track(&self) -> TrackedTask {
        self.0.send_modify(|count| *count += 1);
        TrackedTask(self.0.clone())
    }

    /// Waits until there is none.
    pub(crate) fn wait_idle(&self) -> impl Future<Output = ()> + use<> {
        let mut count = self.0.subscribe();
        // The sender is in the receiver's own server; if that is gone, so is what it counted.
        async move { drop(count.wait_for(|count| *count == 0).await) }
    }
}

impl Drop for TrackedTask {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
