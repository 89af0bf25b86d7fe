//! How many handlers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts as one for as long as it is there.
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

/// Gives way until so many run.
pub(crate) async fn until(count: &AtomicUsize, wanted: usize) {
    while count.load(Ordering::SeqCst) != wanted {
        tokio::task::yield_now().await;
    }
}
