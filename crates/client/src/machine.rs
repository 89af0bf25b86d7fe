//! The loop of a call that asks back, as a pure state machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mrtr_schema::InvalidValue;
use mrtr_schema::Object;
use mrtr_schema::input::{InputRequest, InputRequests, InputRequiredResult, InputResponses};
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::peer_text::quote;
use mrtr_schema::result::ResultType;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::pending_call::{PendingCall, may_ask};

/// Gives every request an id of its own. Clones count on together.
#[derive(Debug, Clone, Default)]
pub struct RequestIds(Arc<AtomicI64>);

impl RequestIds {
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
    /// The answers to the last [`Action::RequestInput`], one for each question.
    Input(InputResponses),
    /// The time of the last [`Action::Wait`] is over.
    Waited,
    /// The connection broke before the last [`Action::Send`] was answered, and the caller knows that it is safe to send it
    /// again: the server may have acted on it. It goes out under another id.
    Broken,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Send this, and come back with [`Event::Response`].
    Send(Request),
    /// Get these answered, and come back with [`Event::Input`].
    RequestInput(InputRequests),
    /// Wait this long, give or take, and come back with [`Event::Waited`].
    Wait(Duration),
    /// The call is done: this is its result, and its `resultType` is `complete`.
    Complete(Box<RawValue>),
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
/// At `Ask` and `Wait` the call can be [paused](Self::pause), and [resumed](Self::resume) by another machine.
///
/// Each leg is a new request with a new id. It carries the state of the result before it, byte for
/// byte, or none if that had none; and the answers to its questions, if it had any.
#[derive(Debug)]
pub struct Machine {
    ids: RequestIds,
    meta: RequestMeta,
    limits: RoundLimits,
    /// The call, as it could be written down.
    call: PendingCall,
    /// The answers of the last leg, until it was answered.
    answers: Option<InputResponses>,
    /// The last questions, for whoever reads an error.
    last_asked: Option<String>,
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
        ids: RequestIds,
        method: impl Into<String>,
        params: Vec<(String, Box<RawValue>)>,
        meta: RequestMeta,
        limits: RoundLimits,
    ) -> Result<(Self, Action), CallError> {
        let call = PendingCall::new(method.into(), params);
        let machine = Self::of(call, ids, meta, limits, Phase::Sent);
        let first = machine.leg()?;
        Ok((machine, first))
    }

    /// Goes on with a call, where it was: with [`Action::RequestInput`], or with [`Action::Wait`] if nothing is asked. What the limits have
    /// left of it counts on. `ids` need not be those of the process that began.
    pub fn resume(
        call: PendingCall,
        ids: RequestIds,
        meta: RequestMeta,
        limits: RoundLimits,
    ) -> (Self, Action) {
        let action = match call.questions().0.as_slice() {
            [] => Action::Wait(call.pause()),
            _ => Action::RequestInput(call.questions().clone()),
        };
        let phase =
            if let Action::RequestInput(_) = action { Phase::Asked } else { Phase::Waiting };
        (Self::of(call, ids, meta, limits, phase), action)
    }

    fn of(
        call: PendingCall,
        ids: RequestIds,
        meta: RequestMeta,
        limits: RoundLimits,
        phase: Phase,
    ) -> Self {
        let last_asked = call.asked.as_ref().map(last_asked);
        let (answers, renegotiated, accepted) = (None, false, Vec::new());
        Self { ids, meta, limits, call, answers, last_asked, renegotiated, accepted, phase }
    }

    /// The call as it can be written down, if the last action was [`Action::RequestInput`] or [`Action::Wait`].
    pub fn pause(self) -> Option<PendingCall> {
        matches!(self.phase, Phase::Asked | Phase::Waiting).then_some(self.call)
    }

    /// Takes results of these types for done as well: types that an extension defines. Others beside those of
    /// the core are refused.
    pub fn accept(&mut self, result_types: &[String]) {
        self.accepted = result_types.to_vec();
    }

    /// The call, as it is.
    pub(crate) fn call(&self) -> &PendingCall {
        &self.call
    }

    /// The last questions.
    pub(crate) fn last_asked(&self) -> Option<&str> {
        self.last_asked.as_deref()
    }

    /// How many rounds with questions there were.
    pub fn question_rounds(&self) -> u32 {
        self.call.question_rounds
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
            (Phase::Asked, Event::Input(answers)) => {
                let asked = self.call.asked.take().unwrap_or_default();
                let all = asked.0.iter().all(|(key, _)| answers.get(key).is_some());
                if !all || answers.0.len() != asked.0.len() {
                    return Err(CallError::request("there must be one answer for each question"));
                }
                self.phase = Phase::Sent;
                self.answers = Some(answers);
                self.leg()
            }
            (Phase::Waiting, Event::Waited) | (Phase::Sent, Event::Broken) => {
                self.phase = Phase::Sent;
                self.leg()
            }
            (phase, _) => Err(CallError::request(format!(
                "what was reported does not belong to a call in the phase {phase:?}"
            ))),
        }
    }

    fn leg(&self) -> Result<Action, CallError> {
        let id = self.ids.next();
        let params = Some(self.leg_params(&id, Object::new())?);
        Ok(Action::Send(Request::new(id, self.call.method.clone(), params)))
    }

    /// The parameters of the leg with this id, with more in its `_meta`.
    pub(crate) fn leg_params(&self, id: &RequestId, more: Object) -> Result<Params, CallError> {
        let mut meta = self.meta.clone();
        meta.progress_token = meta.progress_token.map(|_| id.clone());
        if let Some((_, own)) = self.call.params.iter().find(|(name, _)| name == META) {
            let mut own: RequestMeta = serde_json::from_str(own.get())
                .map_err(|e| CallError::request(format!("`_meta` cannot be sent: {e}")))?;
            meta.other.extend(std::mem::take(&mut own.other));
            if own != RequestMeta::default() {
                return Err(CallError::request("`_meta` has a key that the client sets itself"));
            }
        }
        meta.other.extend(more);
        Params::new(&Leg { machine: self, meta }).map_err(|e| {
            CallError::request(format!("the parameters cannot be written as JSON: {e}"))
        })
    }

    fn result(&mut self, result: Box<RawValue>) -> Result<Action, CallError> {
        let malformed =
            |e: serde_json::Error| CallError::protocol(format!("malformed result: {e}"));
        match ResultType::from_result(&result).map_err(malformed)? {
            ResultType::Complete => Ok(Action::Complete(result)),
            ResultType::InputRequired => {
                let asks: InputRequiredResult =
                    serde_json::from_str(result.get()).map_err(malformed)?;
                self.input_required(asks)
            }
            ResultType::Other(other) if self.accepted.contains(&other) => {
                Ok(Action::Complete(result))
            }
            ResultType::Other(other) => {
                Err(CallError::protocol(format!("unknown resultType {}", quote(&other))))
            }
        }
    }

    fn input_required(&mut self, asks: InputRequiredResult) -> Result<Action, CallError> {
        if !may_ask(&self.call.method) {
            return Err(CallError::protocol(format!("{} may not ask for input", self.call.method)));
        }
        let InputRequiredResult { input_requests, request_state, .. } = asks;
        if input_requests.is_none() && request_state.is_none() {
            return Err(CallError::protocol(
                "a result asks for input, but holds neither questions nor state",
            ));
        }
        self.call.state = request_state;
        self.answers = None;
        match input_requests.filter(|requests| !requests.0.is_empty()) {
            Some(requests) => {
                self.call.question_rounds = self.call.question_rounds.saturating_add(1);
                self.call.pace = 0;
                if self.call.question_rounds > self.limits.questions {
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
                check(&requests)?;
                self.last_asked = Some(last_asked(&requests));
                self.call.asked = Some(requests.clone());
                self.phase = Phase::Asked;
                Ok(Action::RequestInput(requests))
            }
            None => {
                self.call.state_rounds = self.call.state_rounds.saturating_add(1);
                if self.call.state_rounds > self.limits.state_only {
                    let limit = self.limits.state_only;
                    return Err(CallError::rounds(format!(
                        "the server has put the call off more than {limit} times without asking anything{}",
                        self.last_asked
                            .as_ref()
                            .map_or_else(String::new, |last| format!("; it last asked {last}"))
                    )));
                }
                self.call.pace = self.call.pace.saturating_add(1);
                self.phase = Phase::Waiting;
                Ok(Action::Wait(self.call.pause()))
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

/// What may not be asked is not handed to anybody.
fn check(requests: &InputRequests) -> Result<(), CallError> {
    requests.0.iter().try_for_each(|(key, request)| {
        let wrong =
            |why: InvalidValue| CallError::protocol(format!("the question {}: {why}", quote(key)));
        request.validate().map_err(wrong)
    })
}

fn last_asked(requests: &InputRequests) -> String {
    let one = |(key, request): &(String, InputRequest)| match request {
        InputRequest::Elicit(params) => {
            format!("{} {}", quote(key), quote(params.message()))
        }
        other => format!("{} ({})", quote(key), other.method()),
    };
    requests.0.iter().take(3).map(one).collect::<Vec<_>>().join(", ")
}

/// What a caller gives of it goes along with what each request has.
const META: &str = "_meta";

/// The parameters of one leg.
struct Leg<'a> {
    machine: &'a Machine,
    meta: RequestMeta,
}

impl Serialize for Leg<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(META, &self.meta)?;
        let goes_on = self.machine.answers.is_some() || self.machine.call.state.is_some();
        for (name, value) in &self.machine.call.params {
            // Those of another leg, if the caller gave any, are not those of this one.
            let replaced = goes_on && matches!(name.as_str(), "inputResponses" | "requestState");
            if name != META && !replaced {
                map.serialize_entry(name, value)?;
            }
        }
        if let Some(answers) = &self.machine.answers {
            map.serialize_entry("inputResponses", answers)?;
        }
        if let Some(state) = &self.machine.call.state {
            map.serialize_entry("requestState", state)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
