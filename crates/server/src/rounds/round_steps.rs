//! The start and the end of a round's steps.

use std::sync::Arc;

use super::fault::Fault;
use super::journal::StepKind;
use super::round::{Round, State};

/// Maximum number of hand-overs of one call, and the last round that may end with one. Many clients
/// give up after nine or ten rounds of any kind.
const MAX_HAND_OVERS: u8 = 2;
const LAST_HAND_OVER_ROUND: u64 = 6;

/// The result of starting a step.
pub(super) enum StepStart<T> {
    /// The step ran in an earlier round.
    Recorded(T),
    /// The step under this key runs, after this change of the journal has been committed, if any.
    Run(Arc<str>, Option<u64>),
    /// The round is to end, so that another replica runs the step under this key.
    HandOver(Arc<str>),
    /// The round has ended or the call has a fault: the handler does not continue.
    Abandoned,
}

impl Round {
    /// Starts a step, unless its result is recorded or another replica is to run it.
    ///
    /// `decode` reads the recorded result.
    pub(super) fn begin_step<T>(
        &self,
        key: &str,
        decode: impl FnOnce(StepKind, &str) -> Result<T, String>,
    ) -> StepStart<T> {
        let mut state = self.lock();
        if state.closed || state.fault().is_some() {
            return StepStart::Abandoned;
        }
        let Some(location) = state.use_key(self, key) else { return StepStart::Abandoned };
        let limits = state.limits();
        let recorded = state.replay.step(&location).and_then(|step| {
            let decoded = step.map(|(kind, value)| decode(kind, value)).transpose();
            let why = |why| format!("the recorded result of step {key:?} has another type: {why}");
            decoded.map_err(|error| Fault::Changed(why(error)))
        });
        let checked = match recorded {
            Ok(Some(recorded)) => return StepStart::Recorded(recorded),
            Ok(None) if state.is_stopping => return StepStart::Abandoned,
            Ok(None) => state.replay.check_room(key, limits),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = checked {
            state.fail(fault);
            return StepStart::Abandoned;
        }
        let key = location.into_key(key);
        // The client takes no part in the hand-over of a task.
        let is_task = state.commits.is_some();
        let may_hand_over =
            is_task || (self.hand_overs < MAX_HAND_OVERS && self.rounds() < LAST_HAND_OVER_ROUND);
        let policy = &self.runtime().hand_over;
        let is_wanted = || if is_task { policy.is_closing() } else { policy.should_hand_over() };
        if may_hand_over && state.may_hand_over() && is_wanted() {
            state.handed_over = true;
            return StepStart::HandOver(key);
        }
        if let Err(fault) = self.id() {
            state.fail(fault);
            return StepStart::Abandoned;
        }
        state.steps_in_flight += 1;
        state.has_effect = true;
        StepStart::Run(key, state.uncommitted_decision())
    }

    /// Starts a step after it was left to another replica, if the hand-over was cancelled.
    pub(super) fn begin_handed_over_step(&self) -> bool {
        let mut state = self.lock();
        let begins =
            !state.handed_over && !state.closed && !state.is_stopping && state.fault().is_none();
        state.steps_in_flight += usize::from(begins);
        state.has_effect |= begins;
        begins
    }

    /// Ends a step, and records its result if it has one.
    fn end_step(&self, key: &Arc<str>, result: Option<(StepKind, String)>, is_ahead: bool) {
        let mut state = self.lock();
        state.steps_in_flight = state.steps_in_flight.saturating_sub(1);
        if let Some(result) = result {
            state.record_step(key, result, is_ahead);
        }
        state.wake_driver();
        state.wake_writer();
    }
}

impl State {
    /// Returns true if the call may be handed over: after a step of this round, without an open
    /// question.
    ///
    /// An answer that arrived in between would change the idempotency key of a step that may have
    /// run already, in a round whose response was lost.
    ///
    /// A task takes in answers only at the beginning of an epoch, so it may be handed over before
    /// any step.
    fn may_hand_over(&self) -> bool {
        let is_idle = self.open.is_empty() && self.steps_in_flight == 0;
        self.handed_over || (is_idle && (self.replay.has_new_step() || self.commits.is_some()))
    }
}

/// A step in flight. Dropping it ends the step, and records the result if there is one.
pub(super) struct InFlightGuard {
    pub(super) round: Arc<Round>,
    pub(super) key: Arc<str>,
    pub(super) result: Option<(StepKind, String)>,
    /// True if an outcome was [recorded ahead](Round::record_ahead), which the result replaces.
    pub(super) is_ahead: bool,
}

impl InFlightGuard {
    pub(super) fn new(round: &Arc<Round>, key: Arc<str>) -> Self {
        Self { round: Arc::clone(round), key, result: None, is_ahead: false }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.round.end_step(&self.key, self.result.take(), self.is_ahead);
    }
}
