//! Legs that go on without their client.

use std::future::Future;

use tokio::sync::watch;

/// Counts them.
#[derive(Debug, Clone)]
pub(crate) struct Running(watch::Sender<usize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct One(watch::Sender<usize>);

impl Running {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    pub(crate) fn one(&self) -> One {
        self.0.send_modify(|count| *count += 1);
        One(self.0.clone())
    }

    /// Waits until there is none.
    pub(crate) fn none(&self) -> impl Future<Output = ()> + use<> {
        let mut count = self.0.subscribe();
        // The sender is in the receiver's own server; if that is gone, so is what it counted.
        async move { drop(count.wait_for(|count| *count == 0).await) }
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
