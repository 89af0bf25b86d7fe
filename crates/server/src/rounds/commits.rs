//! The commits of a journal to a store.

use std::task::Waker;

use super::journal::Entry;

/// The commits of a journal to a store. Changes of the journal are numbered.
#[derive(Default)]
pub(super) struct Commits {
    /// True if the task exists. Until then, no step begins, and no result counts.
    pub(super) is_created: bool,
    /// The last change that is committed.
    pub(super) committed: u64,
    /// The last change that is a decision.
    pub(super) last_decision: u64,
    /// The last reported progress, if it was not taken yet.
    pub(super) message: Option<String>,
    /// The wakers of steps that wait for a commit.
    pub(super) waiters: Vec<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Commits {
    /// Creates the commits of a journal whose changes so far are in the store.
    pub(super) fn new(changes: u64) -> Self {
        Self { is_created: true, committed: changes, ..Self::default() }
    }
}

/// Whether a call becomes a task when its handler asks for that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Detach {
    /// It stays a call of rounds.
    #[default]
    Never,
    /// It may become a task.
    Allowed,
    /// It is to become a task now.
    Requested,
}

/// Changes of a journal.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// The number of the last change.
    pub(crate) change: u64,
    /// The position of the first entry.
    pub(crate) position: usize,
    pub(crate) entries: Vec<Entry>,
    /// True if the journal has changed.
    pub(crate) is_journal_changed: bool,
    /// The progress that was reported last.
    pub(crate) message: Option<String>,
}
