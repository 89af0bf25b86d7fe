//! The progress of the answer to a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::stdio::writer::LineState;

/// The state of a request that is being answered. It is shared by the session, which may cancel the
/// request, the task that answers it, and the writer.
///
/// The transitions are `SeqCst`, which costs nothing beside a write to a pipe. Only a running
/// request changes its state, so that a cancellation never withdraws a response that is complete.
#[derive(Debug)]
pub(super) struct RequestState(AtomicU8);

impl RequestState {
    const RUNNING: u8 = 0;
    /// The response is queued, and the id may be used again.
    const ANSWERED: u8 = 1;
    /// The client has cancelled the request: no further line about it may be written.
    const CANCELLED: u8 = 2;

    pub(super) fn running() -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(Self::RUNNING)))
    }

    pub(super) fn is_running(&self) -> bool {
        self.is(Self::RUNNING)
    }

    /// Marks a running request as answered.
    pub(super) fn set_answered(&self) {
        self.leave_running(Self::ANSWERED);
    }

    /// Marks a running request as cancelled.
    pub(super) fn cancel(&self) {
        self.leave_running(Self::CANCELLED);
    }

    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::SeqCst) == state
    }

    fn leave_running(&self, to: u8) {
        let _ = self.0.compare_exchange(Self::RUNNING, to, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Lines about a cancelled request are withdrawn, even if they are in the queue already.
impl LineState for RequestState {
    fn begin_write(&self) -> bool {
        !self.is(Self::CANCELLED)
    }
}
