//! One leg of a flow: from the sealed state that came to the one that goes out.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mrtr_codec::{Binding, Digest, OpenError, Principal, UnixSeconds, Validity, open, seal};
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, code};
use serde_json::json;
use tokio::task::unconstrained;
use tokio::time::sleep;

use super::single_use::{Claim, SingleUseClaim};
use crate::call_options::{CallOptions, SingleUse};
use crate::client_feature;
use crate::error::Error;
use crate::handler::{BoxFuture, ErasedHandler, HandlerCall};
use crate::handler_context::Invocation;
use crate::manual::{Answers, InputRequired, ManualInput, ManualOutput};
use crate::question::Question;
use crate::registry::Outcome;
use crate::registry::Registry;
use crate::request_parts::RequestParts;
use crate::rounds::{
    CallState, CallStateContent, Compatibility, Ending, Entry, Fault, MAX_ENTRY, OpenInput, Round,
    Version, check_size, drive,
};
use crate::state_error::{refuse, refuse_newer, refuse_panic};

/// What a request is about.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) method: &'static str,
    pub(super) name: &'a str,
    /// JSON, an object.
    pub(super) arguments: &'a str,
    pub(super) options: &'a CallOptions,
}

pub(super) struct RoundExecution<'a> {
    server: &'a Registry,
    target: Target<'a>,
    /// The arguments' digest, once it was taken.
    digest: Option<Digest>,
    /// What the next state says of the handlers that wrote it.
    version: Version,
    /// If the state that came is for single use.
    claim: Option<Box<SingleUseClaim<'a>>>,
    round: Arc<Round>,
    /// What the manual form reads; `None` for inline handlers.
    manual: Option<Arc<ManualInput>>,
}

impl<'a> RoundExecution<'a> {
    /// Opens the state, and matches the answers to the questions in it.
    pub(super) fn open(
        server: &'a Registry,
        target: Target<'a>,
        parts: Box<RequestParts>,
        responses: Option<InputResponses>,
        state: Option<&str>,
    ) -> Result<Self, ErrorObject> {
        if let Some(missing) = client_feature::missing_capabilities(
            target.options.requires.iter().copied(),
            parts.capabilities(),
        ) {
            return Err(missing_capability(&missing));
        }
        let responses = responses.unwrap_or_default();
        let Some(token) = state else {
            return Ok(Self::first(server, target, parts, responses));
        };
        let digest = arguments_digest(&target)?;
        let binding = binding(&target, digest, parts.principal.as_ref());
        // A state never outlives its call: see `validity`.
        let (mut saved, opened) = catch_unwind(AssertUnwindSafe(|| {
            let refuse = |error| refuse(error, target.method, target.name);
            let opened = open(&*server.sealer, token, &binding, server.clock.now());
            let opened = opened.map_err(refuse)?;
            let saved = CallState::unpack(opened.body());
            let saved = saved.map_err(|_| refuse(OpenError::UnknownFormat))?;
            Ok((saved, opened))
        }))
        .unwrap_or_else(|panic| Err(refuse_panic(&*panic, target.method, target.name)))?;
        let mut version = target.options.version;
        match version.compatibility_with(saved.version) {
            Compatibility::Resume => version = version.and(saved.version),
            Compatibility::Restart => {
                saved.forget(target.options.manual, target.method, target.name);
            }
            Compatibility::Refuse => {
                return Err(refuse_newer(saved.version.number, target.method, target.name));
            }
        }
        let single_use = target.options.single_use;
        let claim = match server.store.as_deref().filter(|_| single_use.is_on()) {
            Some(store) => {
                let timeout = target.options.request_timeout;
                let strict = single_use == SingleUse::Strict;
                let claim =
                    SingleUseClaim::new(server, store, &opened, &responses, timeout, strict)?;
                Some(Box::new(claim))
            }
            None => None,
        };
        let (round, manual) = resume(saved, responses, parts, &target)?;
        Ok(Self { server, target, digest: Some(digest), version, claim, round, manual })
    }

    /// The first round of a call. Answers that arrive with it were never asked for.
    fn first(
        server: &'a Registry,
        target: Target<'a>,
        parts: Box<RequestParts>,
        responses: InputResponses,
    ) -> Self {
        let manual = target.options.manual.then(|| {
            let unsolicited = Answers(responses);
            Arc::new(ManualInput { unsolicited, ..ManualInput::default() })
        });
        let (version, round) = (target.options.version, Arc::new(Round::first(parts)));
        Self { server, target, digest: None, version, claim: None, round, manual }
    }

    /// Calls a handler, which may panic before it is a future; an inner error says why the arguments do not fit.
    pub(super) fn begin<O>(
        &self,
        handler: &ErasedHandler<O>,
    ) -> Result<HandlerCall<O>, ErrorObject> {
        let invocation = Invocation { round: Arc::clone(&self.round), manual: self.manual.clone() };
        start(|| handler(invocation, self.target.arguments))
    }

    /// Runs the handler until the round ends, and answers; or, where the state was used, as it was answered then.
    pub(super) async fn run<O, W>(
        &self,
        handler: BoxFuture<Result<ManualOutput<O>, Error>>,
        unwrap: impl FnOnce(O) -> Box<W>,
        complete: impl FnOnce(Result<Box<W>, Error>) -> Outcome,
    ) -> Outcome {
        if let Some(claim) = &self.claim
            && let Claim::Answered(answer) =
                Box::pin(claim.claim(&self.round.parts.notifier.outbox)).await?
        {
            return answer;
        }
        tracing::Span::current().record("mrtr.round", self.round.rounds() + 1);
        let ending = self.drive(handler).await;
        let answer = ending.and_then(|ending| self.answer(ending, unwrap, complete));
        if let Some(claim) = &self.claim {
            Box::pin(claim.settle(&answer)).await;
        }
        answer
    }

    async fn drive<O>(
        &self,
        handler: BoxFuture<Result<ManualOutput<O>, Error>>,
    ) -> Result<Ending<Result<ManualOutput<O>, Error>>, ErrorObject> {
        let round = &*self.round;
        // However the leg ends, and if its client goes away: who waits in a task of its own learns of it.
        let mut close = CloseOnDrop(Some(round));
        let deadline = self.target.options.request_timeout;
        let driven = pin!(drive(round, handler));
        let ending = within(deadline, driven).await.ok_or_else(|| {
            self.failed(&Fault::Handler(format!("the round ran longer than {deadline:?}")))
        })?;
        if !matches!(ending, Ending::Failed(_)) {
            // It is closed.
            close.0 = None;
        }
        Ok(ending)
    }

    fn answer<O, W>(
        &self,
        ending: Ending<Result<ManualOutput<O>, Error>>,
        unwrap: impl FnOnce(O) -> Box<W>,
        complete: impl FnOnce(Result<Box<W>, Error>) -> Outcome,
    ) -> Outcome {
        match ending {
            Ending::Failed(fault) => Err(self.failed(&fault)),
            Ending::Suspended(journal, open) => {
                let long = |entry: &&Entry| entry.value.len() > MAX_ENTRY;
                if let Some(answer) = journal.entries.iter().find(long) {
                    return Err(ErrorObject::invalid_params(format!(
                        "Invalid params: the response to {} has {} bytes; at most {MAX_ENTRY} can be \
                         kept for another round",
                        ErrorObject::quote(&answer.key),
                        answer.value.len()
                    )));
                }
                self.suspend(&open, CallStateContent::Journal(journal))
            }
            Ending::Finished(outcome, journal) => {
                // An error may come before the rest of what was joined with it.
                if let Some(step) = journal.lost_step().filter(|_| outcome.is_ok()) {
                    let why = format!(
                        "the handler ended without coming to the step {:?}, which was done",
                        step.key
                    );
                    return Err(self.failed(&Fault::Changed(why)));
                }
                match outcome {
                    Ok(ManualOutput::Complete(output)) => complete(Ok(unwrap(output))),
                    Ok(ManualOutput::InputRequired(required)) => self.suspend_manual(required),
                    Err(error) => {
                        self.log(&error);
                        complete(Err(error))
                    }
                }
            }
        }
    }

    fn suspend_manual(&self, manual: InputRequired) -> Outcome {
        let InputRequired { requests, state, mistake } = manual;
        if let Some(why) = mistake {
            return Err(self.failed(&Fault::Handler(why)));
        }
        let capabilities = self.round.capabilities();
        let mut open = Vec::with_capacity(requests.len());
        for (key, request) in requests {
            let question = Question::new(request).map_err(|why| {
                let why = format!("the question {key:?} cannot be asked: {why}");
                self.failed(&Fault::Handler(why))
            })?;
            if let Some(missing) = question.missing(capabilities) {
                return Err(self.failed(&Fault::Capability(Box::new(missing))));
            }
            open.push(OpenInput { key: key.into(), question });
        }
        self.suspend(&open, CallStateContent::Manual(state.unwrap_or_default()))
    }

    /// Seals what was learned, and requires.
    fn suspend(&self, open: &[OpenInput], content: CallStateContent) -> Outcome {
        let most = self.target.options.max_rounds;
        if self.round.rounds() >= most.into() {
            let why = format!("the call has taken {most} rounds and requires again");
            return Err(self.failed(&Fault::Handler(why)));
        }
        let now = self.server.clock.now();
        let meta = self.round.next_meta(now).map_err(|fault| self.failed(&fault))?;
        let pending =
            open.iter().map(|open| (Arc::clone(&open.key), open.question.pin())).collect();
        let saved = CallState { version: self.version, meta, pending, content };
        let body = saved.pack();
        check_size(body.len(), &saved).map_err(|fault| self.failed(&fault))?;
        let digest = match self.digest {
            Some(digest) => digest,
            None => arguments_digest(&self.target)?,
        };
        let binding = binding(&self.target, digest, self.round.parts.principal.as_ref());
        let validity = validity(now, meta.started, self.target.options);
        let sealed = start(|| seal(&*self.server.sealer, &binding, validity, &body))?;
        let token = sealed.map_err(|error| {
            self.failed(&Fault::Handler(format!("the request state cannot be sealed: {error}")))
        })?;
        tracing::debug!(
            target: "mrtr::rounds",
            method = self.target.method,
            target = self.target.name,
            round = meta.rounds,
            questions = open.len(),
            state_bytes = token.len(),
            "round ended with questions"
        );
        // As [`mrtr_schema::input::InputRequiredResult`], of what is written already.
        let length = open.iter().map(|open| open.key.len() + open.question.length());
        let length = length.sum::<usize>() + token.len() + self.server.meta_json.get().len();
        let mut result =
            ObjectWriter::with_capacity(length + 128).text("resultType", "input_required");
        if !open.is_empty() {
            result = result.object("inputRequests", |questions| {
                open.iter()
                    .fold(questions, |all, OpenInput { key, question }| question.write(key, all))
            });
        }
        let result = result.text("requestState", &token);
        Ok(result.written("_meta", &self.server.meta_json).end())
    }

    fn log(&self, error: &Error) {
        let (method, target) = (self.target.method, self.target.name);
        if error.is_internal() {
            tracing::error!(target: "mrtr::handler", method, target, error = format!("{error:#}"), "handler failed");
        } else {
            tracing::debug!(target: "mrtr::handler", method, target, %error, "handler returned an error");
        }
    }

    fn failed(&self, fault: &Fault) -> ErrorObject {
        failed(fault, &self.target)
    }
}

/// Logs a fault, and returns what the client may know of it.
fn failed(fault: &Fault, target: &Target<'_>) -> ErrorObject {
    let (method, target) = (target.method, target.name);
    match fault {
        Fault::Capability(missing) => {
            tracing::debug!(target: "mrtr::rounds", method, target, ?missing, "client lacks capabilities");
            missing_capability(missing)
        }
        Fault::Changed(_) => {
            tracing::error!(target: "mrtr::rounds", method, target, %fault, "the call cannot be continued");
            internal("The server has changed since this call began; start it over")
                .with_data(json!({ "reason": "call_changed" }))
        }
        Fault::Handler(_) | Fault::Panicked(_) => {
            tracing::error!(target: "mrtr::rounds", method, target, %fault, "the call failed");
            internal("Internal error")
        }
    }
}

/// Resumes a call. A state that the other form of handler sealed means that the handler changed.
fn resume(
    saved: CallState,
    responses: InputResponses,
    parts: Box<RequestParts>,
    target: &Target<'_>,
) -> Result<(Arc<Round>, Option<Arc<ManualInput>>), ErrorObject> {
    let CallState { meta, pending, content, .. } = saved;
    match content {
        CallStateContent::Journal(journal) if !target.options.manual => {
            let round = Round::later(meta, journal, &pending, responses, parts);
            Ok((Arc::new(round), None))
        }
        CallStateContent::Manual(state) if target.options.manual => {
            let (answers, unsolicited) =
                responses.0.into_iter().partition(|(key, _)| pending.has(key));
            let manual = ManualInput {
                state: (!state.is_empty()).then_some(state),
                answers: Answers(InputResponses(answers)),
                unsolicited: Answers(InputResponses(unsolicited)),
            };
            Ok((Arc::new(Round::without_journal(meta, parts)), Some(Arc::new(manual))))
        }
        _ => {
            let why = "the state was sealed by a handler in the other form (inline or manual)";
            Err(failed(&Fault::Changed(why.to_owned()), target))
        }
    }
}

/// Waits for a future, at most so long from when it first has to be waited for: most have not.
async fn within<F: Future>(time: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    let mut clock = None;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            // A future that has used up its turn does not keep the clock from being looked at.
            let clock = clock.get_or_insert_with(|| Box::pin(unconstrained(sleep(time))));
            clock.as_mut().poll(cx).map(|()| None)
        }
    })
    .await
}

struct CloseOnDrop<'a>(Option<&'a Round>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(round) = self.0 {
            round.close();
        }
    }
}

/// Calls what may panic.
fn start<T>(call: impl FnOnce() -> T) -> Result<T, ErrorObject> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let fault = Fault::panicked(&*panic);
        tracing::error!(target: "mrtr::rounds", %fault, "the call failed");
        internal("Internal error")
    })
}

/// Runs what may panic, before it is a future and then.
pub(super) async fn guarded<T>(call: impl FnOnce() -> BoxFuture<T>) -> Result<T, ErrorObject> {
    let mut future = start(call)?;
    poll_fn(|cx| match start(|| future.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

fn internal(message: &str) -> ErrorObject {
    ErrorObject::internal(message)
}

fn missing_capability(missing: &ClientCapabilities) -> ErrorObject {
    ErrorObject::new(code::MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability")
        .with_data(json!({ "requiredCapabilities": missing }))
}

fn arguments_digest(target: &Target<'_>) -> Result<Digest, ErrorObject> {
    Digest::of_json(Some(target.arguments))
        .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: arguments: {e}")))
}

fn binding<'b>(
    target: &Target<'b>,
    arguments: Digest,
    principal: Option<&'b Principal>,
) -> Binding<'b> {
    Binding { principal, method: target.method, target: target.name, arguments }
}

/// A round's time, but not beyond the flow's.
fn validity(now: UnixSeconds, started: UnixSeconds, options: &CallOptions) -> Validity {
    let seconds = |time: Duration| time.as_secs();
    let mut validity = Validity::starting(now, seconds(options.answer_timeout));
    let end = started.0.saturating_add(seconds(options.call_timeout));
    validity.expires = validity.expires.min(UnixSeconds(end));
    validity
}
