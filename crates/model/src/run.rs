//! One run of the task on a replica: what it knows, and what it does next.

use std::time::Duration;

use mrtr_server::tasks::{HeldTask, LeaseId, RunEnd, StoredStatus, TaskWrite};

use crate::scale::{Part, Scale};
use crate::store::{KEY, LEASE};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) number: u8,
    pub(crate) lease: LeaseId,
    /// The time at which the lease ends by the replica's own clock.
    pub(crate) until: u64,
    pub(crate) journal: Vec<Vec<u8>>,
    /// The number of entries that are committed.
    saved: usize,
    /// The answers of this epoch and of earlier ones: idempotency keys depend on them.
    pub(crate) known: Vec<(String, Vec<u8>)>,
    /// The number of the last write. Every attempt has a number of its own.
    pub(crate) writes: u8,
    /// The entry of the step in flight.
    pub(crate) step: Option<Vec<u8>>,
    pub(crate) is_stopping: bool,
    /// True if the replica was suspended, and has not looked at its clock yet.
    pub(crate) is_zombie: bool,
    /// The steps that were recorded before the claim, as bits.
    pub(crate) could_see: u8,
    /// True if a reply has come since the cancellation.
    pub(crate) was_told: bool,
}

/// What the handler does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Step(u8),
    Ask(Vec<u8>),
    Return,
}

/// A write of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    /// Commits the step in flight, or answers that were taken in.
    Commit,
    Renew,
    /// The handler waits for answers, or has returned.
    Finish,
    /// The task is to be cancelled.
    Stop,
    /// The replica shuts down.
    Release,
}

impl Run {
    pub(crate) fn first(lease: LeaseId, until: u64) -> Self {
        Self {
            number: 0,
            lease,
            until,
            journal: Vec::new(),
            saved: 0,
            known: Vec::new(),
            writes: 0,
            step: None,
            is_stopping: false,
            is_zombie: false,
            could_see: 0,
            was_told: false,
        }
    }

    /// Continues the task from its journal, with the new answers of the epoch.
    pub(crate) fn resume(number: u8, lease: LeaseId, until: u64, held: HeldTask) -> Self {
        let saved = held.entries.len();
        let mut run = Self { number, saved, journal: held.entries, ..Self::first(lease, until) };
        for answer in held.answers {
            let entry = [b"a", answer.question.as_bytes()].concat();
            if !run.journal.iter().any(|recorded| recorded.starts_with(&entry)) {
                run.journal.push([&entry[..], &answer.answer].concat());
            }
            run.known.push((answer.question, answer.answer));
        }
        run.known.sort();
        run
    }

    pub(crate) fn next(&self, scale: &Scale) -> Next {
        let has = |kind: u8, number: u8| {
            self.journal.iter().any(|entry| entry.starts_with(&[kind, number]))
        };
        for part in scale.handler() {
            match part {
                Part::Step(step) if !has(b's', step) => return Next::Step(step),
                Part::Ask => {
                    let open: Vec<u8> = (0..scale.questions)
                        .filter(|question| !has(b'a', b'0' + question))
                        .collect();
                    if !open.is_empty() {
                        return Next::Ask(open);
                    }
                }
                Part::Step(_) => {}
            }
        }
        Next::Return
    }

    pub(crate) fn has_unsaved(&self) -> bool {
        self.saved < self.journal.len()
    }

    /// Returns a write. The same state gives the same write, so that it can be repeated.
    pub(crate) fn write(&self, write: Write, scale: &Scale) -> TaskWrite {
        let mut out = TaskWrite::new(KEY, self.lease);
        match write {
            Write::Commit => {}
            Write::Renew => {
                out.renew = Some(Duration::from_millis(LEASE));
                return out;
            }
            Write::Finish => match self.next(scale) {
                Next::Ask(open) => (out.end, out.view) = (Some(RunEnd::Waits), Some(open)),
                Next::Return | Next::Step(_) => {
                    out.end = Some(RunEnd::Ended(StoredStatus::Completed));
                    out.view = Some(self.journal.concat());
                }
            },
            Write::Stop => {
                out.end = Some(RunEnd::Ended(StoredStatus::Cancelled));
                out.view = Some(Vec::new());
                return out;
            }
            Write::Release => {
                out.end = Some(RunEnd::Released(Duration::ZERO));
                return out;
            }
        }
        out.entries = self.journal.iter().skip(self.saved).chain(&self.step).cloned().collect();
        out.position = (!out.entries.is_empty()).then_some(self.saved);
        out
    }

    /// Notes that entries were committed.
    pub(crate) fn committed(&mut self) {
        self.journal.extend(self.step.take());
        self.saved = self.journal.len();
    }
}
