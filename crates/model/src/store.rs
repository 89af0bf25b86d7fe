//! The store: the real machine of one task, and the mistakes that a store could make.

use std::time::Duration;

use mrtr_server::tasks::row::TaskRow;
use mrtr_server::tasks::{
    HeldTask, Lease, LeaseId, NewTask, RunEnd, StoredAnswer, StoredStatus, TaskHandler, TaskKey,
    TaskWrite, UnixMillis, Verdict,
};

use crate::scale::Fault;

/// The time that a lease lasts. One tick of the clock is one millisecond.
pub(crate) const LEASE: u64 = 1;

pub(crate) const KEY: TaskKey = TaskKey([0; 32]);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) row: TaskRow,
    pub(crate) now: u64,
    /// The lease of the last write, and the number of its attempt. The row leaves it to the store
    /// that no attempt is performed after a later one.
    last_write: (LeaseId, u8),
    mistakes: Mistakes,
}

/// The state of mistakes. It does not change without a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Mistakes {
    posts: Vec<(String, Vec<u8>)>,
    is_deaf: bool,
    is_woken: bool,
    claims: u8,
    is_forgetful: bool,
}

pub(crate) fn question(number: u8) -> String {
    number.to_string()
}

/// The lease of the run with this number.
pub(crate) fn lease_of(run: u8) -> LeaseId {
    LeaseId([run; 16])
}

fn handler() -> TaskHandler {
    TaskHandler { tool: "tool".to_owned(), version: 0, min_version: 0 }
}

impl Store {
    /// Creates a task that run 0 holds.
    pub(crate) fn new() -> Self {
        let task = NewTask {
            key: KEY,
            service: "service".to_owned(),
            handler: handler(),
            ttl: None,
            retention: Duration::ZERO,
            call: Vec::new(),
            view: Vec::new(),
            entries: Vec::new(),
        };
        let row = TaskRow::create(task, lease(lease_of(0)), UnixMillis(0));
        Self { row, now: 0, last_write: (lease_of(0), 0), mistakes: Mistakes::default() }
    }

    fn time(&self) -> UnixMillis {
        UnixMillis(self.now)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.row.status == StoredStatus::Open
    }

    pub(crate) fn is_due(&self) -> bool {
        self.row.due().is_some_and(|due| due <= self.time())
    }

    /// Claims the task for a run. The lease is returned, too: some stores number them.
    pub(crate) fn claim(&mut self, run: u8, fault: Option<Fault>) -> Option<(LeaseId, HeldTask)> {
        if self.mistakes.is_deaf {
            return None;
        }
        let id = if fault == Some(Fault::NumberedLeases) {
            self.mistakes.claims += 1;
            lease_of(self.mistakes.claims)
        } else {
            lease_of(run)
        };
        let now = if self.mistakes.is_woken { UnixMillis(self.now + LEASE) } else { self.time() };
        let mut held = self.row.claim(KEY, &[handler()], lease(id), now)?;
        self.mistakes.is_woken = false;
        self.mistakes.is_forgetful = fault == Some(Fault::ClaimForgetsAnswers)
            && held.answers.len() < self.row.record().answered.len();
        for (question, answer) in &self.mistakes.posts {
            let taken_in = held.answers.iter_mut().find(|taken| taken.question == *question);
            match (fault, taken_in) {
                (Some(Fault::AnswersInMidEpoch), None) => {
                    held.answers.push(StoredAnswer {
                        question: question.clone(),
                        epoch: held.epoch,
                        answer: answer.clone(),
                    });
                }
                (Some(Fault::LastAnswerStands), Some(taken)) => taken.answer.clone_from(answer),
                _ => {}
            }
        }
        Some((id, held))
    }

    /// Performs an attempt of a write. `holder` is the lease of the current holder.
    pub(crate) fn write(
        &mut self,
        number: u8,
        mut write: TaskWrite,
        holder: Option<LeaseId>,
        fault: Option<Fault>,
    ) -> Verdict {
        let is_late = self.last_write.0 == write.lease && number < self.last_write.1;
        if is_late && fault != Some(Fault::LateWrites) {
            return Verdict::Lost;
        }
        let attempt = (write.lease, number);
        if let (Some(Fault::NoLeaseCheck), Some(holder)) = (fault, holder) {
            write.lease = holder;
        }
        if fault == Some(Fault::AcceptsGaps)
            && let (Some(position), Some(journal)) = (write.position, self.journal())
        {
            write.position = Some(position.min(journal.len()));
        }
        let waits = write.end == Some(RunEnd::Waits);
        let verdict = self.row.write(write, self.time());
        if verdict != Verdict::Lost {
            self.last_write = attempt;
        }
        let forgets = fault == Some(Fault::WaitsForgetsAnswers) || self.mistakes.is_forgetful;
        if waits && forgets && self.is_open() {
            self.mistakes.is_deaf = self.row.due().is_some();
        }
        match (fault, verdict) {
            (Some(Fault::VerdictHidesCancel), Verdict::Kept { .. }) => {
                Verdict::Kept { cancel: false }
            }
            _ => verdict,
        }
    }

    pub(crate) fn answer(&mut self, number: u8, value: u8, fault: Option<Fault>) {
        let is_held = self.row.due().is_some_and(|due| due > self.time());
        self.row.answer(vec![(question(number), vec![value])], self.time());
        self.mistakes.is_deaf = false;
        match fault {
            Some(Fault::AnswersInMidEpoch | Fault::LastAnswerStands) => {
                self.mistakes.posts.push((question(number), vec![value]));
            }
            Some(Fault::AnswerWakesHeldTask) => self.mistakes.is_woken = is_held,
            _ => {}
        }
    }

    pub(crate) fn cancel(&mut self) {
        self.row.cancel(self.time());
    }

    /// Returns the journal of an open task that is not to be cancelled.
    pub(crate) fn journal(&self) -> Option<Vec<Vec<u8>>> {
        let id = lease_of(u8::MAX);
        let held = self.row.clone().claim(KEY, &[handler()], lease(id), UnixMillis(u64::MAX))?;
        Some(held.entries)
    }

    /// Returns true if a claim takes the task, or ends it.
    pub(crate) fn is_claimable(&self) -> bool {
        let Mistakes { is_deaf, is_woken, .. } = self.mistakes;
        self.is_open() && (self.is_due() || is_woken) && !is_deaf
    }
}

fn lease(id: LeaseId) -> Lease {
    Lease { id, time: Duration::from_millis(LEASE) }
}
