//! The loop of a call that asks back, as a pure state machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mrtr_schema::input::{InputRequest, InputRequests, InputRequiredResult, InputResponses};
use mrtr_schema::jsonrpc::{self, ErrorObject, Request, RequestId, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::result::ResultType;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::CallError;

/// Gives every request an id of its own. Clones count on together.
#[derive(Debug, Clone, Default)]
pub struct Ids(Arc<AtomicI64>);

impl Ids {
    pub(crate) fn next(&self) -> RequestId {
        RequestId::Number(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// How often a server may come back before the call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundLimits {
    /// Rounds with questions. Default: 10.
    pub questions: u32,
    /// Rounds with state alone. Default: 10.
    pub state_only: u32,
    /// Questions in one round. Default: 64.
    pub per_round: usize,
}

impl Default for RoundLimits {
    fn default() -> Self {
        Self { questions: 10, state_only: 10, per_round: 64 }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The response to the last [`Action::Send`].
    Response(Result<Box<RawValue>, ErrorObject>),
    /// The answers to the last [`Action::Ask`], one for each question.
    Answers(InputResponses),
    /// The time of the last [`Action::Wait`] is over.
    Waited,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Send this, and come back with [`Event::Response`].
    Send(Request),
    /// Get these answered, and come back with [`Event::Answers`].
    Ask(InputRequests),
    /// Wait this long, give or take, and come back with [`Event::Waited`].
    Wait(Duration),
    /// The call is done: this is its result, and its `resultType` is `complete`.
    Done(Box<RawValue>),
}

/// A call on its way through the rounds.
///
/// ```text
///            ┌────────────── Waited ◄──────────────┐
///            ▼                                     │
/// start ──► Send ── Response: state only ───────► Wait
///            ▲ │
///            │ ├── Response: questions ─────────► Ask
///            │ │                                   │
///            └─┼────────────── Answers ◄───────────┘
///              ├── Response: complete ──────────► Done
///              └── Response: error, or one limit reached ──► Err
/// ```
///
/// Each leg is a new request with a new id. It carries the state of the result before it, byte for
/// byte, or none if that had none; and the answers to its questions, if it had any.
#[derive(Debug)]
pub struct Machine {
    ids: Ids,
    method: String,
    params: Vec<(String, Box<RawValue>)>,
    meta: RequestMeta,
    limits: RoundLimits,
    state: Option<String>,
    asked: Option<InputRequests>,
    /// The answers of the last leg, until it was answered.
    answers: Option<InputResponses>,
    question_rounds: u32,
    state_rounds: u32,
    /// State-only rounds since the last questions; they set the pace.
    pace: u32,
    renegotiated: bool,
    accepted: Vec<String>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sent,
    Asked,
    Waiting,
    Over,
}

impl Machine {
    /// Starts a call. `params` are those of the method, without `_meta`; `meta` goes with every leg. If it
    /// has a progress token, each leg gets its own id as the token.
    ///
    /// # Errors
    ///
    /// If the parameters cannot be written as JSON.
    pub fn start(
        ids: Ids,
        method: impl Into<String>,
        params: Vec<(String, Box<RawValue>)>,
        meta: RequestMeta,
        limits: RoundLimits,
    ) -> Result<(Self, Action), CallError> {
        let machine = Self {
            ids,
            method: method.into(),
            params,
            meta,
            limits,
            state: None,
            asked: None,
            answers: None,
            question_rounds: 0,
            state_rounds: 0,
            pace: 0,
            renegotiated: false,
            accepted: Vec::new(),
            phase: Phase::Sent,
        };
        let first = machine.leg()?;
        Ok((machine, first))
    }

    /// Takes results of these types for done as well: types that an extension defines. Others beside those of
    /// the core are refused.
    pub fn accept(&mut self, result_types: &[String]) {
        self.accepted = result_types.to_vec();
    }

    /// How many rounds with questions there were.
    pub fn question_rounds(&self) -> u32 {
        self.question_rounds
    }

    /// Says what to do next.
    ///
    /// # Errors
    ///
    /// If the server refused the call or broke the protocol, a limit is reached, or `event` does not
    /// belong to the last action. The call is over then.
    pub fn next(&mut self, event: Event) -> Result<Action, CallError> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        match (phase, event) {
            (Phase::Sent, Event::Response(Ok(result))) => self.result(result),
            (Phase::Sent, Event::Response(Err(error))) => self.refused(error),
            (Phase::Asked, Event::Answers(answers)) => {
                let asked = self.asked.take().unwrap_or_default();
                let all = asked.0.iter().all(|(key, _)| answers.get(key).is_some());
                if !all || answers.0.len() != asked.0.len() {
                    return Err(CallError::request("there must be one answer for each question"));
                }
                self.phase = Phase::Sent;
                self.answers = Some(answers);
                self.leg()
            }
            (Phase::Waiting, Event::Waited) => {
                self.phase = Phase::Sent;
                self.leg()
            }
            (phase, event) => Err(CallError::request(format!(
                "{event:?} does not belong to a call in the phase {phase:?}"
            ))),
        }
    }

    fn leg(&self) -> Result<Action, CallError> {
        let id = self.ids.next();
        let mut meta = self.meta.clone();
        meta.progress_token = meta.progress_token.map(|_| id.clone());
        let leg = Leg { machine: self, meta };
        let params = jsonrpc::raw(&leg).map_err(|e| {
            CallError::request(format!("the parameters cannot be written as JSON: {e}"))
        })?;
        let (jsonrpc, method) = (jsonrpc::Version, self.method.clone());
        Ok(Action::Send(Request { jsonrpc, id, method, params: Some(params) }))
    }

    fn result(&mut self, result: Box<RawValue>) -> Result<Action, CallError> {
        let malformed =
            |e: serde_json::Error| CallError::protocol(format!("malformed result: {e}"));
        match ResultType::of(&result).map_err(malformed)? {
            ResultType::Complete => Ok(Action::Done(result)),
            ResultType::InputRequired => {
                let asks: InputRequiredResult =
                    serde_json::from_str(result.get()).map_err(malformed)?;
                self.input_required(asks)
            }
            ResultType::Other(other) if self.accepted.contains(&other) => Ok(Action::Done(result)),
            ResultType::Other(other) => Err(CallError::protocol(format!(
                "unknown resultType {}",
                ErrorObject::quote(&other)
            ))),
        }
    }

    fn input_required(&mut self, asks: InputRequiredResult) -> Result<Action, CallError> {
        if !matches!(self.method.as_str(), "tools/call" | "prompts/get" | "resources/read") {
            return Err(CallError::protocol(format!("{} may not ask for input", self.method)));
        }
        let InputRequiredResult { input_requests, request_state, .. } = asks;
        if input_requests.is_none() && request_state.is_none() {
            return Err(CallError::protocol(
                "a result asks for input, but holds neither questions nor state",
            ));
        }
        self.state = request_state;
        self.answers = None;
        match input_requests.filter(|requests| !requests.0.is_empty()) {
            Some(requests) => {
                self.question_rounds += 1;
                self.pace = 0;
                if self.question_rounds > self.limits.questions {
                    let limit = self.limits.questions;
                    let last = last_asked(&requests);
                    return Err(CallError::rounds(format!(
                        "the server still asks after {limit} rounds; the last questions were {last}"
                    )));
                }
                if requests.0.len() > self.limits.per_round {
                    return Err(CallError::rounds(format!(
                        "the server asks {} questions at once; at most {} are answered",
                        requests.0.len(),
                        self.limits.per_round
                    )));
                }
                self.asked = Some(requests.clone());
                self.phase = Phase::Asked;
                Ok(Action::Ask(requests))
            }
            None => {
                self.state_rounds += 1;
                if self.state_rounds > self.limits.state_only {
                    let limit = self.limits.state_only;
                    return Err(CallError::rounds(format!(
                        "the server has put the call off more than {limit} times without asking anything"
                    )));
                }
                self.pace += 1;
                self.phase = Phase::Waiting;
                Ok(Action::Wait(Duration::from_millis(250.min(50 << (self.pace - 1).min(3)))))
            }
        }
    }

    fn refused(&mut self, error: ErrorObject) -> Result<Action, CallError> {
        let version = self.meta.protocol_version.as_deref().unwrap_or_default();
        let speaks_ours = error.code == code::UNSUPPORTED_PROTOCOL_VERSION
            && error
                .data
                .as_ref()
                .and_then(|data| data.get("supported"))
                .and_then(Value::as_array)
                .is_some_and(|supported| {
                    supported.iter().any(|other| other.as_str() == Some(version))
                });
        // A server that refuses a version and lists it at once has a moment of change; once is enough.
        if speaks_ours && !std::mem::replace(&mut self.renegotiated, true) {
            self.phase = Phase::Sent;
            return self.leg();
        }
        Err(CallError::server(error))
    }
}

fn last_asked(requests: &InputRequests) -> String {
    let one = |(key, request): &(String, InputRequest)| match request {
        InputRequest::Elicit(params) => {
            format!("{} {}", ErrorObject::quote(key), ErrorObject::quote(params.message()))
        }
        other => format!("{} ({})", ErrorObject::quote(key), other.method()),
    };
    requests.0.iter().take(3).map(one).collect::<Vec<_>>().join(", ")
}

/// The parameters of one leg.
struct Leg<'a> {
    machine: &'a Machine,
    meta: RequestMeta,
}

impl Serialize for Leg<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("_meta", &self.meta)?;
        for (name, value) in &self.machine.params {
            map.serialize_entry(name, value)?;
        }
        if let Some(answers) = &self.machine.answers {
            map.serialize_entry("inputResponses", answers)?;
        }
        if let Some(state) = &self.machine.state {
            map.serialize_entry("requestState", state)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
