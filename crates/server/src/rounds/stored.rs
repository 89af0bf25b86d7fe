//! Rounds whose journal is in a store: the change of a call into a task, and the commits of a task.
//!
//! The journal of a call is first in the hands of the client. [`Round::attach`] moves it to a
//! store: from then on, a step is complete only when its result has been committed. The writer of
//! the task takes the changes with [`Round::poll_unsaved`], and reports their commit.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use mrtr_schema::input::InputResponses;

use super::commits::{Commits, Detach, Unsaved};
use super::fault::Fault;
use super::journal::{CallMeta, Entry, EntryKind, Journal, Limits, PendingInputs, StepKind};
use super::round::{Round, State};
use super::shared_str::SharedStr;
use crate::error::Error;
use crate::request_parts::RequestParts;

/// Implements [`Context::detach`](crate::Context::detach).
pub(crate) async fn detach(round: Arc<Round>) -> Result<(), Error> {
    poll_fn(|cx| {
        let mut state = round.lock();
        if state.closed {
            return Poll::Ready(Err(Error::round_closed("detach")));
        }
        let is_created = state.commits.as_ref().map(|commits| commits.is_created);
        if is_created == Some(true) || (is_created.is_none() && state.detach == Detach::Never) {
            return Poll::Ready(Ok(()));
        }
        if is_created.is_none() {
            state.detach = Detach::Requested;
            state.wake_driver();
        }
        state.wake_on_close(cx.waker());
        Poll::Pending
    })
    .await
}

/// The result of recording the outcome of a step before it runs.
pub(super) enum Ahead {
    /// The step may run after this change has been committed, and then replaces the outcome.
    Recorded(u64),
    /// The journal is not in a store. The outcome is returned.
    NoStore((StepKind, String)),
    /// The round has ended.
    Closed,
}

impl Round {
    /// Creates the round of a task from what its store has. `known` are the answers that the step's
    /// idempotency keys depend on: those at the creation of the task, and of all epochs since.
    pub(crate) fn resume_task(
        meta: CallMeta,
        journal: Journal,
        pending: &PendingInputs,
        responses: InputResponses,
        known: Vec<(SharedStr, SharedStr)>,
        parts: Box<RequestParts>,
    ) -> Self {
        let mut round = Self::resume(meta, journal, pending, responses, parts);
        round.initial_answers = known;
        let mut state = round.lock();
        state.replay.mark_saved();
        state.commits = Some(Box::new(Commits::new(state.replay.changes())));
        drop(state);
        round
    }

    /// Allows the handler to turn the call into a task.
    pub(crate) fn allow_detach(&self) {
        self.lock().detach = Detach::Allowed;
    }

    /// Attaches the journal to a store, which is to keep the returned entries first.
    ///
    /// # Errors
    ///
    /// The fault of the call.
    pub(crate) fn attach(&self) -> Result<Vec<Entry>, Fault> {
        let mut state = self.lock();
        if let Some(fault) = state.fault() {
            return Err(fault.clone());
        }
        state.detach = Detach::Never;
        state.replay.keep_arrived();
        let (_, entries) = state.replay.take_unsaved();
        let commits = Commits::new(state.replay.changes());
        state.commits = Some(Box::new(Commits { is_created: false, ..commits }));
        Ok(entries)
    }

    /// Reports that the store has created the task.
    pub(crate) fn task_created(&self) {
        let mut state = self.lock();
        if let Some(commits) = &mut state.commits {
            commits.is_created = true;
            commits.waiters.drain(..).for_each(Waker::wake);
        }
        state.close_waiters.drain(..).for_each(Waker::wake);
    }

    /// Returns the journal to the request, because the store has not created the task.
    pub(crate) fn detach_failed(&self) {
        let mut state = self.lock();
        state.replay.mark_unsaved();
        if let Some(commits) = state.commits.take() {
            commits.waiters.into_iter().for_each(Waker::wake);
        }
        state.close_waiters.drain(..).for_each(Waker::wake);
    }

    /// Returns the answers that were known when the round began.
    pub(crate) fn known_answers(&self) -> &[(SharedStr, SharedStr)] {
        &self.initial_answers
    }

    /// Returns true if no step of this round runs again in a repetition of its request: the journal
    /// is in a store, or the request state can be used once.
    pub(super) fn runs_once(&self) -> bool {
        self.is_single_use || self.is_task()
    }

    /// Returns true if a step that runs at most once may begin: the first request of a call has no
    /// state that could be used up.
    pub(super) fn may_run_once(&self) -> bool {
        self.is_task() || (self.is_single_use && self.rounds() > 0)
    }

    /// Returns true if the handler may turn the call into a task.
    pub(super) fn may_detach(&self) -> bool {
        let state = self.lock();
        state.detach != Detach::Never && state.commits.is_none()
    }

    /// Records the outcome of a step before it runs, if the journal is in a store.
    pub(super) fn record_ahead(&self, key: &Arc<str>, outcome: (StepKind, String)) -> Ahead {
        let mut state = self.lock();
        if state.closed {
            return Ahead::Closed;
        }
        if state.commits.is_none() {
            return Ahead::NoStore(outcome);
        }
        state.record_step(key, outcome, false);
        state.wake_writer();
        Ahead::Recorded(state.replay.changes())
    }

    /// Returns true if the journal is in a store.
    pub(crate) fn is_task(&self) -> bool {
        self.lock().commits.is_some()
    }

    /// Returns true if the replay has not reached the end of the previous round yet.
    pub(crate) fn is_replaying(&self) -> bool {
        self.lock().replay.is_replaying()
    }

    /// Returns true if this round has begun a step, or recorded a decision.
    pub(crate) fn has_effect(&self) -> bool {
        let state = self.lock();
        state.has_effect || state.replay.has_recorded()
    }

    /// Returns true if steps are running.
    pub(crate) fn has_steps_in_flight(&self) -> bool {
        self.lock().steps_in_flight > 0
    }

    /// Checks that the answers that arrived with the request can be kept.
    ///
    /// # Errors
    ///
    /// A fault that names the answer that is too long.
    pub(crate) fn check_answers(&self) -> Result<(), Fault> {
        let state = self.lock();
        state.replay.check_answers(state.limits())
    }

    /// Records the result of a step, if the journal is in a store. Returns the change to wait for,
    /// or the result. `is_ahead` tells that an outcome was recorded [ahead](Self::record_ahead).
    pub(super) fn save_step(
        &self,
        key: &Arc<str>,
        result: (StepKind, String),
        is_ahead: bool,
    ) -> Result<u64, (StepKind, String)> {
        let mut state = self.lock();
        if state.commits.is_none() {
            return Err(result);
        }
        // The result does not count if the round has ended: see `poll_committed`.
        if !state.closed {
            state.record_step(key, result, is_ahead);
            state.wake_writer();
        }
        Ok(state.replay.changes())
    }

    /// Returns the last decision, if it is not committed yet.
    pub(super) fn last_uncommitted_decision(&self) -> Option<u64> {
        self.lock().uncommitted_decision()
    }

    /// Waits until a change is committed. Returns false if the round has ended instead.
    pub(super) fn poll_committed(&self, change: u64, waker: &Waker) -> Poll<bool> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(false);
        }
        match &mut state.commits {
            Some(commits) if !commits.is_created || commits.committed < change => {
                if !commits.waiters.iter().any(|other| other.will_wake(waker)) {
                    commits.waiters.push(waker.clone());
                }
                Poll::Pending
            }
            _ => Poll::Ready(true),
        }
    }

    /// Takes the changes that are not committed yet. If there are none, the next one wakes
    /// `writer`, and so does the end of a step.
    ///
    /// Progress alone is taken if `takes_message` is set, or else with the next change.
    pub(crate) fn poll_unsaved(&self, writer: &Waker, takes_message: bool) -> Poll<Unsaved> {
        let mut state = self.lock();
        let change = state.replay.changes();
        let Some(commits) = &mut state.commits else { return Poll::Pending };
        commits.writer = Some(writer.clone());
        if commits.committed >= change && !(takes_message && commits.message.is_some()) {
            return Poll::Pending;
        }
        let is_journal_changed = commits.committed < change;
        let message = commits.message.take();
        let (position, entries) = state.replay.take_unsaved();
        Poll::Ready(Unsaved { change, position, entries, is_journal_changed, message })
    }

    /// Takes the last reported progress, if it was not taken yet.
    pub(crate) fn take_message(&self) -> Option<String> {
        self.lock().commits.as_mut()?.message.take()
    }

    /// Reports that a change was committed.
    pub(crate) fn committed(&self, change: u64) {
        let mut state = self.lock();
        if let Some(commits) = &mut state.commits {
            commits.committed = commits.committed.max(change);
            commits.waiters.drain(..).for_each(Waker::wake);
        }
    }

    /// Lets no step begin from now on. Returns true if none is in flight. A step that is recorded
    /// ahead, and has not begun, begins nonetheless, unless the task was cancelled.
    pub(crate) fn stop(&self, is_cancelled: bool) -> bool {
        let mut state = self.lock();
        state.is_stopping = true;
        state.is_cancelled |= is_cancelled;
        state.steps_in_flight == 0
    }

    /// Returns true if the task was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.lock().is_cancelled
    }

    /// Sends progress to the client, unless an earlier round sent it.
    pub(crate) fn report_progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let text = || match (message, total) {
            (Some(message), _) => message.to_owned(),
            (None, Some(total)) => format!("{progress} of {total}"),
            (None, None) => progress.to_string(),
        };
        if !self.set_message(text) {
            self.parts.progress(progress, total, message, self.is_replaying());
        }
    }

    /// Sets the message that clients see while the task works. Returns false if the call is no
    /// task.
    fn set_message(&self, message: impl FnOnce() -> String) -> bool {
        let mut state = self.lock();
        let is_replaying = state.replay.is_replaying();
        let Some(commits) = &mut state.commits else { return false };
        if !is_replaying {
            commits.message = Some(message());
            state.wake_writer();
        }
        true
    }
}

impl State {
    /// Records the result of a step. `is_ahead` tells that an outcome was recorded ahead, which it
    /// replaces.
    pub(super) fn record_step(
        &mut self,
        key: &Arc<str>,
        (kind, value): (StepKind, String),
        is_ahead: bool,
    ) {
        let (length, limit) = (value.len(), self.limits().entry);
        if is_ahead {
            self.replay.replace_step(key, kind, value);
        } else {
            self.replay.record(key, EntryKind::Step(kind), value);
        }
        if length > limit {
            let why =
                format!("the result of step {key:?} has {length} bytes; the limit is {limit}");
            self.fail(Fault::Handler(why));
        }
    }

    /// Returns the limits of the journal.
    pub(super) fn limits(&self) -> Limits {
        if self.commits.is_some() { Limits::STORE } else { Limits::TOKEN }
    }

    /// Notes that a decision was recorded, on which no step may act before it is committed.
    pub(super) fn note_decision(&mut self) {
        let change = self.replay.changes();
        if let Some(commits) = &mut self.commits {
            commits.last_decision = change;
            self.wake_writer();
        }
    }

    /// Returns the last decision, if it is not committed yet.
    pub(super) fn uncommitted_decision(&self) -> Option<u64> {
        let commits = self.commits.as_ref()?;
        let waits = !commits.is_created || commits.last_decision > commits.committed;
        waits.then_some(commits.last_decision)
    }

    pub(super) fn wake_writer(&mut self) {
        if let Some(writer) = self.commits.as_ref().and_then(|commits| commits.writer.as_ref()) {
            writer.wake_by_ref();
        }
    }
}
