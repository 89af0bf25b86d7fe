//! How much an endpoint does at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::endpoint::Limits;

/// Counts requests and the bytes of their bodies.
#[derive(Debug, Clone)]
pub(super) struct Load {
    requests: Arc<Semaphore>,
    /// In units of [`UNIT`] bytes.
    bodies: Arc<Semaphore>,
}

/// What one request takes of an endpoint, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _request: OwnedSemaphorePermit,
    body: OwnedSemaphorePermit,
    bodies: Arc<Semaphore>,
    bytes: usize,
}

const UNIT: usize = 1024;

impl Load {
    pub(super) fn new(limits: &Limits) -> Self {
        let semaphore = |n: usize| Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS)));
        Self { requests: semaphore(limits.in_flight), bodies: semaphore(limits.bodies / UNIT) }
    }

    /// A share for a new request; `None` if there are too many.
    pub(super) fn share(&self) -> Option<Share> {
        let request = Arc::clone(&self.requests).try_acquire_owned().ok()?;
        let body = Arc::clone(&self.bodies).try_acquire_many_owned(0).ok()?;
        Some(Share { _request: request, body, bodies: Arc::clone(&self.bodies), bytes: 0 })
    }
}

impl Share {
    /// Takes room for more of the body; `false` if there is none.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let more = self.bytes.div_ceil(UNIT).saturating_sub(self.body.num_permits());
        let more = u32::try_from(more).ok();
        let more = more.and_then(|n| Arc::clone(&self.bodies).try_acquire_many_owned(n).ok());
        more.map(|permit| self.body.merge(permit)).is_some()
    }
}
