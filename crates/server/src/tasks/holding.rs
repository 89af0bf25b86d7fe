//! The lease of a run, as its replica sees it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The lease of a run, as its replica sees it.
pub(crate) struct Holding {
    /// The time at which the run stops, unless the lease is renewed.
    until: Mutex<Instant>,
    /// The position of the first entry of the write in progress.
    writing_from: Mutex<Option<usize>>,
    /// The last progress that was written.
    message: Mutex<Option<String>>,
    /// The number of entries in the last view that was written.
    entries: Mutex<u64>,
}

impl Holding {
    /// Creates the state of a lease that was asked for at `since`.
    pub(crate) fn new(since: Instant, usable: Duration) -> Self {
        let until = Mutex::new(since + usable);
        Self {
            until,
            writing_from: Mutex::default(),
            message: Mutex::default(),
            entries: Mutex::default(),
        }
    }

    /// Returns the number of entries in the last view.
    pub(super) fn entries(&self) -> u64 {
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_entries(&self, entries: u64) {
        *self.entries.lock().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    pub(super) fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn renew(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    pub(super) fn set_writing_from(&self, position: Option<usize>) {
        *self.writing_from.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }

    /// Records the progress that is being written, if there is any.
    pub(super) fn set_message(&self, message: Option<String>) {
        if message.is_some() {
            *self.message.lock().unwrap_or_else(PoisonError::into_inner) = message;
        }
    }

    pub(super) fn take_message(&self) -> Option<String> {
        self.message.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn writing_from(&self) -> Option<usize> {
        *self.writing_from.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a run stops before its handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The lease was lost. Another replica runs the task.
    Lost,
    /// The client has cancelled the task.
    Cancelled,
    /// The server shuts down.
    Released,
}
