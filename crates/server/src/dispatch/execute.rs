//! The execution of one round: from the request state that arrived to the response.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use mrtr_codec::{Binding, Digest, OpenError, UnixSeconds, Validity, open, seal};
use mrtr_schema::input::InputResponses;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::method;
use mrtr_schema::tasks::{CreateTaskResult, Task};
use tokio::task::unconstrained;
use tokio::time::sleep;

use super::failure::{fault_response, log_error};
use super::panics::catch_panic;
use super::scopes::{check_scopes, scopes_error};
use super::single_use::{Claim, SingleUseClaim};
use super::tasks::declares_tasks;
use crate::call_options::{CallOptions, SingleUse};
use crate::client_feature;
use crate::error::Error;
use crate::handler::{BoxFuture, ErasedHandler, HandlerCall};
use crate::handler_context::Invocation;
use crate::manual::{Answers, InputRequired, ManualInput, ManualOutput};
use crate::question::Question;
use crate::registry::{Outcome, Registry};
use crate::request_parts::RequestParts;
use crate::rounds::{
    CallState, CallStateContent, Compatibility, Ending, Entry, Fault, MAX_ENTRY, OpenInput, Round,
    Suspended, Version, check_size, drive,
};
use crate::state_error::{refuse, refuse_newer, refuse_panic};
use crate::tasks::is_unavailable;

/// The target of a call: its handler, and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) method: &'static str,
    pub(super) name: &'a str,
    /// A JSON object.
    pub(super) arguments: &'a str,
    pub(super) options: &'a CallOptions,
}

/// One round of a call, and all data that its response depends on.
pub(super) struct RoundExecution<'a> {
    server: &'a Registry,
    pub(super) target: Target<'a>,
    /// The digest of the arguments. In the first round, it is computed when a state is sealed.
    digest: Option<Digest>,
    /// The merged version of all handlers that wrote to the state.
    pub(super) version: Version,
    /// The claim of a single-use state.
    claim: Option<Box<SingleUseClaim<'a>>>,
    /// True if a single-use state may be used again, unless the round has begun a step.
    may_release: AtomicBool,
    pub(super) round: Arc<Round>,
    /// The input of a handler in the manual form; `None` for inline handlers.
    manual: Option<Arc<ManualInput>>,
}

impl<'a> RoundExecution<'a> {
    /// Opens the request state, and prepares the round.
    ///
    /// # Errors
    ///
    /// An error response, if the client lacks a required feature, or if the state is not accepted.
    pub(super) fn open(
        server: &'a Registry,
        target: Target<'a>,
        mut parts: Box<RequestParts>,
        responses: Option<InputResponses>,
        state: Option<&str>,
    ) -> Result<Self, ErrorObject> {
        parts.group_states.clone_from(&target.options.group_states);
        if let Some(missing) = client_feature::missing_capabilities(
            target.options.requires.iter().copied(),
            parts.capabilities(),
        ) {
            return Err(ErrorObject::missing_client_capability(&missing));
        }
        let responses = responses.unwrap_or_default();
        let Some(token) = state else {
            check_scopes(target.options, &parts, None)?;
            return Ok(Self::first(server, target, parts, responses));
        };
        let digest = arguments_digest(&target)?;
        let binding = binding(&target, digest, &parts);
        // The expiry of a state covers the end of its call: see `validity`.
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
            Compatibility::Resume => version = version.merge(saved.version),
            Compatibility::Restart => {
                saved.restart(target.options.manual, target.method, target.name);
            }
            Compatibility::Refuse => {
                return Err(refuse_newer(saved.version.number, target.method, target.name));
            }
        }
        let journal = match &saved.content {
            CallStateContent::Journal(journal) => Some(journal),
            CallStateContent::Manual(_) => None,
        };
        check_scopes(target.options, &parts, journal)?;
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
        Ok(Self {
            server,
            target,
            digest: Some(digest),
            version,
            claim,
            may_release: AtomicBool::new(false),
            round,
            manual,
        })
    }

    /// Prepares the first round of a call. Answers that arrive with it are unsolicited.
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
        let version = target.options.version;
        let mut round = Round::first(parts);
        round.is_single_use = target.options.single_use.is_on();
        let round = Arc::new(round);
        Self {
            server,
            target,
            digest: None,
            version,
            claim: None,
            may_release: AtomicBool::new(false),
            round,
            manual,
        }
    }

    /// Calls the handler for its future. The inner error is the reason why the arguments are
    /// invalid.
    pub(super) fn begin<O>(
        &self,
        handler: &ErasedHandler<O>,
    ) -> Result<HandlerCall<O>, ErrorObject> {
        let invocation = Invocation { round: Arc::clone(&self.round), manual: self.manual.clone() };
        catch_panic(|| handler(invocation, self.target.arguments))
    }

    /// Runs the handler until the round ends, and returns the response. A single-use state that was
    /// used gets its earlier response.
    ///
    /// `unwrap` and `complete` turn the output of the handler into a result.
    pub(super) async fn run<O, W>(
        &self,
        mut handler: BoxFuture<Result<ManualOutput<O>, Error>>,
        unwrap: impl FnOnce(O) -> Box<W>,
        complete: impl FnOnce(Result<Box<W>, Error>) -> Outcome,
    ) -> Outcome {
        if self.claim.is_some()
            && let Some(response) = Box::pin(self.claim()).await?
        {
            return response;
        }
        tracing::Span::current().record("mrtr.round", self.round.rounds() + 1);
        let ending = self.drive(&mut handler, Duration::ZERO).await;
        let response = ending.and_then(|ending| self.respond(ending, unwrap, complete));
        if self.claim.is_some() {
            Box::pin(self.settle_claim(&response)).await;
        }
        response
    }

    /// Returns true if the handler has required a scope.
    pub(super) fn requires_scope(&self) -> bool {
        self.round.requires_scope()
    }

    /// Claims a single-use state. Returns its earlier response, if it was used.
    ///
    /// # Errors
    ///
    /// An error response, if an answer is too long to be kept. The handler must not read it: the
    /// state can be used again, and the answer would be a guess for free.
    pub(super) async fn claim(&self) -> Result<Option<Outcome>, ErrorObject> {
        let Some(claim) = &self.claim else { return Ok(None) };
        self.round.check_answers().map_err(|fault| self.fault_response(&fault))?;
        Ok(match claim.claim(&self.round.parts.notifier.outbox()).await? {
            Claim::First => None,
            Claim::Answered(response) => Some(response),
        })
    }

    /// Keeps the response of a single-use state.
    pub(super) async fn settle_claim(&self, response: &Outcome) {
        let Some(claim) = &self.claim else { return };
        // A state whose round has begun a step must not run it again.
        let has_effect = self.round.has_effect();
        if self.may_release.load(Ordering::Relaxed) && response.is_err() && !has_effect {
            claim.release().await;
        } else if response.as_ref().is_err_and(is_unavailable) && !has_effect {
            claim.allow_again().await;
        } else {
            claim.settle(response).await;
        }
    }

    /// Runs the handler until the round ends, after the time that it has `spent` already.
    pub(super) async fn drive<O>(
        &self,
        handler: &mut BoxFuture<Result<ManualOutput<O>, Error>>,
        spent: Duration,
    ) -> Result<Ending<Result<ManualOutput<O>, Error>>, ErrorObject> {
        let round = &*self.round;
        // Tasks of the handler's own must learn of the end of the round, also if the client
        // disconnects and this future is dropped.
        let mut close = CloseOnDrop(Some(round));
        let timeout = self.target.options.request_timeout;
        let driven = pin!(drive(round, handler.as_mut()));
        let ending =
            with_timeout(timeout.saturating_sub(spent), driven).await.ok_or_else(|| {
                self.fault_response(&Fault::Handler(format!(
                    "the round timed out after {timeout:?}"
                )))
            })?;
        if !matches!(ending, Ending::Failed(_)) {
            // `drive` has closed the round, or the round goes on as a task.
            close.0 = None;
        }
        Ok(ending)
    }

    /// Turns the end of a round into its response.
    pub(super) fn respond<O, W>(
        &self,
        ending: Ending<Result<ManualOutput<O>, Error>>,
        unwrap: impl FnOnce(O) -> Box<W>,
        complete: impl FnOnce(Result<Box<W>, Error>) -> Outcome,
    ) -> Outcome {
        match ending {
            Ending::Failed(fault) => Err(self.fault_response(&fault)),
            Ending::Detached => {
                let why = "a call became a task that cannot be one".to_owned();
                Err(self.fault_response(&Fault::Handler(why)))
            }
            Ending::Suspended(suspended) => {
                let Suspended { journal, open, lacks_scope, is_repeatable, .. } = suspended;
                // The client keeps its state, and repeats the request with another token. What the
                // client does not have yet must be sent to it first.
                let is_unsent = !self.round.parts.notifier.has_sent() && self.claim.is_none();
                if lacks_scope && is_repeatable && is_unsent {
                    return Err(scopes_error(self.target.options, journal.scopes()));
                }
                let is_too_long = |entry: &&Entry| entry.value.len() > MAX_ENTRY;
                if let Some(answer) = journal.entries.iter().find(is_too_long) {
                    return Err(self.fault_response(&answer.too_long(MAX_ENTRY)));
                }
                self.suspend(&open, CallStateContent::Journal(journal))
            }
            Ending::Finished(outcome, journal) => {
                // With an error, the handler may return before steps that were joined with it.
                if outcome.is_ok() {
                    journal.check_reached().map_err(|fault| self.fault_response(&fault))?;
                }
                match outcome {
                    Ok(ManualOutput::Complete(output)) => complete(Ok(unwrap(output))),
                    Ok(ManualOutput::InputRequired(required)) => self.suspend_manual(required),
                    Ok(ManualOutput::Task(task)) => self.forward_task(*task),
                    Err(error) => {
                        log_error(&error, self.target.method, self.target.name);
                        complete(Err(error))
                    }
                }
            }
        }
    }

    /// Returns a task of another server.
    fn forward_task(&self, task: Task) -> Outcome {
        if self.target.method != method::TOOLS_CALL || !declares_tasks(&self.round.parts) {
            let why = "the handler returned a task to a client that did not ask for one";
            return Err(self.fault_response(&Fault::Handler(why.to_owned())));
        }
        self.server.complete(&CreateTaskResult::new(task))
    }

    /// Returns the questions of a handler in the manual form.
    fn suspend_manual(&self, manual: InputRequired) -> Outcome {
        let InputRequired { requests, state, mistake } = manual;
        if let Some(why) = mistake {
            return Err(self.fault_response(&Fault::Handler(why)));
        }
        let capabilities = self.round.capabilities();
        let mut open = Vec::with_capacity(requests.len());
        for (key, request) in requests {
            let question = Question::new(request).map_err(|why| {
                let why = format!("the question {key:?} is invalid: {why}");
                self.fault_response(&Fault::Handler(why))
            })?;
            if let Some(missing) = question.missing_capabilities(capabilities) {
                return Err(self.fault_response(&Fault::Capability(Box::new(missing))));
            }
            open.push(OpenInput { key: key.into(), question });
        }
        self.suspend(&open, CallStateContent::Manual(state.unwrap_or_default()))
    }

    /// Seals the state of the call, and returns it with the open questions.
    fn suspend(&self, open: &[OpenInput], content: CallStateContent) -> Outcome {
        let now = self.server.clock.now();
        let meta = self.round.next_meta(now).map_err(|fault| self.fault_response(&fault))?;
        // A call is not to fail because it was handed over.
        let rounds = meta.rounds.saturating_sub(meta.hand_overs.into());
        let max_rounds = self.target.options.max_rounds;
        if rounds > max_rounds.into() {
            return Err(self.fault_response(&Fault::too_many_rounds(max_rounds)));
        }
        let pending =
            open.iter().map(|open| (Arc::clone(&open.key), open.question.digest())).collect();
        let saved = CallState { version: self.version, meta, pending, content };
        let body = saved.pack();
        check_size(body.len(), &saved).map_err(|fault| self.fault_response(&fault))?;
        let digest = match self.digest {
            Some(digest) => digest,
            None => arguments_digest(&self.target)?,
        };
        let binding = binding(&self.target, digest, &self.round.parts);
        let validity = validity(now, meta.started, self.target.options);
        let sealed = catch_panic(|| seal(&*self.server.sealer, &binding, validity, &body))?;
        let token = sealed.map_err(|error| {
            self.fault_response(&Fault::Handler(format!(
                "sealing the request state failed: {error}"
            )))
        })?;
        tracing::debug!(
            target: "mrtr::rounds",
            method = self.target.method,
            target = self.target.name,
            round = meta.rounds,
            questions = open.len(),
            state_bytes = token.len(),
            "round ended without a result"
        );
        // The JSON of `InputRequiredResult`, made of parts that are serialized already.
        let length = open.iter().map(|open| open.key.len() + open.question.size_hint());
        let length = length.sum::<usize>() + token.len() + self.server.meta_json.as_str().len();
        let mut result =
            ObjectWriter::with_capacity(length + 128).string("resultType", "input_required");
        if !open.is_empty() {
            result = result.object("inputRequests", |questions| {
                open.iter()
                    .fold(questions, |all, OpenInput { key, question }| question.write(key, all))
            });
        }
        let result = result.string("requestState", &token);
        Ok(result.raw("_meta", &self.server.meta_json).end())
    }

    /// Requests that a single-use state be released. Has no effect if the round has begun a step.
    pub(super) fn allow_release(&self) {
        self.may_release.store(true, Ordering::Relaxed);
    }

    pub(super) fn fault_response(&self, fault: &Fault) -> ErrorObject {
        fault_response(fault, self.target.method, self.target.name)
    }
}

/// Creates a later round.
///
/// # Errors
///
/// An error response, if a handler in the other form (inline or manual) sealed the state.
fn resume(
    saved: CallState,
    responses: InputResponses,
    parts: Box<RequestParts>,
    target: &Target<'_>,
) -> Result<(Arc<Round>, Option<Arc<ManualInput>>), ErrorObject> {
    let CallState { meta, pending, content, .. } = saved;
    match content {
        CallStateContent::Journal(journal) if !target.options.manual => {
            let mut round = Round::resume(meta, journal, &pending, responses, parts);
            round.is_single_use = target.options.single_use.is_on();
            Ok((Arc::new(round), None))
        }
        CallStateContent::Manual(state) if target.options.manual => {
            let (answers, unsolicited) =
                responses.0.into_iter().partition(|(key, _)| pending.contains(key));
            let manual = ManualInput {
                state: (!state.is_empty()).then_some(state),
                answers: Answers(InputResponses(answers)),
                unsolicited: Answers(InputResponses(unsolicited)),
            };
            Ok((Arc::new(Round::resume_manual(meta, parts)), Some(Arc::new(manual))))
        }
        _ => {
            let why = "the state was sealed by a handler in the other form (inline or manual)";
            Err(fault_response(&Fault::Changed(why.to_owned()), target.method, target.name))
        }
    }
}

/// Awaits a future with a timeout. The timer is created when the future is first pending: most
/// never are.
pub(super) async fn with_timeout<F: Future>(
    time: Duration,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let mut timer = None;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            // Unconstrained, because a future that exhausts the task's cooperative budget would
            // keep the timer from firing.
            let timer = timer.get_or_insert_with(|| Box::pin(unconstrained(sleep(time))));
            timer.as_mut().poll(cx).map(|()| None)
        }
    })
    .await
}

/// Closes the round when it is dropped.
pub(super) struct CloseOnDrop<'a>(pub(super) Option<&'a Round>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(round) = self.0 {
            round.close();
        }
    }
}

fn arguments_digest(target: &Target<'_>) -> Result<Digest, ErrorObject> {
    Digest::from_json(Some(target.arguments))
        .map_err(|e| ErrorObject::invalid_params(format!("Invalid params: arguments: {e}")))
}

fn binding<'b>(target: &Target<'b>, arguments: Digest, parts: &'b RequestParts) -> Binding<'b> {
    Binding {
        principal: parts.principal(),
        proof_key: parts.proof_key(),
        method: target.method,
        target: target.name,
        arguments,
    }
}

/// Returns the validity of a state: the time to answer, but not beyond the end of the call.
fn validity(now: UnixSeconds, started: UnixSeconds, options: &CallOptions) -> Validity {
    let mut validity = Validity::starting(now, options.answer_timeout.as_secs());
    let end = started.0.saturating_add(options.call_timeout.as_secs());
    validity.expires = validity.expires.min(UnixSeconds(end));
    validity
}
