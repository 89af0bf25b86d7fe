//! One leg's state, shared between the handler and whoever drives it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::{InputRequest, InputResponses};

use super::journal::{Entry, EntryKind, Flow, Journal, MAX_ENTRY, Pin};
use crate::asks;

/// The state of one leg.
pub(crate) struct Round {
    flow: Flow,
    capabilities: ClientCapabilities,
    state: Mutex<State>,
}

struct State {
    journal: Journal,
    /// Answers that arrived with this request; they are checked when their question is reached.
    fresh: Vec<String>,
    /// Questions that wait for the next leg.
    open: Vec<Open>,
    /// Keys that this pass has used.
    used: Vec<String>,
    steps_in_flight: usize,
    fault: Option<Fault>,
    closed: bool,
    driver: Option<Waker>,
}

/// A question that waits.
pub(crate) struct Open {
    pub(crate) key: String,
    pub(crate) request: InputRequest,
    pub(crate) pin: Pin,
    waker: Waker,
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
    Waiting,
    Closed,
}

/// What became of the start of a step.
pub(crate) enum Begun {
    Recorded(String),
    Run,
    /// The flow has a fault; the handler goes no further.
    Never,
}

impl Round {
    /// Starts a leg. `asked` are the questions of the state that came with it; a response to anything
    /// else is not looked at.
    pub(crate) fn new(
        flow: Flow,
        mut journal: Journal,
        asked: &[(String, Pin)],
        responses: &InputResponses,
        capabilities: ClientCapabilities,
    ) -> Self {
        let mut fresh = Vec::new();
        for (key, answer) in &responses.0 {
            let pin = asked.iter().find_map(|(asked, pin)| (asked == key).then_some(*pin));
            let (Some(pin), None) = (pin, journal.position(key)) else {
                continue;
            };
            let (key, value) = (key.clone(), answer.get().to_owned());
            fresh.push(key.clone());
            journal.entries.push(Entry { key, kind: EntryKind::Answer(pin), value, used: false });
        }
        let state = State {
            journal,
            fresh,
            open: Vec::new(),
            used: Vec::new(),
            steps_in_flight: 0,
            fault: None,
            closed: false,
            driver: None,
        };
        Self { flow, capabilities, state: Mutex::new(state) }
    }

    pub(crate) fn flow(&self) -> Flow {
        self.flow
    }

    pub(crate) fn capabilities(&self) -> &ClientCapabilities {
        &self.capabilities
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs while it is held, so a panic leaves nothing half done.
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
            return Asked::Waiting;
        }
        let mut request = request.clone();
        if let Some(at) = state.journal.position(key) {
            match state.recorded_answer(at, pin, decode) {
                Recorded::Fits(answer) => return Asked::Answered(answer),
                Recorded::Fault(fault) => {
                    state.fail(fault);
                    return Asked::Waiting;
                }
                Recorded::AskAgain(reason) => {
                    if let Some(reason) = reason {
                        asks::add_reason(&mut request, &reason);
                    }
                    state.journal.entries.remove(at);
                }
            }
        }
        if let Some(missing) = asks::missing(&request, &self.capabilities) {
            state.fail(Fault::Capability(Box::new(missing)));
            return Asked::Waiting;
        }
        state.open.push(Open { key: key.to_owned(), request, pin, waker: waker.clone() });
        state.wake_driver();
        Asked::Waiting
    }

    /// A later look at a question that is open.
    pub(crate) fn still_open(&self, key: &str, waker: &Waker) -> bool {
        let mut state = self.lock();
        if let Some(open) = state.open.iter_mut().find(|open| open.key == key) {
            open.waker.clone_from(waker);
        }
        !state.closed
    }

    /// A question whose future was dropped before the round ended is not asked.
    pub(crate) fn withdraw(&self, key: &str) {
        self.lock().open.retain(|open| open.key != key);
    }

    /// Whether the pass has not yet come to where the last leg ended: to all that was recorded, and to
    /// the questions that were answered since.
    pub(crate) fn is_replaying(&self) -> bool {
        self.lock().journal.entries.iter().any(|entry| !entry.used)
    }

    pub(crate) fn begin_step(&self, key: &str) -> Begun {
        let mut state = self.lock();
        if state.closed || !state.take_key(key) {
            return Begun::Never;
        }
        let recorded =
            state.journal.entries.iter_mut().find(|entry| entry.key == key).map(|entry| {
                entry.used = true;
                (entry.kind, entry.value.clone())
            });
        match recorded {
            None => {
                state.steps_in_flight += 1;
                Begun::Run
            }
            Some((EntryKind::Step, value)) => Begun::Recorded(value),
            Some((EntryKind::Answer(_), _)) => {
                let why = format!("{key:?} is a step now, but was a question when it was recorded");
                state.fail(Fault::Changed(why));
                Begun::Never
            }
        }
    }

    /// Ends a step, with its result if it has one to record.
    pub(crate) fn end_step(&self, key: &str, result: Option<String>) {
        let mut state = self.lock();
        state.steps_in_flight = state.steps_in_flight.saturating_sub(1);
        if let Some(value) = result {
            if value.len() > MAX_ENTRY {
                let why = format!(
                    "the result of step {key:?} has {} bytes; at most {MAX_ENTRY} are kept",
                    value.len()
                );
                state.fail(Fault::Handler(why));
            } else {
                let kind = EntryKind::Step;
                state.journal.entries.push(Entry { key: key.to_owned(), kind, value, used: true });
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

    /// Whether the flow has a fault, or there is nothing to wait for but answers. `woken` is whether the
    /// handler's waker was fired during its last poll or since.
    pub(crate) fn verdict(&self, woken: bool) -> Verdict {
        let state = self.lock();
        if let Some(fault) = &state.fault {
            Verdict::Fault(fault.clone())
        } else if state.open.is_empty() || state.steps_in_flight > 0 || woken {
            Verdict::Wait
        } else {
            Verdict::Suspend
        }
    }

    /// Ends the round. Questions that are held elsewhere learn of it; nothing is recorded any more.
    pub(crate) fn close(&self) -> (Journal, Vec<Open>) {
        let mut state = self.lock();
        state.closed = true;
        state.driver = None;
        let open = std::mem::take(&mut state.open);
        let journal = std::mem::take(&mut state.journal);
        drop(state);
        for question in &open {
            question.waker.wake_by_ref();
        }
        (journal, open)
    }
}

/// See [`Round::verdict`].
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Wait,
    Suspend,
    Fault(Fault),
}

enum Recorded<T> {
    Fits(T),
    AskAgain(Option<String>),
    Fault(Fault),
}

impl State {
    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
        self.wake_driver();
    }

    fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
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

    /// Holds the answer at `at` against its question as it reads now.
    fn recorded_answer<T>(
        &mut self,
        at: usize,
        pin: Pin,
        decode: impl FnOnce(&str) -> Result<T, String>,
    ) -> Recorded<T> {
        let step_after = self.journal.step_after(at).map(|step| step.key.clone());
        let Some(entry) = self.journal.entries.get_mut(at) else {
            return Recorded::AskAgain(None);
        };
        let fresh = self.fresh.contains(&entry.key);
        let why = match entry.kind {
            EntryKind::Step => {
                let why = format!(
                    "{:?} is a question now, but was a step when it was recorded",
                    entry.key
                );
                return Recorded::Fault(Fault::Changed(why));
            }
            EntryKind::Answer(asked) if asked != pin => {
                // After an upgrade once; on every round, if the message is made of what changes.
                tracing::warn!(
                    target: "mrtr::rounds",
                    key = entry.key,
                    "the question reads differently than when it was answered"
                );
                None
            }
            EntryKind::Answer(_) => match decode(&entry.value) {
                Ok(answer) => {
                    entry.used = true;
                    return Recorded::Fits(answer);
                }
                Err(why) => Some(why),
            },
        };
        match step_after {
            // Something was done on the strength of this answer: it cannot be taken back silently.
            Some(step) if !fresh => Recorded::Fault(Fault::Changed(format!(
                "the question {:?} reads differently than when it was answered, and the step {step:?} was done since",
                entry.key
            ))),
            _ => Recorded::AskAgain(why),
        }
    }
}
