//! What can happen in a state, and the state after it.

use std::sync::atomic::Ordering;

use mrtr_server::tasks::{RunEnd, StoredStatus, Verdict};

use crate::check::TaskModel;
use crate::history::{Rule, Visited};
use crate::run::{Next, Run, Write};
use crate::scale::Fault;
use crate::state::{Attempt, PostProgress, State};
use crate::store::{LEASE, question};

/// Something that happens. Runs and answers are given by their place in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// A replica without a run claims the task.
    Claim(Reply),
    BeginStep(usize),
    Write(usize, Write, Reply),
    /// The store performs a write that was given up.
    PerformLate,
    DropLate,
    Crash(usize),
    /// A lease runs out. Replicas drop their runs, but for one that is suspended.
    Tick {
        suspended: Option<usize>,
    },
    /// The replica that receives an answer reads the task.
    Read(usize),
    Answer(usize, Reply),
    Cancel,
    Backup,
    Restore,
}

/// The reply to an operation of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Arrives,
    /// The operation was performed, and is reported as failed.
    Lost,
    /// The operation is reported as failed, and may be performed at any later time.
    Early,
}

impl TaskModel {
    pub(crate) fn list_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let State { store, left, .. } = state;
        let replies = || {
            let lost = (left.lost_replies > 0).then_some(Reply::Lost);
            [Reply::Arrives].into_iter().chain(lost)
        };
        if state.runs.len() < self.scale.replicas && store.is_claimable() {
            actions.extend(replies().map(Action::Claim));
        }
        for (place, run) in state.runs.iter().enumerate() {
            if left.crashes > 0 {
                actions.push(Action::Crash(place));
            }
            let early = (left.late_writes > 0 && state.late.is_none()).then_some(Reply::Early);
            for write in self.writes(state, run) {
                let all = replies().chain(early).map(|reply| Action::Write(place, write, reply));
                actions.extend(all);
            }
            let may_begin = !run.is_stopping || self.fault == Some(Fault::StepAfterCancel);
            if run.step.is_none() && may_begin && matches!(run.next(&self.scale), Next::Step(_)) {
                actions.push(Action::BeginStep(place));
            }
        }
        if state.late.is_some() {
            actions.extend([Action::PerformLate, Action::DropLate]);
        }
        let waits_for_lease = store.is_open() && store.row.due().is_some() && !store.is_due();
        if waits_for_lease && (left.expiries > 0 || !state.is_held_alive()) {
            actions.push(Action::Tick { suspended: None });
            let honest = (0..).zip(&state.runs).filter(|(_, run)| !run.is_zombie);
            if left.zombies > 0 {
                actions.extend(honest.map(|(run, _)| Action::Tick { suspended: Some(run) }));
            }
        }
        for (number, post) in state.posts.iter().enumerate() {
            match post.progress {
                PostProgress::Planned if read(state, number).is_some() => {
                    actions.push(Action::Read(number));
                }
                PostProgress::Sending => {
                    actions.extend(replies().map(|reply| Action::Answer(number, reply)));
                }
                _ => {}
            }
        }
        if self.scale.cancels && !state.history.is_cancelled && store.is_open() {
            actions.push(Action::Cancel);
        }
        match &state.backup {
            Some(_) if left.restores > 0 => actions.push(Action::Restore),
            None if left.restores > 0 => actions.push(Action::Backup),
            _ => {}
        }
    }

    /// Returns the writes that a run may make.
    fn writes(&self, state: &State, run: &Run) -> Vec<Write> {
        let mut writes = Vec::new();
        if state.history.is_cancelled && !run.was_told && !run.is_zombie {
            writes.push(Write::Renew);
        }
        if run.step.is_some() {
            writes.push(Write::Commit);
            return writes;
        }
        if run.has_unsaved() {
            writes.push(Write::Commit);
        }
        if run.is_stopping {
            writes.push(Write::Stop);
        } else if !matches!(run.next(&self.scale), Next::Step(_)) {
            writes.push(Write::Finish);
        }
        if state.left.releases > 0 {
            writes.push(Write::Release);
        }
        writes
    }

    pub(crate) fn perform(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Claim(reply) => self.claim(state, reply),
            Action::BeginStep(place) => {
                let run = state.runs.get_mut(place)?;
                let Next::Step(step) = run.next(&self.scale) else { return None };
                let result = state.history.began(run, step);
                if result > 1 {
                    self.visit(Visited::StepAgain);
                }
                let entry = vec![b's', step, result];
                if self.fault == Some(Fault::ActsBeforeCommit) {
                    run.journal.push(entry);
                    state.history.saw(&run.journal);
                } else {
                    run.step = Some(entry);
                }
            }
            Action::Write(place, write, reply) => self.write(state, place, write, reply)?,
            Action::PerformLate => {
                let late = state.late.take()?;
                self.perform_write(state, late);
                self.visit(Visited::Late);
            }
            Action::DropLate => state.late = None,
            Action::Crash(place) => {
                state.left.crashes -= 1;
                state.runs.remove(place);
            }
            Action::Tick { suspended } => tick(state, suspended)?,
            Action::Read(number) => {
                let progress = read(state, number)?;
                state.posts.get_mut(number)?.progress = progress;
            }
            Action::Answer(number, reply) => self.answer(state, number, reply)?,
            Action::Cancel => {
                state.history.is_cancelled = true;
                // The lease of the holder may have expired.
                let is_free = state.history.holder.is_none() || state.store.is_due();
                state.store.cancel();
                let has_ended = !state.store.is_open();
                state.history.require(Rule::Cancelled, is_free == has_ended);
                if has_ended {
                    state.history.holder = None;
                    self.visit(Visited::CancelledAtOnce);
                }
            }
            Action::Backup => {
                state.backup = Some(Box::new((state.store.clone(), state.history.holder)));
            }
            Action::Restore => {
                state.left.restores -= 1;
                let now = state.store.now;
                (state.store, state.history.holder) = *state.backup.take()?;
                state.store.now = now;
                state.history.is_restored = true;
            }
        }
        let record = state.store.row.record();
        if record.status == StoredStatus::Completed {
            self.visit(Visited::Completed);
        }
        state.history.observed(record.status, record.view);
        state.simplify();
        Some(())
    }

    fn claim(&self, state: &mut State, reply: Reply) {
        let number = state.history.runs;
        let was_held = state.is_held_alive();
        if let Some((lease, held)) = state.store.claim(number, self.fault) {
            state.history.runs += 1;
            state.history.require(Rule::OneHolder, !was_held);
            let until = state.store.now + LEASE;
            let mut run = Run::resume(number, lease, until, held.clone());
            state.history.claimed(&mut run, &held);
            if state.history.answer_epochs() > 1 {
                self.visit(Visited::TwoEpochs);
            }
            if reply == Reply::Arrives {
                state.runs.push(run);
            }
        }
        if reply == Reply::Lost {
            state.left.lost_replies -= 1;
        }
    }

    fn write(&self, state: &mut State, place: usize, write: Write, reply: Reply) -> Option<()> {
        let run = state.runs.get_mut(place)?;
        // Without late writes, the numbers would only make states differ.
        run.writes += u8::from(self.scale.late_writes > 0);
        let task_write = run.write(write, &self.scale);
        let attempt = Attempt { run: run.number, number: run.writes, write: task_write };
        if reply == Reply::Early {
            state.left.late_writes -= 1;
            state.late = Some(attempt);
            return Some(());
        }
        let end = attempt.write.end;
        let has_entries = attempt.write.position.is_some();
        let mut after = run.clone();
        after.committed();
        let is_holder = state.history.is_holder(attempt.run);
        state.left.releases -= u8::from(write == Write::Release);
        if is_holder && end == Some(RunEnd::Ended(StoredStatus::Completed)) {
            state.history.completed(&after.journal);
        }
        let verdict = self.perform_write(state, attempt);
        if let Verdict::Kept { .. } = verdict
            && has_entries
            && is_holder
            && let Some(journal) = state.store.journal()
        {
            state.history.require(Rule::SameJournal, journal == after.journal);
        }
        if reply == Reply::Lost {
            state.left.lost_replies -= 1;
            self.visit(Visited::Repeated);
            return Some(());
        }
        let Verdict::Kept { cancel } = verdict else {
            state.runs.remove(place);
            return Some(());
        };
        if end.is_some() {
            state.runs.remove(place);
            return Some(());
        }
        let run = state.runs.get_mut(place)?;
        if write == Write::Commit {
            *run = after;
            state.history.saw(&run.journal);
        }
        run.is_stopping |= cancel;
        run.was_told |= state.history.is_cancelled;
        Some(())
    }

    fn perform_write(&self, state: &mut State, attempt: Attempt) -> Verdict {
        let State { store, history, .. } = state;
        let before = store.row.clone();
        let Attempt { run, number, write } = attempt;
        let (entries, end) = (write.entries.clone(), write.end);
        let lease = history.holder.map(|(_, lease)| lease);
        let verdict = store.write(number, write, lease, self.fault);
        if !history.is_holder(run) {
            history.require(Rule::LeaseRequired, store.row == before);
        } else if verdict != Verdict::Lost {
            history.recorded(&entries);
            if end == Some(RunEnd::Ended(StoredStatus::Cancelled)) {
                self.visit(Visited::CancelledByHolder);
            }
            if end.is_some() {
                history.holder = None;
            }
        }
        if verdict == Verdict::Lost {
            self.visit(Visited::Refused);
        }
        verdict
    }

    fn answer(&self, state: &mut State, number: usize, reply: Reply) -> Option<()> {
        let State { store, history, posts, left, .. } = state;
        let post = posts.get_mut(number)?;
        let is_open = store.is_open();
        if is_open && history.holder.is_some() {
            self.visit(Visited::AnsweredWhileHeld);
        }
        store.answer(post.question, post.value, self.fault);
        if is_open {
            if !history.answered(post.question, post.value) {
                self.visit(Visited::AnsweredTwice);
            }
            let is_stored = store.row.record().answered.contains(&question(post.question));
            history.require(Rule::FirstAnswer, is_stored);
        }
        if reply == Reply::Lost {
            left.lost_replies -= 1;
        } else {
            post.progress = PostProgress::Done;
        }
        Some(())
    }

    fn visit(&self, visited: Visited) {
        self.visited.fetch_or(visited as u32, Ordering::Relaxed);
    }
}

/// Returns what becomes of an answer after the task was read. `None`: the client waits.
fn read(state: &State, number: usize) -> Option<PostProgress> {
    let post = state.posts.get(number)?;
    let record = state.store.row.record();
    let is_answered = record.answered.contains(&question(post.question));
    if record.status != StoredStatus::Open || is_answered {
        return Some(PostProgress::Done);
    }
    record.view.contains(&post.question).then_some(PostProgress::Sending)
}

fn tick(state: &mut State, suspended: Option<usize>) -> Option<()> {
    if state.is_held_alive() {
        state.left.expiries -= 1;
    }
    state.store.now += LEASE;
    if let Some(place) = suspended {
        state.left.zombies -= 1;
        state.runs.get_mut(place)?.is_zombie = true;
    }
    let now = state.store.now;
    state.runs.retain(|run| run.until > now || run.is_zombie);
    Some(())
}
