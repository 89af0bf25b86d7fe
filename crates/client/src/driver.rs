//! The async driver of a call: sends requests, collects input responses and enforces the timeout.

use std::future::Future;
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::jsonrpc::{ErrorObject, Request, code};
use mrtr_schema::method;
use mrtr_transport::{OutgoingRequest, Transport};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use crate::backoff::{extended, jittered, retry_delay};
use crate::call_timer::CallTimer;
use crate::client::Client;
use crate::error::CallError;
use crate::input_context::InputContext;
use crate::machine::{Action, Event, Machine};
use crate::notifications;
use crate::observer::{CallEvent, RequestInfo};
use crate::pending_call::PendingCall;
use crate::tasks::CancelOnDrop;
use crate::trace;

/// The result of a call.
pub(crate) struct Completed {
    pub(crate) result: Box<RawValue>,
    /// The number of requests that the call took.
    pub(crate) rounds: u32,
}

/// The end of driving a call.
pub(crate) enum Driven {
    Completed(Completed),
    Paused(PendingCall),
}

/// The source of input responses.
pub(crate) enum InputSource {
    /// The client's handlers.
    Handlers,
    /// The application: these responses for the first input requests, then the call pauses. While
    /// it is a task, and with `pause_in_every_round`, it also pauses before each wait but the first
    /// if `poll` is set.
    Application { responses: Option<InputResponses>, poll: bool },
}

impl InputSource {
    /// Returns true if the call pauses before the next wait.
    fn pauses_before_wait(&mut self) -> bool {
        match self {
            Self::Handlers => false,
            Self::Application { poll, .. } => !std::mem::take(poll),
        }
    }
}

/// Maximum number of times in a row that a request about a task is sent again after a transport
/// error, or an internal error of the server: for about 45 s.
const TASK_RETRIES: u32 = 12;

/// The response to a request: a result, or a JSON-RPC error.
type Outcome = Result<Box<RawValue>, ErrorObject>;

impl<T: Transport> Client<T> {
    /// Runs a call until it is complete, with the handlers.
    pub(crate) async fn run(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Completed, CallError> {
        let (machine, action) = self.start(method, params)?;
        match self.drive(machine, action, InputSource::Handlers).await? {
            Driven::Completed(completed) => Ok(completed),
            Driven::Paused(_) => Err(CallError::unexpected_pause()),
        }
    }

    pub(crate) fn start(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<(Machine, Action), CallError> {
        let params =
            params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let (ids, limits) = (self.shared.ids.clone(), self.options.limits);
        Machine::start(ids, method, params, self.request_meta(), limits)
    }

    /// Drives a call within the client's timeout until it is complete or pauses.
    pub(crate) fn drive(
        &self,
        machine: Machine,
        action: Action,
        input: InputSource,
    ) -> impl Future<Output = Result<Driven, CallError>> + Send + '_ {
        let span = trace::call_span(machine.call().method(), &machine.call().target());
        // Boxed: the future is large, and is part of the futures of all callers.
        Box::pin(self.drive_rounds(machine, action, input).instrument(span))
    }

    async fn drive_rounds(
        &self,
        machine: Machine,
        action: Action,
        input: InputSource,
    ) -> Result<Driven, CallError> {
        let mut guard = CancelOnDrop::new(self);
        let mut timer = CallTimer::new(self.options.timeout, self.options.user_time.clone());
        let driven = self.drive_watched(machine, action, input, &mut timer, &mut guard).await;
        let is_timeout = timer.has_refused() || driven.as_ref().is_err_and(CallError::is_timeout);
        // After any other error, the task goes on.
        if !is_timeout {
            guard.disarm();
        }
        driven
    }

    async fn drive_watched(
        &self,
        mut machine: Machine,
        mut action: Action,
        mut input: InputSource,
        timer: &mut CallTimer,
        guard: &mut CancelOnDrop<T>,
    ) -> Result<Driven, CallError> {
        machine.accept_result_types(&self.shared.result_types);
        let mut rounds = 0;
        let mut retries = 0;
        let mut task_retries = 0;
        loop {
            guard.watch(machine.call());
            let event = match action {
                Action::Complete(result) => {
                    return Ok(Driven::Completed(Completed { result, rounds }));
                }
                Action::Send(request) => {
                    rounds += 1;
                    let outcome = match self.round(&machine, request, rounds, timer).await? {
                        Ok(Err(error)) if machine.is_failed_poll(&error) => {
                            Err(CallError::server(error))
                        }
                        outcome => outcome,
                    };
                    match outcome {
                        Ok(outcome) => {
                            task_retries = 0;
                            Event::Response(outcome)
                        }
                        Err(error) => {
                            let (count, limit) = if machine.can_resend() {
                                (&mut task_retries, TASK_RETRIES.max(self.options.retries))
                            } else {
                                (&mut retries, self.options.retries)
                            };
                            let is_retried = error.is_transient()
                                || machine.can_resend() && error.as_server_error().is_some();
                            let limit = if is_retried { limit } else { 0 };
                            let delay = delay_before_retry(error, *count, limit, timer)?;
                            timer.run(sleep(delay), &machine).await?;
                            *count += 1;
                            Event::Interrupted
                        }
                    }
                }
                Action::RequestInput(requests) => match &mut input {
                    InputSource::Handlers => {
                        Event::Input(self.ask_handlers(requests, &machine, timer).await?)
                    }
                    InputSource::Application { responses, .. } => match responses.take() {
                        Some(responses) => Event::Input(responses),
                        None => return pause(machine),
                    },
                },
                Action::Wait(_)
                    if (machine.is_task() || self.options.pause_in_every_round)
                        && input.pauses_before_wait() =>
                {
                    return pause(machine);
                }
                Action::Wait(delay) => {
                    let delay = if machine.is_task() { extended(delay) } else { jittered(delay) };
                    timer.run(sleep(delay), &machine).await?;
                    Event::Waited
                }
            };
            let next = machine.next(event);
            if let Some(task) = machine.take_new_task() {
                let (call, label) = (machine.call(), self.options.label.as_deref());
                self.shared.observer.notify(CallEvent::TaskUpdated { call, task: &task, label });
            }
            action = next?;
        }
    }

    /// Calls the handlers of one round's input requests.
    async fn ask_handlers(
        &self,
        requests: InputRequests,
        machine: &Machine,
        timer: &mut CallTimer,
    ) -> Result<InputResponses, CallError> {
        let shared = &*self.shared;
        let call = machine.call();
        let mut origin = InputContext::new(call.method(), call.target(), "", call.input_round());
        origin.label.clone_from(&self.options.label);
        let responses =
            shared.handlers.answer_all(&shared.policy, &shared.observer, requests, &origin);
        if self.options.exclude_handler_time {
            responses.await
        } else {
            timer.run(responses, machine).await?
        }
    }

    /// Sends one request within the call's timeout. The outer error is the timeout.
    async fn round(
        &self,
        machine: &Machine,
        request: Request,
        round: u32,
        timer: &mut CallTimer,
    ) -> Result<Result<Outcome, CallError>, CallError> {
        let target = machine.call().target();
        timer.run(self.send(request, &target, machine, round), machine).await
    }

    /// Sends one request. If the server expects other parameter headers than the last listing of
    /// its tools said, lists the tools again and sends the request once more: the server rejected
    /// the first one before it acted on it.
    async fn send(
        &self,
        mut request: Request,
        target: &str,
        machine: &Machine,
        round: u32,
    ) -> Result<Outcome, CallError> {
        let shared = &*self.shared;
        let is_tool_call = request.method == method::TOOLS_CALL;
        let headers =
            if is_tool_call { self.param_headers(target, machine.call())? } else { Vec::new() };
        let send = async |request: Request, headers: Vec<(String, String)>| {
            let span = trace::request_span(&request.method, target, &request.id);
            let observed = self.send_observed(machine, request, headers, target, round);
            let response = observed.instrument(span.clone()).await;
            match &response {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => trace::record_server_error(&span, error.code),
                Err(_) => trace::record_transport_error(&span),
            }
            response
        };
        let outcome = send(request.clone(), headers.clone()).await?;
        let is_mismatch =
            matches!(&outcome, Err(error) if error.code == code::HEADER_MISMATCH) && is_tool_call;
        if !is_mismatch {
            return Ok(outcome);
        }
        shared.cache.remove(&[method::TOOLS_LIST]);
        // Boxed: listing is a call of its own, so this future would contain itself.
        if let Err(error) = Box::pin(self.list_tools()).await {
            tracing::debug!(target: "mrtr::client", %error, "the tools cannot be listed again");
            return Ok(outcome);
        }
        let refreshed = self.param_headers(target, machine.call())?;
        if refreshed == headers {
            return Ok(outcome);
        }
        request.id = shared.ids.next();
        request.params = Some(machine.request_params(&request.id, Object::new())?);
        send(request, refreshed).await
    }

    /// Sends one request, and reports it to the observer and the log.
    async fn send_observed(
        &self,
        machine: &Machine,
        mut request: Request,
        headers: Vec<(String, String)>,
        target: &str,
        round: u32,
    ) -> Result<Outcome, CallError> {
        let shared = &*self.shared;
        let method = request.method.clone();
        let method = method.as_str();
        let id = request.id.clone();
        let trace = self.options.trace.as_deref();
        if trace.is_some() {
            request.params = Some(machine.request_params(&id, trace::meta_members(trace))?);
        }
        let loggable = trace::loggable(method, target);
        tracing::debug!(target: "mrtr::client", method, target = loggable, %id, "sending request");
        let label = self.options.label.as_deref();
        let info = RequestInfo { method, target, id: &id, round, label };
        shared.observer.notify(CallEvent::RequestSent(&info));
        let start = Instant::now();
        let response = self.exchange(request, headers).await;
        let server_error;
        let outcome = match &response {
            Ok(Ok(result)) => Ok(&**result),
            Ok(Err(error)) => {
                server_error = CallError::server(error.clone());
                Err(&server_error)
            }
            Err(error) => Err(error),
        };
        let elapsed = start.elapsed();
        shared.observer.notify(CallEvent::RequestFinished { request: &info, elapsed, outcome });
        response
    }

    /// Sends one request over the transport.
    async fn exchange(
        &self,
        request: Request,
        param_headers: Vec<(String, String)>,
    ) -> Result<Outcome, CallError> {
        let id = request.id.clone();
        let heard = |notification| {
            let (progress, log) = (self.options.progress.as_deref(), self.options.log.as_deref());
            notifications::deliver(&notification, &id, progress, log);
        };
        let outgoing = OutgoingRequest::new(request)
            .with_param_headers(param_headers)
            .with_caller(self.options.caller.as_deref())
            .with_notification_handler(&heard);
        Ok(self.shared.transport.send(outgoing).await?.outcome)
    }

    /// Returns the headers that mirror arguments of a tool call, as far as the tool was listed.
    fn param_headers(
        &self,
        tool: &str,
        call: &PendingCall,
    ) -> Result<Vec<(String, String)>, CallError> {
        let Some(tool) = self.shared.tools.get(tool) else { return Ok(Vec::new()) };
        if !self.options.unvalidated_results {
            tool.check_output_schema(call)?;
        }
        tool.param_headers(call)
    }
}

fn pause(machine: Machine) -> Result<Driven, CallError> {
    machine.pause().map(Driven::Paused).ok_or_else(CallError::unexpected_pause)
}

/// Returns the delay before a request that failed is sent again, or its error.
fn delay_before_retry(
    error: CallError,
    retries: u32,
    limit: u32,
    timer: &mut CallTimer,
) -> Result<Duration, CallError> {
    let delay = retry_delay(retries, error.retry_after()).filter(|_| retries < limit);
    let Some(delay) = delay.filter(|delay| timer.allows(*delay)) else { return Err(error) };
    tracing::debug!(target: "mrtr::client", %error, "sending the request again");
    Ok(delay)
}
