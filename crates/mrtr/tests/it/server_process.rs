//! A counter of running handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Increments a counter until it is dropped.
pub(crate) struct Running(Arc<AtomicUsize>);

impl Running {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Yields until the counter has the wanted value.
pub(crate) async fn until(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::SeqCst) != wanted {
        tokio::task::yield_now().await;
    }
}
