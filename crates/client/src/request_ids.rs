//! Ids of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mrtr_schema::jsonrpc::RequestId;

/// A source of request ids, starting at 1. Clones share the sequence.
#[derive(Debug, Clone, Default)]
pub struct RequestIds(Arc<AtomicI64>);

impl RequestIds {
    pub(crate) fn next(&self) -> RequestId {
        // Relaxed: ids only have to be unique, and order no other memory.
        RequestId::Number(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the last number that was used, or 0.
    pub(crate) fn last(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Uses only greater numbers from now on, as far as JSON is exact everywhere.
    pub(crate) fn continue_after(&self, last: i64) {
        const MAX: i64 = 1 << 52;
        self.0.fetch_max(last.min(MAX), Ordering::Relaxed);
    }
}
