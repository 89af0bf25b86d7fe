//! The state of a request on its way to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::TransportError;
use crate::stdio::writer::LineState;

/// The state of a request in the queue to the server. It is shared by the caller, which may give
/// up, and the writer.
///
/// The transitions are `SeqCst`, which costs nothing beside a write to a pipe. Each is a single
/// compare-and-swap, so that caller and writer always agree on whether the request was written.
#[derive(Debug)]
pub(super) struct SendState(AtomicU8);

impl SendState {
    pub(super) const QUEUED: u8 = 0;
    /// The server has read some of the request, or may be reading it now.
    pub(super) const WRITTEN: u8 = 1;
    /// The caller has given up.
    pub(super) const ABANDONED: u8 = 2;

    pub(super) fn new(state: u8) -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(state)))
    }

    pub(super) fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::SeqCst) == state
    }

    /// Moves from one state to another. Returns false if the state was not `from`.
    fn transition(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Returns the error of a request that fails for `reason`. A request that the server has not
    /// seen is taken out of the queue.
    pub(super) fn fail(&self, reason: impl Into<String>) -> TransportError {
        if self.transition(Self::QUEUED, Self::ABANDONED) {
            TransportError::not_sent(format!("{}; the request was not sent", reason.into()))
        } else {
            TransportError::interrupted(reason)
        }
    }

    /// Abandons the request. Returns true if it must be cancelled at the server.
    pub(super) fn abandon(&self) -> bool {
        self.0.swap(Self::ABANDONED, Ordering::SeqCst) == Self::WRITTEN
    }
}

impl LineState for SendState {
    fn begin_write(&self) -> bool {
        self.transition(Self::QUEUED, Self::WRITTEN);
        !self.is(Self::ABANDONED)
    }

    fn undo_write(&self) {
        self.transition(Self::WRITTEN, Self::QUEUED);
    }
}
