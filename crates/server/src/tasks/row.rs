//! One task in a store, as a machine without I/O: what each operation of a [`TaskStore`] does.
//!
//! The store in memory runs it. Stores in databases do the same in their own language; the contract
//! tests compare both, and the model checker explores this one.
//!
//! [`TaskStore`]: super::TaskStore

use std::collections::BTreeMap;
use std::time::Duration;

use super::store::{
    HeldTask, Lease, LeaseId, NewTask, RunEnd, StoredAnswer, StoredStatus, TaskHandler, TaskKey,
    TaskRecord, TaskWrite, UnixMillis, Verdict,
};

/// A task as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskRow {
    /// The server that the task belongs to.
    pub service: String,
    /// The handler that it needs.
    pub handler: TaskHandler,
    /// The status.
    pub status: StoredStatus,
    /// The lease of its holder.
    lease: Option<LeaseId>,
    /// The time from which it is due; the end of the lease, while it is held. `None`: it waits for
    /// an answer, or has ended.
    wake: Option<UnixMillis>,
    /// The number of times that answers came, and that number when answers were last taken in.
    posts: u64,
    posts_seen: u64,
    cancel: bool,
    epoch: u32,
    /// True if the epoch has not ended: its holder crashed, or released the task.
    is_mid_epoch: bool,
    /// The number of claims since an entry was written or a run ended, and the number of entries
    /// at the last claim.
    attempts: u32,
    entries_at_claim: usize,
    created: UnixMillis,
    updated: UnixMillis,
    expires: Option<UnixMillis>,
    retention: Duration,
    call: Vec<u8>,
    view: Vec<u8>,
    entries: Vec<Vec<u8>>,
    /// Each with the epoch that took it in.
    answers: BTreeMap<String, (Option<u32>, Vec<u8>)>,
}

impl TaskRow {
    /// Creates a task that is held with `lease`.
    pub fn create(task: NewTask, lease: Lease, now: UnixMillis) -> Self {
        let NewTask { key: _, service, handler, ttl, retention, call, view, entries } = task;
        Self {
            service,
            handler,
            status: StoredStatus::Open,
            lease: Some(lease.id),
            wake: Some(now.after(lease.time)),
            posts: 0,
            posts_seen: 0,
            cancel: false,
            epoch: 0,
            is_mid_epoch: true,
            attempts: 1,
            entries_at_claim: entries.len(),
            created: now,
            updated: now,
            expires: ttl.map(|ttl| now.after(ttl)),
            retention,
            call,
            view,
            entries,
            answers: BTreeMap::new(),
        }
    }

    /// Returns true if the task is held with this lease.
    pub fn is_held_with(&self, lease: LeaseId) -> bool {
        self.lease == Some(lease)
    }

    /// Returns what clients may see.
    pub fn record(&self) -> TaskRecord {
        TaskRecord {
            handler: self.handler.clone(),
            status: self.status,
            created: self.created,
            updated: self.updated,
            expires: self.expires,
            view: self.view.clone(),
            answered: self.answers.keys().cloned().collect(),
            answer_bytes: self.answers.values().map(|(_, answer)| answer.len() as u64).sum(),
        }
    }

    /// Returns the time from which the task is due.
    pub fn due(&self) -> Option<UnixMillis> {
        self.wake
    }

    /// Returns true if the task is to be deleted.
    pub fn is_expired(&self, now: UnixMillis) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Adds answers. The first one to a question stands.
    pub fn answer(&mut self, answers: Vec<(String, Vec<u8>)>, now: UnixMillis) {
        if self.status != StoredStatus::Open {
            return;
        }
        for (question, answer) in answers {
            self.answers.entry(question).or_insert((None, answer));
        }
        self.posts += 1;
        self.updated = now;
        if self.lease.is_none() {
            // A task that is due already keeps its place in the order.
            self.wake = Some(self.wake.map_or(now, |wake| wake.min(now)));
        }
    }

    /// Cancels the task: at once if it is not held, or if its lease has expired.
    pub fn cancel(&mut self, now: UnixMillis) {
        if self.status != StoredStatus::Open {
            return;
        }
        self.cancel = true;
        if self.lease.is_none() || self.wake.is_some_and(|wake| wake <= now) {
            self.end(StoredStatus::Cancelled, now);
        }
    }

    /// Takes the task with a lease, if it is due and one of `handlers` can continue it.
    pub fn claim(
        &mut self,
        key: TaskKey,
        handlers: &[TaskHandler],
        lease: Lease,
        now: UnixMillis,
    ) -> Option<HeldTask> {
        let is_due = self.wake.is_some_and(|wake| wake <= now);
        let fits = |handler: &TaskHandler| {
            handler.tool == self.handler.tool && handler.version >= self.handler.min_version
        };
        let is_open = self.status == StoredStatus::Open;
        if !is_open || !is_due || self.is_expired(now) || !handlers.iter().any(fits) {
            return None;
        }
        if self.cancel {
            // Its holder crashed, or could not tell that it has stopped.
            self.end(StoredStatus::Cancelled, now);
            return None;
        }
        self.lease = Some(lease.id);
        self.wake = Some(now.after(lease.time));
        // Answers that came while the epoch went on are not taken in after a crash either, so its
        // end has to see that they are there.
        if !self.is_mid_epoch {
            self.posts_seen = self.posts;
            self.is_mid_epoch = true;
            self.epoch += 1;
            for (epoch, _) in self.answers.values_mut() {
                epoch.get_or_insert(self.epoch);
            }
        }
        if self.entries.len() != self.entries_at_claim {
            self.attempts = 0;
        }
        self.attempts += 1;
        self.entries_at_claim = self.entries.len();
        let taken_in = self.answers.iter().filter_map(|(question, (epoch, answer))| {
            let (question, answer) = (question.clone(), answer.clone());
            Some(StoredAnswer { question, epoch: (*epoch)?, answer })
        });
        let mut answers: Vec<_> = taken_in.collect();
        answers.sort_by_key(|answer| answer.epoch);
        Some(HeldTask {
            key,
            handler: self.handler.clone(),
            epoch: self.epoch,
            attempts: self.attempts,
            call: self.call.clone(),
            view: self.view.clone(),
            entries: self.entries.clone(),
            answers,
        })
    }

    /// Writes progress, if the task is held with the lease of the write.
    pub fn write(&mut self, write: TaskWrite, now: UnixMillis) -> Verdict {
        let TaskWrite { key: _, lease, renew, position, entries, handler, view, end } = write;
        // A journal that is shorter than its writer knows was restored from a backup, or is that of a
        // replica of the database that was behind.
        let has_gap = position.is_some_and(|position| position > self.entries.len());
        if !self.is_held_with(lease) || has_gap {
            return Verdict::Lost;
        }
        if let Some(handler) = handler {
            self.handler = handler;
        }
        if let Some(position) = position {
            self.entries.truncate(position);
            self.entries.extend(entries);
        }
        if let Some(view) = view {
            self.view = view;
            self.updated = now;
        }
        if let Some(time) = renew {
            self.wake = Some(now.after(time));
        }
        match end {
            None => {}
            Some(RunEnd::Ended(status)) => self.end(status, now),
            Some(_) if self.cancel => self.end(StoredStatus::Cancelled, now),
            Some(RunEnd::Waits) => {
                self.lease = None;
                self.is_mid_epoch = false;
                self.attempts = 0;
                self.wake = (self.posts != self.posts_seen).then_some(now);
            }
            Some(RunEnd::Released(time)) => {
                self.lease = None;
                self.attempts = 0;
                self.wake = Some(now.after(time));
            }
        }
        Verdict::Kept { cancel: self.cancel }
    }

    fn end(&mut self, status: StoredStatus, now: UnixMillis) {
        self.status = status;
        self.updated = now;
        self.lease = None;
        self.wake = None;
        self.entries.clear();
        self.answers.clear();
        self.expires = self.expires.map(|expires| expires.max(now.after(self.retention)));
    }
}
