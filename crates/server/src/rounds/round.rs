//! One leg's state, shared between the handler and whoever drives it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use mrtr_codec::{Digest, UnixSeconds};
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::InputResponses;

use super::fault::Fault;
use super::journal::{
    CHECKPOINT, CallMeta, EntryKind, Journal, MAX_ENTRY, PendingInputs, SIDES, SKIPPED, StepKind,
    unordered,
};
use super::replay::{Lookup, Place, Replay};
use super::shared_str::SharedStr;
use super::step_scope;
use crate::question::Question;
use crate::request_parts::RequestParts;
use crate::runtime::Runtime;

/// At most how often the replicas of a flow move it on, and after how many rounds no more: clients give up after nine or ten
/// rounds of any kind.
const MAX_HAND_OVERS: u8 = 2;
const LAST_HAND_OVER_ROUND: u64 = 6;

/// One leg: who sent it, and how far it has come.
pub struct Round {
    pub(crate) parts: Box<RequestParts>,
    /// A new flow's is drawn when it is first needed: most calls neither ask nor do steps.
    id: OnceLock<[u8; 16]>,
    /// When the first state of the flow was sealed; a new flow has none.
    started: Option<UnixSeconds>,
    rounds: u64,
    hand_overs: u8,
    /// What was answered when the leg began.
    answers: Vec<(SharedStr, SharedStr)>,
    /// Who wants to hear of steps.
    #[cfg(feature = "testing")]
    pub(crate) steps: Option<crate::testing::StepLog>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is recorded; taken away when the round ends.
    replay: Replay,
    /// Questions that wait for the next leg.
    open: Vec<OpenInput>,
    steps_in_flight: usize,
    /// How many wait for the round to end without asking anything.
    end_waiters: usize,
    /// Whether a step was done on this leg.
    has_new_entries: bool,
    /// Whether another replica is to go on, since this one had better not.
    handed_over: bool,
    fault: Option<Fault>,
    closed: bool,
    driver: Option<Waker>,
    /// How often something happened that the driver has to look at.
    activity: u64,
    /// Who waits for the end of the round. In a task of its own, nothing else would end the wait.
    waiters: Vec<Waker>,
}

/// A question that waits.
pub(crate) struct OpenInput {
    pub(crate) key: Arc<str>,
    pub(crate) question: Question,
}

/// What became of a look at a question.
pub(crate) enum InputPoll<T> {
    Answered(T),
    /// The client cannot be asked, and the question is one that may be passed over.
    Skipped,
    /// It is open, or the flow has a fault: in both cases the round will end.
    Waiting,
    Closed,
}

/// What became of the start of a step.
pub(crate) enum StepStart<T> {
    /// Its result, or its error.
    Recorded(T),
    Run,
    /// Another replica does it: the round is to end before.
    HandOver,
    /// The round has ended or the flow has a fault; the handler goes no further.
    Abandoned,
}

impl Round {
    /// The first leg of a flow.
    pub(crate) fn first(parts: Box<RequestParts>) -> Self {
        Self {
            id: OnceLock::new(),
            started: None,
            rounds: 0,
            hand_overs: 0,
            answers: Vec::new(),
            #[cfg(feature = "testing")]
            steps: parts.extensions.get().cloned(),
            state: Mutex::default(),
            parts,
        }
    }

    /// A later leg. `pending` are the questions of the state that came with it; a response to anything
    /// else is not looked at.
    pub(crate) fn later(
        meta: CallMeta,
        journal: Journal,
        pending: &PendingInputs,
        responses: InputResponses,
        parts: Box<RequestParts>,
    ) -> Self {
        let replay = Replay::new(journal, pending, responses);
        let answers = replay.answers();
        let state = State { replay, ..State::default() };
        Self { answers, state: Mutex::new(state), ..Self::without_journal(meta, parts) }
    }

    /// A later round without a journal, in the manual form.
    pub(crate) fn without_journal(meta: CallMeta, parts: Box<RequestParts>) -> Self {
        let CallMeta { id, started, rounds, hand_overs } = meta;
        let (id, started) = (id.into(), Some(started));
        Self { id, started, rounds, hand_overs, ..Self::first(parts) }
    }

    /// What identifies the flow.
    ///
    /// # Errors
    ///
    /// If it is new, and there are no random numbers.
    pub(crate) fn id(&self) -> Result<[u8; 16], Fault> {
        if let Some(id) = self.id.get() {
            return Ok(*id);
        }
        let mut id = [0; 16];
        getrandom::fill(&mut id)
            .map_err(|error| Fault::Handler(format!("there are no random numbers: {error}")))?;
        Ok(*self.id.get_or_init(|| id))
    }

    /// The flow as the next leg is to know it, if it is sealed `now`.
    ///
    /// # Errors
    ///
    /// As [`Round::id`].
    pub(crate) fn next_meta(&self, now: UnixSeconds) -> Result<CallMeta, Fault> {
        let hand_overs = self.hand_overs.saturating_add(self.lock().handed_over.into());
        let started = self.started.unwrap_or(now);
        Ok(CallMeta { id: self.id()?, started, rounds: self.rounds + 1, hand_overs })
    }

    /// How many rounds have ended without a result.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The digest of the answers that were known when the leg began: earlier ones, and those that came with it. They count by
    /// their meaning, not by how a client writes them. Results of steps do not: how many of them are known when a leg begins
    /// depends on where the leg before ended, which is chance where a replica lets others go on, and a step has to have
    /// the same key wherever it runs.
    pub(crate) fn known(&self) -> Digest {
        let digest = |value: &SharedStr| {
            Digest::from_json(Some(value))
                .unwrap_or_else(|_| Digest::from_parts(&[value.as_bytes()]))
        };
        unordered(self.answers.iter().map(|(key, value)| (key.as_bytes(), digest(value))).collect())
    }

    pub(crate) fn capabilities(&self) -> &ClientCapabilities {
        self.parts.capabilities()
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.parts.runtime
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in somebody's `Deserialize` leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First look at a question: its answer if it has one that fits, else it opens.
    ///
    /// `decode` says why an answer does not fit; then the question is asked again with the reason. One that is `optional`
    /// is passed over if the client cannot be asked.
    pub(crate) fn ask<T>(
        &self,
        key: &Arc<str>,
        question: Question,
        optional: bool,
        waker: &Waker,
        decode: impl Fn(&str) -> Result<T, String>,
    ) -> InputPoll<T> {
        let mut state = self.lock();
        if state.closed {
            return InputPoll::Closed;
        }
        let Some(place) = state.enter(self, key) else { return state.wait(waker) };
        let question = match state.replay.answer((key, place), question.pin(), optional, decode) {
            Lookup::Answered(answer) => return InputPoll::Answered(answer),
            Lookup::Skipped => return InputPoll::Skipped,
            Lookup::Fault(fault) => {
                state.fail(fault);
                return state.wait(waker);
            }
            Lookup::Ask(Some(reason)) => question.again(&reason),
            Lookup::Ask(None) => question,
        };
        if let Some(missing) = question.missing(self.capabilities()) {
            if optional {
                // What the next leg's client can do makes no difference: the handler has gone on.
                state.replay.record(key, EntryKind::Choice, SKIPPED.to_owned());
                return InputPoll::Skipped;
            }
            state.fail(Fault::Capability(Box::new(missing)));
            return state.wait(waker);
        }
        state.open.push(OpenInput { key: Arc::clone(key), question });
        state.cancel_hand_over();
        state.wake_driver();
        state.wait(waker)
    }

    /// Whether the round has ended; until it has, `waker` waits for that.
    pub(crate) fn is_closed(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        let closed = state.closed;
        if !closed {
            let _: InputPoll<()> = state.wait(waker);
        }
        closed
    }

    /// A question whose future was dropped before the round ended is not asked.
    pub(crate) fn withdraw(&self, key: &str) {
        self.lock().open.retain(|open| *open.key != *key);
    }

    /// Whether the pass has not yet come to where the last leg ended.
    pub(crate) fn is_replaying(&self) -> bool {
        self.lock().replay.is_replaying()
    }

    /// Sends progress to the client, unless an earlier round sent it.
    pub(crate) fn report_progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.parts.progress(progress, total, message, self.is_replaying());
    }

    /// First look at a step, which may be left to another replica. `recall` reads what was recorded; its error is that it
    /// cannot be read.
    pub(crate) fn begin_step<T>(
        &self,
        key: &Arc<str>,
        recall: impl FnOnce(StepKind, &str) -> Result<T, String>,
    ) -> StepStart<T> {
        let mut state = self.lock();
        if state.closed || state.fault.is_some() {
            return StepStart::Abandoned;
        }
        let Some(place) = state.enter(self, key) else { return StepStart::Abandoned };
        let recorded = state.replay.step(place).and_then(|step| {
            let recalled = step.map(|(kind, value)| recall(kind, value)).transpose();
            let of_another_type = |why| {
                Fault::Changed(format!(
                    "the recorded result of step {key:?} is of another type: {why}"
                ))
            };
            recalled.map_err(of_another_type)
        });
        let begins = match recorded {
            Ok(Some(recorded)) => return StepStart::Recorded(recorded),
            Ok(None) => state.replay.check_room(key),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = begins {
            state.fail(fault);
            return StepStart::Abandoned;
        }
        let may_hand_over = self.hand_overs < MAX_HAND_OVERS && self.rounds < LAST_HAND_OVER_ROUND;
        if may_hand_over && state.may_hand_over() && self.runtime().hand_over.should_hand_over() {
            state.handed_over = true;
            return StepStart::HandOver;
        }
        if let Err(fault) = self.id() {
            state.fail(fault);
            return StepStart::Abandoned;
        }
        state.steps_in_flight += 1;
        StepStart::Run
    }

    /// First look at a race: whether its first side won it, if it was decided.
    pub(crate) fn winner(&self, key: &Arc<str>) -> Option<bool> {
        let mut state = self.lock();
        let place = state.enter(self, key)?;
        let chosen = state.replay.choice(place, "a race", SIDES);
        let chosen = chosen.map_err(|fault| state.fail(fault)).ok()??;
        Some(SIDES.first() == Some(&chosen))
    }

    /// Decides a race.
    pub(crate) fn decide(&self, key: &Arc<str>, first: bool) {
        let mut state = self.lock();
        if !state.closed {
            let [one, other] = SIDES;
            let value = if first { one } else { other };
            state.replay.record(key, EntryKind::Choice, value.to_owned());
        }
    }

    /// Whether the round was ended here before; if not, now is when. `None` if the handler goes no further.
    pub(crate) fn checkpoint(&self, key: &Arc<str>) -> Option<bool> {
        let mut state = self.lock();
        let place = state.enter(self, key)?;
        let chosen = state.replay.choice(place, "a checkpoint", [CHECKPOINT]);
        let chosen = chosen.map_err(|fault| state.fail(fault)).ok()?;
        if chosen.is_none() {
            state.replay.record(key, EntryKind::Choice, CHECKPOINT.to_owned());
        }
        Some(chosen.is_some())
    }

    /// Another look at a step that was left to another replica: whether it is to be done here after all.
    pub(crate) fn begin_after_hand_over(&self) -> bool {
        let mut state = self.lock();
        let begins = !state.handed_over && !state.closed && state.fault.is_none();
        state.steps_in_flight += usize::from(begins);
        begins
    }

    /// Asks that the round ends when there is nothing to wait for but answers, whether there is a question or not.
    pub(crate) fn wait_for_end(&self, waker: &Waker) {
        let mut state = self.lock();
        state.end_waiters += 1;
        state.wake_driver();
        let _: InputPoll<()> = state.wait(waker);
    }

    /// Whoever asked for it does not wait any more.
    pub(crate) fn cancel_wait(&self) {
        let mut state = self.lock();
        state.end_waiters = state.end_waiters.saturating_sub(1);
    }

    /// Ends a step, with its result if it has one to record.
    pub(crate) fn end_step(&self, key: &Arc<str>, result: Option<(StepKind, String)>) {
        let mut state = self.lock();
        state.steps_in_flight = state.steps_in_flight.saturating_sub(1);
        if let Some((kind, value)) = result {
            let length = value.len();
            state.replay.record(key, EntryKind::Step(kind), value);
            state.has_new_entries = true;
            if length > MAX_ENTRY {
                let why = format!(
                    "the result of step {key:?} has {length} bytes; at most {MAX_ENTRY} are kept"
                );
                state.fail(Fault::Handler(why));
            }
        }
        state.wake_driver();
    }

    pub(crate) fn fail(&self, fault: Fault) {
        self.lock().fail(fault);
    }

    /// Called after each poll of the handler that left it waiting. If there is nothing to wait for but answers: how often
    /// something happened that the driver has to look at. Otherwise the next time that something happens wakes `driver`.
    ///
    /// # Errors
    ///
    /// If there is a fault.
    pub(crate) fn look(&self, driver: &Waker) -> Result<Option<u64>, Fault> {
        let mut state = self.lock();
        if let Some(fault) = &state.fault {
            return Err(fault.clone());
        }
        let suspended = state.is_suspended();
        if !suspended {
            state.driver = Some(driver.clone());
        }
        Ok(suspended.then_some(state.activity))
    }

    /// How many wait for the end of the round by this waker, if nobody waits by another: what those wait for besides
    /// cannot be known.
    pub(crate) fn waiters_using(&self, waker: &Waker) -> Option<usize> {
        let state = self.lock();
        let here = state.waiters.iter().all(|waiter| waiter.will_wake(waker));
        here.then_some(state.waiters.len())
    }

    /// Ends the round, if there is still nothing to wait for but answers and nothing has happened since
    /// `activity`. What is decided and what is done are one: no step can begin in between.
    pub(crate) fn close_if_suspended(&self, activity: u64) -> Option<(Journal, Vec<OpenInput>)> {
        let mut state = self.lock();
        (state.is_suspended() && state.activity == activity).then(|| state.close())
    }

    /// Ends the round, as the handler has returned.
    ///
    /// # Errors
    ///
    /// If there is a fault.
    pub(crate) fn finish(&self) -> Result<Journal, Fault> {
        let mut state = self.lock();
        match &state.fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(state.close().0),
        }
    }

    /// Ends the round. Whoever waits elsewhere learns of it; nothing is recorded any more.
    pub(crate) fn close(&self) {
        self.lock().close();
    }
}

impl State {
    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
        self.wake_driver();
    }

    fn wake_driver(&mut self) {
        self.activity += 1;
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    fn wait<T>(&mut self, waker: &Waker) -> InputPoll<T> {
        if !self.waiters.iter().any(|other| other.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
        InputPoll::Waiting
    }

    /// Whether the flow may be left to another replica: with something new, and without a question. An answer that came in
    /// between would give a step another idempotency key than it may have run under on a leg whose response was lost.
    fn may_hand_over(&self) -> bool {
        self.handed_over
            || (self.has_new_entries && self.open.is_empty() && self.steps_in_flight == 0)
    }

    /// There is a question: what was left to another replica is done here.
    fn cancel_hand_over(&mut self) {
        if std::mem::take(&mut self.handed_over) {
            self.waiters.drain(..).for_each(Waker::wake);
        }
    }

    fn is_suspended(&self) -> bool {
        let waits = !self.open.is_empty() || self.end_waiters > 0;
        waits && self.steps_in_flight == 0 && self.fault.is_none()
    }

    fn close(&mut self) -> (Journal, Vec<OpenInput>) {
        self.driver = None;
        self.waiters.drain(..).for_each(Waker::wake);
        if std::mem::replace(&mut self.closed, true) {
            return Default::default();
        }
        let replay = std::mem::take(&mut self.replay);
        (replay.into_journal(), std::mem::take(&mut self.open))
    }

    /// Uses a key; a key is used once in a pass, and none inside a step.
    fn enter(&mut self, round: &Round, key: &Arc<str>) -> Option<Place> {
        let taken = match step_scope::step_of(round) {
            None => self.replay.take(key),
            Some(step) => Err(Fault::Handler(format!(
                "{key:?} is asked or done inside the step {step:?}: what a step does is recorded as one"
            ))),
        };
        taken.map_err(|fault| self.fail(fault)).ok()
    }
}
