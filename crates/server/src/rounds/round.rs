//! One leg's state, shared between the handler and whoever drives it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use mrtr_codec::Digest;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::{InputRequest, InputResponses};

use super::journal::{Entry, EntryKind, Flow, Journal, MAX_ENTRY, Pin, StepKind, unordered};
use crate::asks;
use crate::pressure::Pressure;

/// At most how often the replicas of a flow move it on, and after how many rounds no more: clients give up after nine or ten
/// rounds of any kind.
const MOST_SHEDS: u8 = 2;
const LAST_SHED: u64 = 6;

/// The state of one leg.
pub(crate) struct Round {
    flow: Flow,
    /// The digest of the answers that were known when the leg began.
    known: Digest,
    capabilities: ClientCapabilities,
    pressure: Arc<Pressure>,
    state: Mutex<State>,
}

struct State {
    journal: Journal,
    /// Answers that arrived with this request. They enter the journal when their question accepts them,
    /// so that it stays in the order in which things were learned.
    fresh: Vec<Entry>,
    /// Questions that wait for the next leg.
    open: Vec<Open>,
    /// Keys that this pass has used.
    used: Vec<String>,
    steps_in_flight: usize,
    /// How many wait for the round to end without asking anything.
    moving_on: usize,
    /// Whether a step was done on this leg.
    has_news: bool,
    /// Whether another replica is to go on, since this one had better not.
    shed: bool,
    fault: Option<Fault>,
    closed: bool,
    driver: Option<Waker>,
    /// How often something happened that the driver has to look at.
    activity: u64,
    /// Who waits for the end of the round. In a task of its own, nothing else would end the wait.
    waiters: Vec<Waker>,
}

/// A question that waits.
pub(crate) struct Open {
    pub(crate) key: String,
    pub(crate) request: InputRequest,
    pub(crate) pin: Pin,
}

/// Why a flow cannot go on. The handler does not see it: it is dropped.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// A mistake in the handler.
    Handler(String),
    /// The handler asked what the client does not support.
    Capability(Box<ClientCapabilities>),
    /// The code is not the one that recorded the journal.
    Changed(String),
    /// The handler panicked.
    Panicked(String),
}

impl Fault {
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::Panicked(text.unwrap_or_else(|| "no message".to_owned()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(why) | Self::Changed(why) => f.write_str(why),
            Self::Capability(_) => {
                f.write_str("the client lacks a capability that the handler needs")
            }
            Self::Panicked(why) => write!(f, "the handler panicked: {why}"),
        }
    }
}

/// What became of a look at a question.
pub(crate) enum Asked<T> {
    Answered(T),
    /// It is open, or the flow has a fault: in both cases the round will end.
    Waiting,
    Closed,
}

/// What became of the start of a step.
pub(crate) enum Begun {
    /// Its result, or its error.
    Recorded(Result<String, String>),
    Run,
    /// Another replica does it: the round is to end before.
    MoveOn,
    /// The round has ended or the flow has a fault; the handler goes no further.
    Never,
}

impl Round {
    /// Starts a leg. `asked` are the questions of the state that came with it; a response to anything
    /// else is not looked at.
    pub(crate) fn new(
        flow: Flow,
        journal: Journal,
        asked: &[(String, Pin)],
        responses: InputResponses,
        capabilities: ClientCapabilities,
        pressure: Arc<Pressure>,
    ) -> Self {
        let mut fresh = Vec::new();
        for (key, answer) in responses.0 {
            let pin = asked.iter().find_map(|(asked, pin)| (*asked == key).then_some(*pin));
            if let (Some(pin), None) = (pin, journal.position(&key)) {
                let (kind, value) = (EntryKind::Answer(pin), Box::<str>::from(answer).into());
                fresh.push(Entry { key, kind, value, used: false });
            }
        }
        let known = known(&journal, &fresh);
        let state = State {
            journal,
            fresh,
            open: Vec::new(),
            used: Vec::new(),
            steps_in_flight: 0,
            moving_on: 0,
            has_news: false,
            shed: false,
            fault: None,
            closed: false,
            driver: None,
            activity: 0,
            waiters: Vec::new(),
        };
        Self { flow, known, capabilities, pressure, state: Mutex::new(state) }
    }

    pub(crate) fn flow(&self) -> Flow {
        self.flow
    }

    /// The digest of the answers that were known when the leg began: earlier ones, and those that came with it.
    pub(crate) fn known(&self) -> Digest {
        self.known
    }

    pub(crate) fn capabilities(&self) -> &ClientCapabilities {
        &self.capabilities
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in somebody's `Deserialize` leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// First look at a question: its answer if it has one that fits, else it opens.
    ///
    /// `decode` says why an answer does not fit; then the question is asked again with the reason.
    pub(crate) fn ask<T>(
        &self,
        key: &str,
        request: &InputRequest,
        pin: Pin,
        waker: &Waker,
        decode: impl FnOnce(&str) -> Result<T, String>,
    ) -> Asked<T> {
        let mut state = self.lock();
        if state.closed {
            return Asked::Closed;
        }
        if !state.take_key(key) {
            return state.wait(waker);
        }
        let mut request = request.clone();
        match state.look_up(key, pin, decode) {
            Recorded::Fits(answer) => return Asked::Answered(answer),
            Recorded::Fault(fault) => {
                state.fail(fault);
                return state.wait(waker);
            }
            Recorded::Ask(None) => {}
            Recorded::Ask(Some(reason)) => asks::add_reason(&mut request, &reason),
        }
        if let Some(missing) = asks::missing(&request, &self.capabilities) {
            state.fail(Fault::Capability(Box::new(missing)));
            return state.wait(waker);
        }
        state.open.push(Open { key: key.to_owned(), request, pin });
        state.keep_on();
        state.wake_driver();
        state.wait(waker)
    }

    /// Whether the round has ended; until it has, `waker` waits for that.
    pub(crate) fn is_closed(&self, waker: &Waker) -> bool {
        let mut state = self.lock();
        if !state.closed {
            let _: Asked<()> = state.wait(waker);
        }
        state.closed
    }

    /// A question whose future was dropped before the round ended is not asked.
    pub(crate) fn withdraw(&self, key: &str) {
        self.lock().open.retain(|open| open.key != key);
    }

    /// Whether the pass has not yet come to where the last leg ended: to all that was recorded, and to
    /// the questions that were answered since.
    pub(crate) fn is_replaying(&self) -> bool {
        let state = self.lock();
        !state.fresh.is_empty() || state.journal.entries.iter().any(|entry| !entry.used)
    }

    /// First look at a step. If `may_shed`, it may be left to another replica.
    pub(crate) fn begin_step(&self, key: &str, may_shed: bool) -> Begun {
        let mut state = self.lock();
        if state.closed || state.fault.is_some() || !state.take_key(key) {
            return Begun::Never;
        }
        let kind_was = |kind| match kind {
            EntryKind::Step(_) => None,
            EntryKind::Answer(_) => Some("a question"),
        };
        let recorded = match state.journal.position(key) {
            Some(at) => state.journal.entries.get_mut(at),
            None => state.fresh.iter_mut().find(|entry| entry.key == key),
        };
        let Some(entry) = recorded else {
            let Flow { rounds, sheds, .. } = self.flow;
            let may_shed = may_shed && sheds < MOST_SHEDS && rounds < LAST_SHED;
            if may_shed && state.may_shed() && self.pressure.is_high() {
                state.shed = true;
                return Begun::MoveOn;
            }
            state.steps_in_flight += 1;
            return Begun::Run;
        };
        if let Some(was) = kind_was(entry.kind) {
            let why = format!("{key:?} is a step now, but was {was} when it was recorded");
            state.fail(Fault::Changed(why));
            return Begun::Never;
        }
        entry.used = true;
        let value = entry.value.clone();
        match entry.kind {
            EntryKind::Step(StepKind { failed: true, .. }) => Begun::Recorded(Err(value)),
            _ => Begun::Recorded(Ok(value)),
        }
    }

    /// Another look at a step that was left to another replica: whether it is to be done here after all.
    pub(crate) fn begin_after_all(&self) -> bool {
        let mut state = self.lock();
        let begins = !state.shed && !state.closed && state.fault.is_none();
        state.steps_in_flight += usize::from(begins);
        begins
    }

    /// Asks that the round ends when there is nothing to wait for but answers, whether there is a question or not.
    pub(crate) fn move_on(&self, waker: &Waker) {
        let mut state = self.lock();
        state.moving_on += 1;
        state.wake_driver();
        let _: Asked<()> = state.wait(waker);
    }

    /// Whether the round ends because this replica had better not go on.
    pub(crate) fn was_shed(&self) -> bool {
        self.lock().shed
    }

    /// Whoever asked for it does not wait any more.
    pub(crate) fn stay(&self) {
        let mut state = self.lock();
        state.moving_on = state.moving_on.saturating_sub(1);
    }

    /// Ends a step, with its result if it has one to record.
    pub(crate) fn end_step(&self, key: &str, result: Option<(StepKind, String)>) {
        let mut state = self.lock();
        state.steps_in_flight = state.steps_in_flight.saturating_sub(1);
        if let Some((kind, value)) = result {
            let (length, kind) = (value.len(), EntryKind::Step(kind));
            let entry = Entry { key: key.to_owned(), kind, value, used: true };
            state.journal.entries.push(entry);
            state.has_news = true;
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

    /// Called before each poll of the handler.
    pub(crate) fn watch(&self, driver: &Waker) {
        self.lock().driver = Some(driver.clone());
    }

    /// How often something happened that the driver has to look at.
    pub(crate) fn activity(&self) -> u64 {
        self.lock().activity
    }

    /// The fault, if there is one.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.lock().fault.clone()
    }

    /// Whether there is nothing to wait for but answers.
    pub(crate) fn is_suspended(&self) -> bool {
        self.lock().is_suspended()
    }

    /// Ends the round, if there is still nothing to wait for but answers and nothing has happened since
    /// `activity`. What is decided and what is done are one: no step can begin in between.
    pub(crate) fn close_if_suspended(&self, activity: u64) -> Option<(Journal, Vec<Open>)> {
        let mut state = self.lock();
        (state.is_suspended() && state.activity == activity).then(|| state.close())
    }

    /// Ends the round. Whoever waits elsewhere learns of it; nothing is recorded any more.
    pub(crate) fn close(&self) -> (Journal, Vec<Open>) {
        self.lock().close()
    }
}

enum Recorded<T> {
    Fits(T),
    /// It is asked, with the reason why the last answer did not do, if there was one.
    Ask(Option<String>),
    Fault(Fault),
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

    fn wait<T>(&mut self, waker: &Waker) -> Asked<T> {
        if !self.waiters.iter().any(|other| other.will_wake(waker)) {
            self.waiters.push(waker.clone());
        }
        Asked::Waiting
    }

    /// Whether the flow may be left to another replica: with something new, and without a question. An answer that came in
    /// between would give a step another idempotency key than it may have run under on a leg whose response was lost.
    fn may_shed(&self) -> bool {
        self.shed || (self.has_news && self.open.is_empty() && self.steps_in_flight == 0)
    }

    /// There is a question: what was left to another replica is done here.
    fn keep_on(&mut self) {
        if std::mem::take(&mut self.shed) {
            self.waiters.drain(..).for_each(Waker::wake);
        }
    }

    fn is_suspended(&self) -> bool {
        let waits = !self.open.is_empty() || self.moving_on > 0;
        waits && self.steps_in_flight == 0 && self.fault.is_none()
    }

    fn close(&mut self) -> (Journal, Vec<Open>) {
        self.closed = true;
        self.driver = None;
        self.waiters.drain(..).for_each(Waker::wake);
        let mut journal = std::mem::take(&mut self.journal);
        // Answers whose question this pass has not come to are kept for the next.
        journal.entries.append(&mut self.fresh);
        (journal, std::mem::take(&mut self.open))
    }

    /// Uses a key; a key is used once per pass.
    fn take_key(&mut self, key: &str) -> bool {
        let first = !self.used.iter().any(|used| used == key);
        if first {
            self.used.push(key.to_owned());
        } else {
            self.fail(Fault::Handler(format!("the key {key:?} is used twice in one pass")));
        }
        first
    }

    /// Holds an answer against its question as it reads now. An answer that does not do is forgotten.
    fn look_up<T>(
        &mut self,
        key: &str,
        pin: Pin,
        decode: impl FnOnce(&str) -> Result<T, String>,
    ) -> Recorded<T> {
        if let Some(at) = self.fresh.iter().position(|entry| entry.key == key) {
            let entry = self.fresh.remove(at);
            return match entry.read(pin, decode) {
                Ok(answer) => {
                    self.journal.entries.push(Entry { used: true, ..entry });
                    Recorded::Fits(answer)
                }
                Err(reason) => Recorded::Ask(reason),
            };
        }
        let Some(at) = self.journal.position(key) else { return Recorded::Ask(None) };
        let step_after = self.journal.step_after(at).map(|step| step.key.clone());
        let Some(entry) = self.journal.entries.get_mut(at) else { return Recorded::Ask(None) };
        if let EntryKind::Step(_) = entry.kind {
            let why = format!("{key:?} is a question now, but was a step when it was recorded");
            return Recorded::Fault(Fault::Changed(why));
        }
        match (entry.read(pin, decode), step_after) {
            (Ok(answer), _) => {
                entry.used = true;
                Recorded::Fits(answer)
            }
            // Something was done on the strength of this answer: it cannot be taken back silently.
            (Err(_), Some(step)) => Recorded::Fault(Fault::Changed(format!(
                "the question {key:?} reads differently than when it was answered, and the step \
                 {step:?} was done since"
            ))),
            (Err(reason), None) => {
                self.journal.entries.remove(at);
                Recorded::Ask(reason)
            }
        }
    }
}

impl Entry {
    /// Reads an answer to the question with this pin; the error is the reason to ask again, if it is one
    /// that a person can mend.
    fn read<T>(
        &self,
        pin: Pin,
        decode: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Option<String>> {
        if self.kind != EntryKind::Answer(pin) {
            // After an upgrade once; on every round, if the message is made of what changes.
            tracing::warn!(
                target: "mrtr::rounds",
                key = self.key,
                "the question reads differently than when it was answered"
            );
            return Err(None);
        }
        decode(&self.value).map_err(Some)
    }
}

/// The answers that are known. They count by their meaning, not by how a client writes them. Results of steps do not: how
/// many of them are known when a leg begins depends on where the leg before ended, which is chance where a replica lets
/// others go on, and a step has to have the same key wherever it runs.
fn known(journal: &Journal, fresh: &[Entry]) -> Digest {
    let mut parts = Vec::new();
    for entry in journal.entries.iter().chain(fresh) {
        if let EntryKind::Answer(_) = entry.kind {
            let value = Digest::of_json(Some(&entry.value));
            let value = value.unwrap_or_else(|_| Digest::of_parts(&[entry.value.as_bytes()]));
            parts.push((entry.key.as_bytes(), value));
        }
    }
    unordered(parts)
}
