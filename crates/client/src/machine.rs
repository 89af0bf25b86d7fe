//! The loop of a call with multiple rounds, as a pure state machine.

mod event;
mod input_requests;
mod params;
mod task;

use mrtr_schema::Object;
use mrtr_schema::input::{InputRequests, InputRequiredResult, InputResponses};
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId, code};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use mrtr_schema::result::ResultType;
use mrtr_schema::tasks::{self, Task};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use self::input_requests::check_requests;
use self::input_requests::summary;
use self::params::{META, RequestParams};
use crate::error::CallError;
use crate::json::malformed;
use crate::pending_call::{PendingCall, allows_input};
use crate::request_ids::RequestIds;
use crate::round_limits::RoundLimits;

pub use event::{Action, Event};

/// One call, as a state machine without a clock, a socket or a task.
///
/// ```text
///            ┌─────────────── Waited ◄──────────────────┐
///            ▼                                          │
/// start ──► Send ── Response: request state only ────► Wait
///            ▲ │
///            │ ├── Response: input requests ─────► RequestInput
///            │ │                                        │
///            └─┼──────────────── Input ◄────────────────┘
///              ├── Response: complete ─────────────► Complete
///              └── Response: error, or a limit ────► Err
/// ```
///
/// A call of `tools/call` that declares the extension `io.modelcontextprotocol/tasks` can become a
/// task. From then on, the machine sends `tasks/get` after each `Wait`, and `tasks/update` with the
/// responses to input requests that were not answered before. The result of the task completes the
/// call.
///
/// At `RequestInput` and `Wait` the call can be [paused](Self::pause), and
/// [resumed](Self::resume) by another machine.
///
/// Each request has a new id. It carries the request state of the result before it, byte for byte,
/// if there was one, and the responses to its input requests, if there were any.
///
/// ```
/// use mrtr_client::{Action, CallError, Event, Machine, RequestIds, RoundLimits};
/// use mrtr_schema::PROTOCOL_VERSION;
/// use mrtr_schema::capabilities::{ClientCapabilities, ElicitationCapability};
/// use mrtr_schema::elicitation::ElicitResult;
/// use mrtr_schema::input::InputResponses;
/// use mrtr_schema::jsonrpc::Request;
/// use mrtr_schema::meta::RequestMeta;
/// use serde_json::json;
/// use serde_json::value::{RawValue, to_raw_value};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// /// Sends the request and receives the result. This one is a server of one form.
/// fn send(request: &Request) -> Box<RawValue> {
///     let params = request.params.as_ref().map(|params| params.as_str()).unwrap_or_default();
///     let schema = json!({ "type": "object", "properties": {} });
///     let form = json!({ "message": "Sure?", "requestedSchema": schema });
///     let result = if params.contains("inputResponses") {
///         json!({ "resultType": "complete", "content": [] })
///     } else {
///         json!({
///             "resultType": "input_required",
///             "requestState": "sealed",
///             "inputRequests": { "sure": { "method": "elicitation/create", "params": form } },
///         })
///     };
///     to_raw_value(&result).expect("the result is JSON")
/// }
///
/// let params = vec![("name".to_owned(), to_raw_value("book")?)];
/// let declared = ClientCapabilities::new().with_elicitation(ElicitationCapability::form());
/// let meta = RequestMeta::new(PROTOCOL_VERSION, declared);
/// let (mut machine, mut action) =
///     Machine::start(RequestIds::default(), "tools/call", params, meta, RoundLimits::default())?;
/// let result = loop {
///     let event = match action {
///         Action::Send(request) => Event::Response(Ok(send(&request))),
///         Action::RequestInput(requests) => {
///             let mut responses = InputResponses::default();
///             for (key, _) in &requests.0 {
///                 responses.push(key, &ElicitResult::decline())?;
///             }
///             Event::Input(responses)
///         }
///         Action::Wait(delay) => {
///             std::thread::sleep(delay);
///             Event::Waited
///         }
///         Action::Complete(result) => break result,
///         _ => return Err("unknown action".into()),
///     };
///     action = machine.next(event)?;
/// };
/// assert!(result.get().contains("complete"));
/// assert_eq!(machine.input_rounds(), 1);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Machine {
    ids: RequestIds,
    meta: RequestMeta,
    limits: RoundLimits,
    /// The call, as it would be written while it is paused.
    call: PendingCall,
    /// The input responses of the last request, until its response arrives.
    responses: Option<InputResponses>,
    /// The last input requests, for error messages.
    last_input_requests: Option<String>,
    /// The request was repeated after a version error: this happens once.
    renegotiated: bool,
    accepted_result_types: Vec<String>,
    /// The kind of the last request.
    exchange: Exchange,
    /// The task as the last response described it, until the driver takes it.
    new_task: Option<Task>,
    phase: Phase,
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exchange {
    /// The call itself.
    Call,
    /// `tasks/get`
    GetTask,
    /// `tasks/update`
    UpdateTask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sent,
    InputRequested,
    Waiting,
    Over,
}

impl Machine {
    /// Starts a call, and returns its first [`Action::Send`].
    ///
    /// `params` are the parameters of the method; members of their `_meta` are added to `meta`,
    /// which goes with every request. If `meta` has a progress token, each request gets its own id
    /// as the token.
    ///
    /// # Errors
    ///
    /// If the parameters cannot be written as JSON, or their `_meta` has a key of `meta`'s own.
    pub fn start(
        ids: RequestIds,
        method: impl Into<String>,
        params: Vec<(String, Box<RawValue>)>,
        meta: RequestMeta,
        limits: RoundLimits,
    ) -> Result<(Self, Action), CallError> {
        let call = PendingCall::new(method.into(), params);
        let machine = Self::new(call, ids, meta, limits, Phase::Sent);
        let first = machine.request()?;
        Ok((machine, first))
    }

    /// Resumes a paused call with the action it paused at: [`Action::RequestInput`], or
    /// [`Action::Wait`] if there are no input requests.
    ///
    /// The limits count from where the call paused. `ids` need not be those of the process that
    /// started the call.
    pub fn resume(
        mut call: PendingCall,
        ids: RequestIds,
        meta: RequestMeta,
        limits: RoundLimits,
    ) -> (Self, Action) {
        let (phase, action) = match call.input_requests().0.as_slice() {
            [] => (Phase::Waiting, Action::Wait(call.delay())),
            _ => (Phase::InputRequested, Action::RequestInput(call.input_requests().clone())),
        };
        if let Some(task) = &mut call.task {
            match phase {
                Phase::Waiting => task.resume(call.pace),
                _ => task.is_restored = false,
            }
        }
        // A request must not have the id of an earlier one of its call (specification: MRTR).
        ids.continue_after(call.last_id);
        (Self::new(call, ids, meta, limits, phase), action)
    }

    fn new(
        call: PendingCall,
        ids: RequestIds,
        meta: RequestMeta,
        limits: RoundLimits,
        phase: Phase,
    ) -> Self {
        let last_input_requests = call.requests.as_ref().map(summary);
        Self {
            ids,
            meta,
            limits,
            call,
            responses: None,
            last_input_requests,
            renegotiated: false,
            accepted_result_types: Vec::new(),
            exchange: Exchange::Call,
            new_task: None,
            phase,
        }
    }

    /// Returns the call as data, if the last action was [`Action::RequestInput`] or
    /// [`Action::Wait`].
    pub fn pause(self) -> Option<PendingCall> {
        matches!(self.phase, Phase::InputRequested | Phase::Waiting).then_some(self.call)
    }

    /// Accepts results of these types, which extensions define. Other types than those of the
    /// protocol are rejected.
    pub fn accept_result_types(&mut self, result_types: &[String]) {
        self.accepted_result_types = result_types.to_vec();
    }

    /// Returns the number of rounds with input requests so far.
    pub fn input_rounds(&self) -> u32 {
        self.call.input_rounds
    }

    /// Returns true if the server turned the call into a task.
    pub fn is_task(&self) -> bool {
        self.call.task.is_some()
    }

    /// Returns true if the last request can be sent twice: it concerns a task, so it reads, or the
    /// server ignores the second one. The call itself is not, since it may have effects.
    pub fn can_resend(&self) -> bool {
        let is_task_method = matches!(
            self.call.method.as_str(),
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL
        );
        self.exchange != Exchange::Call || is_task_method
    }

    /// Returns true if the server failed to read or update the task of the call: the task itself
    /// goes on (extension "tasks": clients poll until a terminal status).
    pub(crate) fn is_failed_poll(&self, error: &ErrorObject) -> bool {
        self.exchange != Exchange::Call && error.code == code::INTERNAL_ERROR
    }

    pub(crate) fn call(&self) -> &PendingCall {
        &self.call
    }

    /// Returns a summary of the last input requests, for error messages.
    pub(crate) fn last_input_requests(&self) -> Option<&str> {
        self.last_input_requests.as_deref()
    }

    /// Processes an event, and returns the next action.
    ///
    /// # Errors
    ///
    /// If the server refused the call or violated the protocol, a limit is exceeded, or `event` is
    /// not an answer to the last action. The call is over then.
    pub fn next(&mut self, event: Event) -> Result<Action, CallError> {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        // Whatever was sent, also if the driver has sent a request again, with another id.
        self.call.last_id = self.ids.last();
        match (phase, event) {
            (Phase::Sent, Event::Response(Ok(result))) => self.receive_result(result),
            (Phase::Sent, Event::Response(Err(error))) => self.receive_error(error),
            (Phase::InputRequested, Event::Input(responses)) => self.receive_input(responses),
            (Phase::Waiting, Event::Waited) => {
                self.exchange = if self.is_task() { Exchange::GetTask } else { Exchange::Call };
                self.phase = Phase::Sent;
                self.request()
            }
            (Phase::Sent, Event::Interrupted) => {
                self.phase = Phase::Sent;
                self.request()
            }
            (phase, event) => {
                let event = match event {
                    Event::Response(_) => "Response",
                    Event::Input(_) => "Input",
                    Event::Waited => "Waited",
                    Event::Interrupted => "Interrupted",
                };
                let why = format!("the event {event} is invalid in the phase {phase:?}");
                Err(CallError::request(why))
            }
        }
    }

    fn receive_input(&mut self, responses: InputResponses) -> Result<Action, CallError> {
        let requests = self.call.requests.take().unwrap_or_default();
        let all = requests.0.iter().all(|(key, _)| responses.get(key).is_some());
        if !all || responses.0.len() != requests.0.len() {
            return Err(CallError::request(
                "the input responses do not have exactly the keys of the input requests",
            ));
        }
        self.exchange = if self.is_task() { Exchange::UpdateTask } else { Exchange::Call };
        self.phase = Phase::Sent;
        self.responses = Some(responses);
        self.request()
    }

    /// Returns the next request, under a new id.
    fn request(&self) -> Result<Action, CallError> {
        let id = self.ids.next();
        let params = Some(self.request_params(&id, Object::new())?);
        let method = match self.exchange {
            Exchange::Call => &self.call.method,
            Exchange::GetTask => method::TASKS_GET,
            Exchange::UpdateTask => method::TASKS_UPDATE,
        };
        Ok(Action::Send(Request::new(id, method, params)))
    }

    /// Returns the parameters of the request with this id. `extra` is added to its `_meta`.
    pub(crate) fn request_params(
        &self,
        id: &RequestId,
        extra: Object,
    ) -> Result<Params, CallError> {
        let mut meta = self.meta.clone();
        // Tasks have no progress notifications.
        let has_progress = self.exchange == Exchange::Call;
        meta.progress_token = meta.progress_token.filter(|_| has_progress).map(|_| id.clone());
        if let Some((_, own)) = self.call.params.iter().find(|(name, _)| name == META) {
            let mut own: RequestMeta = serde_json::from_str(own.get())
                .map_err(|e| CallError::request(format!("invalid `_meta`: {e}")))?;
            meta.other.extend(std::mem::take(&mut own.other));
            if own != RequestMeta::default() {
                return Err(CallError::request("`_meta` has a key that the client sets itself"));
            }
        }
        meta.other.extend(extra);
        let concerns_task = self.exchange != Exchange::Call;
        let (call, responses) = (&self.call, self.responses.as_ref());
        Params::new(&RequestParams { call, responses, concerns_task, meta })
            .map_err(|e| CallError::request(format!("cannot write the parameters as JSON: {e}")))
    }

    fn receive_result(&mut self, result: Box<RawValue>) -> Result<Action, CallError> {
        match self.exchange {
            Exchange::Call => {}
            Exchange::GetTask => return self.receive_task(&result),
            Exchange::UpdateTask => return self.receive_update(&result),
        }
        match result_type(&result)? {
            ResultType::Complete => Ok(Action::Complete(result)),
            ResultType::InputRequired => {
                let result: InputRequiredResult = serde_json::from_str(result.get())
                    .map_err(|error| malformed("result", &error))?;
                self.receive_input_required(result)
            }
            ResultType::Other(other) if self.accepted_result_types.contains(&other) => {
                Ok(Action::Complete(result))
            }
            ResultType::Other(other) if other == tasks::RESULT_TYPE => {
                self.receive_created(&result)
            }
            ResultType::Other(other) => {
                Err(CallError::protocol(format!("unknown resultType {}", quote(&other))))
            }
        }
    }

    fn receive_input_required(&mut self, result: InputRequiredResult) -> Result<Action, CallError> {
        let method = &self.call.method;
        if !allows_input(method) {
            return Err(CallError::protocol(format!("{method} must not request input")));
        }
        let InputRequiredResult { input_requests, request_state, .. } = result;
        let input_requests = input_requests.filter(|requests| !requests.0.is_empty());
        if input_requests.is_none() && request_state.is_none() {
            return Err(CallError::protocol(
                "an input_required result has neither inputRequests nor requestState",
            ));
        }
        self.call.state = request_state;
        self.responses = None;
        match input_requests {
            Some(requests) => self.request_input(requests),
            None => self.wait(),
        }
    }

    fn request_input(&mut self, mut requests: InputRequests) -> Result<Action, CallError> {
        self.call.input_rounds = self.call.input_rounds.saturating_add(1);
        self.call.pace = 0;
        let limit = self.limits.input_rounds;
        if self.call.input_rounds > limit {
            let last = summary(&requests);
            return Err(CallError::too_many_rounds(format!(
                "the server requested input in more than {limit} rounds; last input requests: {last}"
            )));
        }
        let (count, limit) = (requests.0.len(), self.limits.requests_per_round);
        if count > limit {
            return Err(CallError::too_many_rounds(format!(
                "the server sent {count} input requests in one round; the limit is {limit}"
            )));
        }
        check_requests(&mut requests, &self.meta)?;
        self.last_input_requests = Some(summary(&requests));
        self.call.requests = Some(requests.clone());
        self.phase = Phase::InputRequested;
        Ok(Action::RequestInput(requests))
    }

    fn wait(&mut self) -> Result<Action, CallError> {
        self.call.state_rounds = self.call.state_rounds.saturating_add(1);
        let limit = self.limits.state_rounds;
        if self.call.state_rounds > limit {
            let last = self.last_input_requests.as_ref();
            let last =
                last.map_or_else(String::new, |last| format!("; last input requests: {last}"));
            return Err(CallError::too_many_rounds(format!(
                "the server postponed the call in more than {limit} rounds{last}"
            )));
        }
        self.call.pace = self.call.pace.saturating_add(1);
        self.phase = Phase::Waiting;
        Ok(Action::Wait(self.call.delay()))
    }

    fn receive_error(&mut self, error: ErrorObject) -> Result<Action, CallError> {
        let version = self.meta.protocol_version.as_deref().unwrap_or_default();
        let supports_version = error.code == code::UNSUPPORTED_PROTOCOL_VERSION
            && error
                .data
                .as_ref()
                .and_then(|data| data.get("supported"))
                .and_then(Value::as_array)
                .is_some_and(|supported| {
                    supported.iter().any(|other| other.as_str() == Some(version))
                });
        // A server that rejects a version and lists it as supported is being upgraded, so the
        // request is worth one repetition.
        if supports_version && !self.renegotiated {
            self.renegotiated = true;
            self.phase = Phase::Sent;
            return self.request();
        }
        Err(CallError::server(error))
    }
}

fn result_type(result: &RawValue) -> Result<ResultType, CallError> {
    ResultType::from_result(result).map_err(|error| malformed("result", &error))
}

#[cfg(test)]
mod tests;
