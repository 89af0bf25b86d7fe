//! The loop, driven over a connection.

use std::future::Future;
use std::time::Duration;

use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{ErrorObject, Request, code};
use mrtr_schema::{PROTOCOL_VERSION, method};
use mrtr_transport::{OutgoingRequest, Transport};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use crate::client::Client;
use crate::error::CallError;
use crate::handlers::Question;
use crate::machine::{Action, Event, Machine};
use crate::observer::{CallEvent, RequestInfo};
use crate::pending_call::PendingCall;

/// A call that went well.
pub(crate) struct Completed {
    pub(crate) result: Box<RawValue>,
    /// How many requests it took.
    pub(crate) legs: u32,
}

/// How driving a call ended.
pub(crate) enum End {
    Completed(Completed),
    Paused(PendingCall),
}

/// Who answers.
pub(crate) enum Answering {
    Handlers,
    /// Nobody yet: the call is put down.
    Pause,
    /// These, once; then it is put down.
    These(InputResponses),
}

impl<X: Transport> Client<X> {
    /// Makes a call to its end.
    pub(crate) async fn run(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<Completed, CallError> {
        let (machine, action) = self.machine(method, params)?;
        match self.drive(machine, action, Answering::Handlers).await? {
            End::Completed(completed) => Ok(completed),
            End::Paused(_) => Err(CallError::request("a question was left to nobody")),
        }
    }

    pub(crate) fn machine(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
    ) -> Result<(Machine, Action), CallError> {
        let inner = &*self.inner;
        let params =
            params.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Machine::start(inner.ids.clone(), method, params, self.meta(), inner.limits)
    }

    /// Drives a call, within the client's deadline, until it ends or is put down.
    pub(crate) fn drive(
        &self,
        machine: Machine,
        action: Action,
        answering: Answering,
    ) -> impl Future<Output = Result<End, CallError>> + Send + '_ {
        let (method, target) = (machine.call().method(), machine.call().target());
        let span = tracing::info_span!(
            target: "mrtr::client",
            "call",
            otel.name = format!("{method} {target} (all rounds)").trim(),
            otel.kind = "internal",
            mcp.method.name = method,
        );
        // It is long, and goes into the futures of its callers.
        Box::pin(self.drive_inside(machine, action, answering).instrument(span))
    }

    async fn drive_inside(
        &self,
        mut machine: Machine,
        mut action: Action,
        mut answering: Answering,
    ) -> Result<End, CallError> {
        let inner = &*self.inner;
        machine.accept(&inner.result_types);
        let mut time = TimeLeft::new(self.options.deadline);
        let (mut legs, mut broken) = (0, 0);
        loop {
            let event = match action {
                Action::Complete(result) => return Ok(End::Completed(Completed { result, legs })),
                Action::Send(request) => {
                    legs += 1;
                    let span = leg_span(&machine, &request);
                    let leg = self.leg(&machine, request, legs).instrument(span);
                    match time.spend(leg, &machine).await? {
                        Ok(outcome) => Event::Response(outcome),
                        Err(error) => {
                            let pause = self.pause(&error, broken);
                            let Some(pause) = pause.filter(|pause| time.has_left(*pause)) else {
                                return Err(error);
                            };
                            tracing::debug!(target: "mrtr::client", %error, "a leg is sent again");
                            time.spend(tokio::time::sleep(pause), &machine).await?;
                            broken += 1;
                            Event::Broken
                        }
                    }
                }
                Action::RequestInput(requests) => {
                    match std::mem::replace(&mut answering, Answering::Pause) {
                        Answering::These(answers) => Event::Input(answers),
                        Answering::Pause => {
                            let paused = machine.pause().map(End::Paused);
                            return paused
                                .ok_or_else(|| CallError::request("there is nothing to put down"));
                        }
                        Answering::Handlers => {
                            answering = Answering::Handlers;
                            let call = machine.call();
                            let mut from =
                                Question::new(call.method(), call.target(), "", call.round());
                            from.label.clone_from(&self.options.label);
                            let asked = inner.handlers.answer_all(&inner.watch, requests, &from);
                            if self.options.exclude_handler_time {
                                Event::Input(asked.await?)
                            } else {
                                Event::Input(time.spend(asked, &machine).await??)
                            }
                        }
                    }
                }
                Action::Wait(pause) => {
                    time.spend(tokio::time::sleep(jittered(pause)), &machine).await?;
                    Event::Waited
                }
            };
            action = machine.next(event)?;
        }
    }

    /// After how long a leg that failed is sent again, if it is. Whoever allows it knows that the server may have acted on what it got.
    fn pause(&self, error: &CallError, broken: u32) -> Option<Duration> {
        let asked = error.retry_after();
        let again =
            error.is_unconnected() && broken < self.options.resend && asked <= LONGEST_PAUSE;
        again.then(|| jittered(FIRST_PAUSE * (1 << broken.min(6))) + asked)
    }

    async fn leg(
        &self,
        machine: &Machine,
        mut request: Request,
        leg: u32,
    ) -> Result<Result<Box<RawValue>, ErrorObject>, CallError> {
        let inner = &*self.inner;
        let (method, target) = (machine.call().method(), machine.call().target());
        let id = request.id.clone();
        if inner.watch.tracer.is_some() {
            request.params = Some(machine.leg_params(&id, inner.watch.trace())?);
        }
        tracing::debug!(target: "mrtr::client", method, target, %id, "leg");
        let label = self.options.label.as_deref();
        let seen = RequestInfo { method, target: &target, id: &id, leg, label };
        inner.watch.sees(CallEvent::Sent(&seen));
        let begun = Instant::now();
        let response = self.send(request, &target, machine).await;
        let error;
        let outcome = match &response {
            Ok(Ok(result)) => Ok(&**result),
            Ok(Err(refusal)) => {
                let code = refusal.code.to_string();
                Span::current().record("rpc.response.status_code", &code);
                Span::current().record("error.type", code);
                error = CallError::server(refusal.clone());
                Err(&error)
            }
            Err(error) => {
                Span::current().record("error.type", "transport");
                Err(error)
            }
        };
        inner.watch.sees(CallEvent::Answered { leg: &seen, took: begun.elapsed(), outcome });
        response
    }

    /// Sends one leg. If the server wants other headers than we knew of, its tools are listed again, and
    /// the leg is sent once more: it was refused before anything was done.
    async fn send(
        &self,
        mut request: Request,
        target: &str,
        machine: &Machine,
    ) -> Result<Result<Box<RawValue>, ErrorObject>, CallError> {
        let (inner, call) = (&*self.inner, machine.call());
        let first_id = request.id.clone();
        let heard = |notification| self.hear(&notification, &first_id);
        let is_call = request.method == method::TOOLS_CALL;
        let param_headers = if is_call { self.param_headers(target, call)? } else { Vec::new() };
        let first = OutgoingRequest::new(request.clone())
            .with_param_headers(param_headers.clone())
            .with_notification_handler(&heard);
        let outcome = inner.exchange.send(first).await?.outcome;
        if !is_call || !matches!(&outcome, Err(error) if error.code == code::HEADER_MISMATCH) {
            return Ok(outcome);
        }
        // Listing is a call of its own, so this future would contain itself.
        inner.cache.forget(&[method::TOOLS_LIST]);
        Box::pin(self.list_tools()).await?;
        let refreshed = self.param_headers(target, call)?;
        if refreshed == param_headers {
            return Ok(outcome);
        }
        let second_id = inner.ids.next();
        request.id = second_id.clone();
        request.params = Some(machine.leg_params(&second_id, inner.watch.trace())?);
        let heard = |notification| self.hear(&notification, &second_id);
        let again = OutgoingRequest::new(request)
            .with_param_headers(refreshed)
            .with_notification_handler(&heard);
        Ok(inner.exchange.send(again).await?.outcome)
    }

    /// The headers for a tool's arguments, by what is known of the tool.
    fn param_headers(
        &self,
        tool: &str,
        call: &PendingCall,
    ) -> Result<Vec<(String, String)>, CallError> {
        let Some(known) = self.inner.known(tool) else { return Ok(Vec::new()) };
        if known.param_headers.is_empty() {
            return Ok(Vec::new());
        }
        let arguments: Value = call.param("arguments").unwrap_or_default();
        let mut headers = Vec::new();
        for param in &known.param_headers {
            if let Some(value) =
                param.value_in(&arguments).map_err(|e| CallError::request(e.to_string()))?
            {
                headers.push((param.name.clone(), value));
            }
        }
        Ok(headers)
    }
}

/// The span of one request.
fn leg_span(machine: &Machine, request: &Request) -> Span {
    let (method, target) = (machine.call().method(), machine.call().target());
    let tool = (method == method::TOOLS_CALL).then_some(target.as_str());
    let prompt = (method == method::PROMPTS_GET).then_some(target.as_str());
    let resource = (method == method::RESOURCES_READ).then_some(target.as_str());
    // A URI is not a name: there are too many.
    let name = tool.or(prompt).map_or_else(|| method.to_owned(), |name| format!("{method} {name}"));
    tracing::info_span!(
        target: "mrtr::client",
        "request",
        otel.name = name,
        otel.kind = "client",
        mcp.method.name = method,
        gen_ai.operation.name = tool.map(|_| "execute_tool"),
        gen_ai.tool.name = tool,
        gen_ai.prompt.name = prompt,
        mcp.resource.uri = resource,
        mcp.protocol.version = PROTOCOL_VERSION,
        jsonrpc.request.id = %request.id,
        rpc.response.status_code = tracing::field::Empty,
        error.type = tracing::field::Empty,
    )
}

/// How long a leg that broke waits before it is sent again, at most; each time twice as long, up to 6.4 s.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest time that a server may put it off: a call that has to wait longer fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a deadline has left.
struct TimeLeft {
    whole: Option<Duration>,
    left: Option<Duration>,
}

impl TimeLeft {
    fn new(whole: Option<Duration>) -> Self {
        Self { whole, left: whole }
    }

    fn has_left(&self, time: Duration) -> bool {
        self.left.is_none_or(|left| time < left)
    }

    /// Runs something, and takes from the time what it took.
    async fn spend<T>(
        &mut self,
        what: impl Future<Output = T>,
        machine: &Machine,
    ) -> Result<T, CallError> {
        let Some(left) = self.left else { return Ok(what.await) };
        let begun = Instant::now();
        let done = tokio::time::timeout(left, what).await.map_err(|_| {
            let (method, target) = (machine.call().method(), machine.call().target());
            let last = machine
                .last_asked()
                .map_or_else(String::new, |last| format!("; it last asked {last}"));
            CallError::deadline(format!(
                "{method} {target} took longer than {:?}{last}",
                self.whole.unwrap_or_default()
            ))
        });
        self.left = Some(left.saturating_sub(begun.elapsed()));
        done
    }
}

/// Between half of `time` and all of it, so that clients that were put off together do not come back
/// together.
pub(crate) fn jittered(time: Duration) -> Duration {
    let random = getrandom::u32().unwrap_or(u32::MAX);
    time / 2 + time.mul_f64(f64::from(random) / f64::from(u32::MAX) / 2.0)
}
