//! The state of one round, shared between the handler and its driver.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};

use mrtr_codec::{Digest, UnixSeconds};
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::InputResponses;

use super::commits::{Commits, Detach};
use super::fault::Fault;
use super::journal::{
    CallMeta, EntryKind, Journal, PendingInputs, SKIPPED, order_independent_digest,
};
use super::replay::{Location, Lookup, Replay};
use super::shared_str::SharedStr;
use super::step_scope;
use crate::question::Question;
use crate::request_parts::RequestParts;
use crate::runtime::Runtime;

/// One round of a call: its request, its identity, and its progress.
pub struct Round {
    pub(crate) parts: Box<RequestParts>,
    /// The identity of the call. A new call draws it at first use: most calls neither ask nor run
    /// steps.
    id: OnceLock<[u8; 16]>,
    /// The time at which the first state of the call was sealed. A new call has none.
    started: Option<UnixSeconds>,
    rounds: u64,
    pub(super) hand_overs: u8,
    /// True if the request states of the call can be used once.
    pub(crate) is_single_use: bool,
    /// The answers that were known when the round began.
    pub(super) initial_answers: Vec<(SharedStr, SharedStr)>,
    /// The test that records the steps of this request.
    #[cfg(feature = "testing")]
    pub(crate) step_log: Option<crate::testing::StepLog>,
    state: Mutex<State>,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is independent of the others")]
pub(super) struct State {
    /// The replay; taken away when the round ends.
    pub(super) replay: Replay,
    /// The questions to send.
    pub(super) open: Vec<OpenInput>,
    pub(super) steps_in_flight: usize,
    /// The number of checkpoints and steps that ask for the end of the round without a question.
    pub(super) suspend_requests: usize,
    /// True if the call is to be handed over to another replica.
    pub(super) handed_over: bool,
    /// True if the access token lacks a scope that the handler requires.
    pub(super) lacks_scope: bool,
    /// True if the handler has required a scope, which the access token may have.
    pub(super) requires_scope: bool,
    fault: Option<Fault>,
    pub(super) closed: bool,
    /// True if the round has begun a step, or has ended and had recorded a step or a decision.
    pub(super) has_effect: bool,
    driver: Option<Waker>,
    /// The number of events that the driver has to react to.
    activity: u64,
    /// The wakers to call when the round ends. A task of the handler's own has no other wake-up.
    pub(super) close_waiters: Vec<Waker>,
    /// True if no step may begin any more.
    pub(super) is_stopping: bool,
    /// True if the task was cancelled.
    pub(super) is_cancelled: bool,
    pub(super) detach: Detach,
    /// The commits to a store, if the journal is in one.
    pub(super) commits: Option<Box<Commits>>,
}

/// What a handler waits for after a poll that was pending.
pub(crate) enum Waiting {
    /// For steps, or for something else than the round.
    Elsewhere,
    /// Only for answers or the next round, as of this number of events.
    ForInput(u64),
    /// The call is to become a task.
    ForTask,
}

/// The content of a round whose handler can only wait.
#[derive(Default)]
pub(crate) struct Suspended {
    pub(crate) journal: Journal,
    pub(crate) open: Vec<OpenInput>,
    /// True if the access token lacks a scope that the handler requires.
    pub(crate) lacks_scope: bool,
    /// True if the same request would bring the call to the same point: nothing is asked, and no
    /// step or decision was recorded.
    pub(crate) is_repeatable: bool,
    /// The number of leading entries of the journal that are in the store of a task.
    pub(crate) saved: usize,
}

/// An open question.
pub(crate) struct OpenInput {
    pub(crate) key: Arc<str>,
    pub(crate) question: Question,
}

/// The result of the first poll of a question.
pub(crate) enum InputPoll<T> {
    Answered(T),
    /// The optional question was skipped, because the client does not support it.
    Skipped,
    /// The question is open, or the call has a fault. In both cases the round will end.
    Waiting,
    Closed,
}

impl Round {
    /// Creates the first round of a call.
    pub(crate) fn first(parts: Box<RequestParts>) -> Self {
        Self {
            id: OnceLock::new(),
            started: None,
            rounds: 0,
            hand_overs: 0,
            is_single_use: false,
            initial_answers: Vec::new(),
            #[cfg(feature = "testing")]
            step_log: parts.extensions.get().cloned(),
            state: Mutex::default(),
            parts,
        }
    }

    /// Creates a later round from the content of a request state. Responses to anything but
    /// `pending` are ignored.
    pub(crate) fn resume(
        meta: CallMeta,
        journal: Journal,
        pending: &PendingInputs,
        responses: InputResponses,
        parts: Box<RequestParts>,
    ) -> Self {
        let replay = Replay::new(journal, pending, responses);
        let initial_answers = replay.answers();
        let state = State { replay, ..State::default() };
        Self { initial_answers, state: Mutex::new(state), ..Self::resume_manual(meta, parts) }
    }

    /// Creates a later round of a handler in the manual form, which has no journal.
    pub(crate) fn resume_manual(meta: CallMeta, parts: Box<RequestParts>) -> Self {
        let CallMeta { id, started, rounds, hand_overs } = meta;
        let id = OnceLock::from(id);
        let started = Some(started);
        Self { id, started, rounds, hand_overs, ..Self::first(parts) }
    }

    /// Returns the identity of the call.
    ///
    /// # Errors
    ///
    /// A fault, if the call is new and the operating system has no random numbers.
    pub(crate) fn id(&self) -> Result<[u8; 16], Fault> {
        if let Some(id) = self.id.get() {
            return Ok(*id);
        }
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| Fault::Handler(format!("no random numbers available: {error}")))?;
        Ok(*self.id.get_or_init(|| id))
    }

    /// Returns the identity and progress of the call for a state that is sealed `now`.
    ///
    /// # Errors
    ///
    /// Those of [`Round::id`].
    pub(crate) fn next_meta(&self, now: UnixSeconds) -> Result<CallMeta, Fault> {
        let hand_overs = self.hand_overs.saturating_add(self.lock().handed_over.into());
        let started = self.started.unwrap_or(now);
        Ok(CallMeta { id: self.id()?, started, rounds: self.rounds + 1, hand_overs })
    }

    /// Returns the number of rounds that have ended without a result.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns the digest of the answers that were known when the round began. It depends on their
    /// meaning, not on the client's JSON formatting.
    ///
    /// Step results are left out: a step must have the same idempotency key on every replica, but
    /// the results that a round begins with depend on hand-overs.
    pub(crate) fn answers_digest(&self) -> Digest {
        let digest = |value: &SharedStr| {
            Digest::from_json(Some(value))
                .unwrap_or_else(|_| Digest::from_parts(&[value.as_bytes()]))
        };
        let answers = self.initial_answers.iter();
        let digests = answers.map(|(key, value)| (key.as_bytes(), digest(value)));
        order_independent_digest(digests.collect())
    }

    pub(crate) fn capabilities(&self) -> &ClientCapabilities {
        self.parts.capabilities()
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.parts.runtime
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Only a `Deserialize` of the handler's can panic under the lock, and it runs between
        // changes of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks up the answer to a question, and opens the question if it has none.
    ///
    /// `decode` reads an answer; its error is the reason why the answer is rejected, and the
    /// question is asked again with that reason. An `optional` question is skipped if the client
    /// does not support it.
    pub(crate) fn request_input<T>(
        &self,
        key: &str,
        question: Question,
        optional: bool,
        waker: &Waker,
        decode: impl Fn(&str) -> Result<T, String>,
    ) -> InputPoll<T> {
        let mut state = self.lock();
        if state.closed {
            return InputPoll::Closed;
        }
        let Some(location) = state.use_key(self, key) else { return state.waiting(waker) };
        let answer = state.replay.answer((key, &location), question.digest(), optional, decode);
        let question = match answer {
            Lookup::Answered(answer) => return InputPoll::Answered(answer),
            Lookup::Skipped => return InputPoll::Skipped,
            Lookup::Fault(fault) => {
                state.fail(fault);
                return state.waiting(waker);
            }
            Lookup::Unanswered(Some(reason)) => question.with_rejection(&reason),
            Lookup::Unanswered(None) => question,
        };
        let key = location.into_key(key);
        if let Some(missing) = question.missing_capabilities(self.capabilities()) {
            if optional {
                // Recorded, because the capabilities of the next request may differ, and the
                // handler has continued without an answer.
                state.replay.record(&key, EntryKind::Decision, SKIPPED.to_owned());
                state.note_decision();
                return InputPoll::Skipped;
            }
            state.fail(Fault::Capability(Box::new(missing)));
            return state.waiting(waker);
        }
        state.open.push(OpenInput { key, question });
        state.cancel_hand_over();
        state.wake_driver();
        state.waiting(waker)
    }

    /// Waits for the end of the round.
    pub(crate) fn poll_closed(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(());
        }
        state.wake_on_close(waker);
        Poll::Pending
    }

    /// Closes a question whose future was dropped before the round ended.
    pub(crate) fn withdraw(&self, key: &str) {
        self.lock().open.retain(|open| *open.key != *key);
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.lock().fail(fault);
    }

    /// Checks, after a poll of the handler, what it waits for. If it is elsewhere, the next event
    /// wakes `driver`.
    ///
    /// # Errors
    ///
    /// The fault of the call.
    pub(crate) fn poll_suspended(&self, driver: &Waker) -> Result<Waiting, Fault> {
        let mut state = self.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        if state.detach == Detach::Requested {
            return Ok(Waiting::ForTask);
        }
        if state.is_suspended() {
            return Ok(Waiting::ForInput(state.activity));
        }
        state.driver = Some(driver.clone());
        Ok(Waiting::Elsewhere)
    }

    /// Returns the number of wakers that wait for the end of the round, if all of them are `waker`.
    /// Otherwise returns `None`: tasks with other wakers may wait for other events, too.
    pub(crate) fn close_waiters_with(&self, waker: &Waker) -> Option<usize> {
        let state = self.lock();
        let all = state.close_waiters.iter().all(|waiter| waiter.will_wake(waker));
        all.then_some(state.close_waiters.len())
    }

    /// Ends the round, if the handler is still suspended and nothing has happened since `activity`.
    ///
    /// The check and the end are one atomic operation: no step can begin in between.
    pub(crate) fn close_if_suspended(&self, activity: u64) -> Option<Suspended> {
        let mut state = self.lock();
        (state.is_suspended() && state.activity == activity).then(|| state.close())
    }

    /// Ends the round after the handler has returned.
    ///
    /// # Errors
    ///
    /// The fault of the call.
    pub(crate) fn finish(&self) -> Result<Journal, Fault> {
        let mut state = self.lock();
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(state.close().journal),
        }
    }

    /// Ends the round: wakes the tasks that wait for its end, and records nothing from now on.
    pub(crate) fn close(&self) {
        self.lock().close();
    }
}

impl State {
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
        self.wake_driver();
    }

    pub(super) fn wake_driver(&mut self) {
        self.activity += 1;
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    pub(super) fn wake_on_close(&mut self, waker: &Waker) {
        if !self.close_waiters.iter().any(|other| other.will_wake(waker)) {
            self.close_waiters.push(waker.clone());
        }
    }

    fn waiting<T>(&mut self, waker: &Waker) -> InputPoll<T> {
        self.wake_on_close(waker);
        InputPoll::Waiting
    }

    /// Cancels a hand-over, because a question was opened. Its steps run on this replica.
    fn cancel_hand_over(&mut self) {
        if std::mem::take(&mut self.handed_over) {
            self.close_waiters.drain(..).for_each(Waker::wake);
        }
    }

    /// The run of a task that stops leaves out steps, so it does not wait for answers.
    fn is_suspended(&self) -> bool {
        let waits = !self.open.is_empty() || self.suspend_requests > 0;
        waits && self.steps_in_flight == 0 && self.fault.is_none() && !self.is_stopping
    }

    fn close(&mut self) -> Suspended {
        self.driver = None;
        if let Some(commits) = &mut self.commits {
            commits.waiters.drain(..).for_each(Waker::wake);
        }
        self.close_waiters.drain(..).for_each(Waker::wake);
        if std::mem::replace(&mut self.closed, true) {
            return Suspended::default();
        }
        let replay = std::mem::take(&mut self.replay);
        self.has_effect |= replay.has_recorded();
        let saved = replay.saved();
        let open = std::mem::take(&mut self.open);
        let is_repeatable = open.is_empty() && !replay.has_recorded();
        let (journal, lacks_scope) = (replay.into_journal(), self.lacks_scope);
        Suspended { journal, open, lacks_scope, is_repeatable, saved }
    }

    /// Marks a key as used in this replay. `None` if that is a fault: the key was used before, or
    /// the handler is inside a step.
    pub(super) fn use_key(&mut self, round: &Round, key: &str) -> Option<Location> {
        let location = match step_scope::current_step(round) {
            None => self.replay.use_key(key),
            Some(step) => Err(Fault::Handler(format!(
                "{key:?} is inside the step {step:?}: steps cannot contain questions or other steps"
            ))),
        };
        location.map_err(|fault| self.fail(fault)).ok()
    }
}
