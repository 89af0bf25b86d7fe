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

use super::Outcome;
use super::single_use::{Claim, Once};
use crate::client_feature;
use crate::context::Context;
use crate::error::Error;
use crate::handler::{BoxFuture, Called, Erased};
use crate::manual::{Answers, InputRequired, Manual};
use crate::question::Question;
use crate::request_context::RequestContext;
use crate::rounds::{
    Compatibility, Ending, Entry, Fault, MAX_ENTRY, Open, Round, Saved, SavedContent, Version,
    check_size, drive,
};
use crate::server::Inner;
use crate::state_error::{refuse, refuse_newer};
use crate::tool::{CallOptions, Output};

/// What a request is about.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) method: &'static str,
    pub(super) name: &'a str,
    /// JSON, an object.
    pub(super) arguments: &'a str,
    pub(super) rules: &'a CallOptions,
}

pub(super) struct Leg<'a> {
    server: &'a Inner,
    target: Target<'a>,
    /// The arguments' digest, once it was taken.
    digest: Option<Digest>,
    /// What the next state says of the handlers that wrote it.
    version: Version,
    /// If the state that came is for single use.
    once: Option<Box<Once<'a>>>,
    round: Arc<Round>,
}

impl<'a> Leg<'a> {
    /// Opens the state, and matches the answers to the questions in it.
    pub(super) fn open(
        server: &'a Inner,
        target: Target<'a>,
        caller: Box<RequestContext>,
        responses: Option<InputResponses>,
        state: Option<&str>,
    ) -> Result<Self, ErrorObject> {
        if let Some(missing) =
            client_feature::missing_of(target.rules.asks.iter().copied(), caller.capabilities())
        {
            return Err(missing_capability(&missing));
        }
        let responses = responses.unwrap_or_default();
        let (mut digest, mut once, mut version) = (None, None, target.rules.version);
        let saved = match state {
            None => None,
            Some(token) => {
                let arguments = arguments_digest(&target)?;
                digest = Some(arguments);
                let binding = binding(&target, arguments, caller.principal.as_ref());
                // A state never outlives its flow: see `validity`.
                let opened = open(&*server.sealer, token, &binding, server.clock.now());
                let opened = opened.and_then(|opened| {
                    let saved =
                        Saved::unpack(opened.body()).map_err(|_| OpenError::UnknownFormat)?;
                    Ok((saved, opened))
                });
                let (mut saved, opened) =
                    opened.map_err(|refusal| refuse(refusal, target.method, target.name))?;
                match target.rules.version.compatibility_with(saved.version) {
                    Compatibility::Resume => version = version.and(saved.version),
                    Compatibility::Restart => saved.forget(target.method, target.name),
                    Compatibility::Refuse => {
                        return Err(refuse_newer(saved.version.number, target.method, target.name));
                    }
                }
                if let Some(guard) = server.guard.as_deref().filter(|_| target.rules.single_use) {
                    let deadline = target.rules.deadline;
                    once = Some(Box::new(Once::new(server, guard, &opened, &responses, deadline)?));
                }
                Some(saved)
            }
        };
        let round = Arc::new(match saved {
            Some(saved) => resume(saved, responses, caller),
            // Answers that come with the first leg of a flow were never asked for.
            None => {
                let manual = Manual { unasked: Answers(responses), ..Manual::default() };
                Round::first(caller, manual)
            }
        });
        Ok(Self { server, target, digest, version, once, round })
    }

    /// Calls a handler, which may panic before it is a future; an inner error says why the arguments do not fit.
    pub(super) fn begin<O>(&self, handler: &Erased<O>) -> Result<Called<O>, ErrorObject> {
        let context = Context { round: Arc::clone(&self.round) };
        start(|| handler(context, self.target.arguments))
    }

    /// Runs the handler until the round ends, and answers; or, where the state was used, as it was answered then.
    pub(super) async fn run<O, W>(
        &self,
        handler: BoxFuture<Result<O, Error>>,
        unwrap: impl FnOnce(O) -> Output<W>,
        complete: impl FnOnce(Result<Box<W>, Error>) -> Outcome,
    ) -> Outcome {
        if let Some(once) = &self.once
            && let Claim::Answered(answer) =
                Box::pin(once.claim(&self.round.caller.notify.outbox)).await?
        {
            return answer;
        }
        tracing::Span::current().record("mrtr.round", self.round.rounds() + 1);
        let ending = self.drive(handler).await;
        let answer = ending.and_then(|ending| self.answer(ending, unwrap, complete));
        if let Some(once) = &self.once {
            Box::pin(once.settle(&answer)).await;
        }
        answer
    }

    async fn drive<O>(
        &self,
        handler: BoxFuture<Result<O, Error>>,
    ) -> Result<Ending<Result<O, Error>>, ErrorObject> {
        let round = &*self.round;
        // However the leg ends, and if its client goes away: who waits in a task of its own learns of it.
        let mut close = CloseOnDrop(Some(round));
        let deadline = self.target.rules.deadline;
        let driven = pin!(drive(round, handler));
        let ending = within(deadline, driven).await.ok_or_else(|| {
            self.failed(&Fault::Handler(format!("the leg ran longer than {deadline:?}")))
        })?;
        if !matches!(ending, Ending::Failed(_)) {
            // It is closed.
            close.0 = None;
        }
        Ok(ending)
    }

    fn answer<O, W>(
        &self,
        ending: Ending<Result<O, Error>>,
        unwrap: impl FnOnce(O) -> Output<W>,
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
                self.suspend(&open, SavedContent::Journal(journal))
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
                match outcome.map(unwrap) {
                    Ok(Output::Complete(result)) => complete(Ok(result)),
                    Ok(Output::InputRequired(_)) if !journal.entries.is_empty() => {
                        Err(self.failed(&Fault::mixed()))
                    }
                    Ok(Output::InputRequired(manual)) => self.suspend_manual(*manual),
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
            open.push(Open { key: key.into(), question });
        }
        self.suspend(&open, SavedContent::Manual(state.unwrap_or_default()))
    }

    /// Seals what was learned, and asks.
    fn suspend(&self, open: &[Open], content: SavedContent) -> Outcome {
        let most = self.target.rules.max_rounds;
        if self.round.rounds() >= most.into() {
            let why = format!("the flow has taken {most} rounds, and asks once more");
            return Err(self.failed(&Fault::Handler(why)));
        }
        let now = self.server.clock.now();
        let flow = self.round.next_flow(now).map_err(|fault| self.failed(&fault))?;
        let asked = open.iter().map(|open| (Arc::clone(&open.key), open.question.pin())).collect();
        let saved = Saved { version: self.version, flow, asked, content };
        let body = saved.pack();
        check_size(body.len(), &saved).map_err(|fault| self.failed(&fault))?;
        let digest = match self.digest {
            Some(digest) => digest,
            None => arguments_digest(&self.target)?,
        };
        let binding = binding(&self.target, digest, self.round.caller.principal.as_ref());
        let validity = validity(now, flow.started, self.target.rules);
        let token = seal(&*self.server.sealer, &binding, validity, &body).map_err(|error| {
            self.failed(&Fault::Handler(format!("the state cannot be sealed: {error}")))
        })?;
        tracing::debug!(
            target: "mrtr::rounds",
            method = self.target.method,
            target = self.target.name,
            round = flow.rounds,
            questions = open.len(),
            state_bytes = token.len(),
            "round ended with questions"
        );
        // As [`mrtr_schema::input::InputRequiredResult`], of what is written already.
        let length = open.iter().map(|open| open.key.len() + open.question.length());
        let length = length.sum::<usize>() + token.len() + self.server.written_meta.get().len();
        let mut result =
            ObjectWriter::with_capacity(length + 128).text("resultType", "input_required");
        if !open.is_empty() {
            result = result.object("inputRequests", |questions| {
                open.iter().fold(questions, |all, Open { key, question }| question.write(key, all))
            });
        }
        let result = result.text("requestState", &token);
        Ok(result.written("_meta", &self.server.written_meta).end())
    }

    fn log(&self, error: &Error) {
        let (method, target) = (self.target.method, self.target.name);
        if error.is_internal() {
            tracing::error!(target: "mrtr::handler", method, target, error = format!("{error:#}"), "handler failed");
        } else {
            tracing::debug!(target: "mrtr::handler", method, target, %error, "handler returned an error");
        }
    }

    /// Logs a fault, and says to the caller what concerns it.
    fn failed(&self, fault: &Fault) -> ErrorObject {
        let (method, target) = (self.target.method, self.target.name);
        match fault {
            Fault::Capability(missing) => {
                tracing::debug!(target: "mrtr::rounds", method, target, ?missing, "client lacks capabilities");
                missing_capability(missing)
            }
            Fault::Changed(_) => {
                tracing::error!(target: "mrtr::rounds", method, target, %fault, "flow cannot be continued");
                internal("The server has changed since this call began; start it over")
                    .with_data(json!({ "reason": "flow_changed" }))
            }
            Fault::Handler(_) | Fault::Panicked(_) => {
                tracing::error!(target: "mrtr::rounds", method, target, %fault, "flow failed");
                internal("Internal error")
            }
        }
    }
}

/// A later leg.
fn resume(saved: Saved, responses: InputResponses, caller: Box<RequestContext>) -> Round {
    let Saved { flow, asked, content, .. } = saved;
    match content {
        SavedContent::Journal(journal) => Round::later(flow, journal, &asked, responses, caller),
        SavedContent::Manual(state) => {
            let (answers, unasked) = responses.0.into_iter().partition(|(key, _)| asked.has(key));
            let manual = Manual {
                state: (!state.is_empty()).then_some(state),
                answers: Answers(InputResponses(answers)),
                unasked: Answers(InputResponses(unasked)),
            };
            Round::manual(flow, manual, caller)
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
        tracing::error!(target: "mrtr::rounds", %fault, "flow failed");
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
    Digest::from_json(Some(target.arguments))
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
fn validity(now: UnixSeconds, started: UnixSeconds, rules: &CallOptions) -> Validity {
    let seconds = |time: Duration| time.as_secs();
    let mut validity = Validity::starting(now, seconds(rules.answer_timeout));
    let end = started.0.saturating_add(seconds(rules.lifetime));
    validity.expires = validity.expires.min(UnixSeconds(end));
    validity
}
