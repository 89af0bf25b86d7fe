//! A counter of runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts how often something ran. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    /// Adds one and returns the new count.
    pub(crate) fn increment(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
