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
}
