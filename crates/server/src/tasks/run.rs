//! One run of a task: from its claim until it ends, waits for answers, or loses its lease.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mrtr_codec::OpenError;
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::method;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::holding::{Holding, Stop};
use super::store::{HeldTask, LeaseId, RunEnd, StoredStatus, TaskKey, TaskWrite, task_handler};
use super::{Part, StoredCall, TaskService, View, ViewOutcome};
use crate::dispatch::{fault_response, log_error, missing_scopes};
use crate::error::Error;
use crate::handler::BoxFuture;
use crate::handler_context::Invocation;
use crate::manual::ManualOutput;
use crate::output::ToolOutput;
use crate::registry::Registry;
use crate::rounds::{
    Compatibility, Ending, Entry, Fault, Journal, Round, SharedStr, Suspended, Version, drive,
};
use crate::tool::Tool;

/// Maximum number of consecutive runs that end without progress because the replica died or lost
/// its lease.
const MAX_FAILED_RUNS: u64 = 5;

/// The pause before a task is tried again whose journal the handler does not fit.
const CHANGED_PAUSE: Duration = Duration::from_mins(1);

/// A run, its handler's future, and a write that has to be made first.
type Prepared = (Run, Result<ToolFuture, Fault>, Option<TaskWrite>);

/// The future of a tool's handler.
pub(crate) type ToolFuture = BoxFuture<Result<ManualOutput<ToolOutput>, Error>>;

/// A run of a task.
pub(crate) struct Run {
    pub(crate) registry: Arc<Registry>,
    pub(crate) key: TaskKey,
    pub(crate) lease: LeaseId,
    /// The name of the tool.
    pub(crate) tool: String,
    pub(crate) call: StoredCall,
    pub(crate) view: View,
    pub(crate) epoch: u32,
    /// The questions that were answered in this epoch and in earlier ones, by wire key.
    pub(crate) answered: Vec<String>,
    pub(crate) round: Arc<Round>,
    /// The lease, as this replica sees it.
    pub(crate) holding: Holding,
}

/// The end of a run, before it is written.
enum Driven {
    Ended(Ending<Result<ManualOutput<ToolOutput>, Error>>),
    Stopped(Stop),
}

impl Run {
    /// Continues a task that was claimed at `claimed_at`.
    pub(super) async fn resume(
        registry: Arc<Registry>,
        held: HeldTask,
        lease: LeaseId,
        claimed_at: Instant,
    ) {
        let Ok(service) = registry.task_service() else { return };
        let key = held.key;
        let holding = Holding::new(claimed_at, service.usable_lease());
        let until = holding.until();
        let prepared = Self::prepare(&registry, held, lease, holding);
        let (run, handler, change) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => {
                // The key may be missing on this replica only.
                tracing::error!(target: "mrtr::tasks", ?key, why, "a task was set aside");
                let end = Some(RunEnd::Released(CHANGED_PAUSE));
                let write = TaskWrite { end, ..TaskWrite::new(key, lease) };
                drop(timeout_at(until, service.store.write(write)).await);
                return;
            }
        };
        if run.view.failed_runs >= MAX_FAILED_RUNS {
            tracing::error!(
                target: "mrtr::tasks",
                runs = MAX_FAILED_RUNS,
                "the task fails: its last runs lost their replica or lease without progress"
            );
            return run.fail(ErrorObject::internal("Internal error")).await;
        }
        if let Some(change) = change
            && run.write(change).await.is_none()
        {
            return;
        }
        match handler {
            Ok(handler) => run.execute(handler).await,
            Err(fault) => run.settle(Driven::Ended(Ending::Failed(fault))).await,
        }
    }

    /// Opens a task, and creates its handler's future. The last value is a write that has to be
    /// made first: another version of the handler continues the task, or an earlier run of it has
    /// failed.
    ///
    /// # Errors
    ///
    /// The reason why the task cannot be opened.
    fn prepare(
        registry: &Arc<Registry>,
        held: HeldTask,
        lease: LeaseId,
        holding: Holding,
    ) -> Result<Prepared, String> {
        let HeldTask { key, handler, epoch, attempts, call, view, entries, answers } = held;
        let seal = registry.task_seal(key);
        let failed = |error: OpenError| error.reason().to_owned();
        let malformed = |_| "malformed".to_owned();
        let call = seal.open(Part::Call(&handler.tool), &call).map_err(failed)?;
        let call = StoredCall::unpack(&call).map_err(malformed)?;
        let view = seal.open(Part::View(call.principal.as_ref()), &view).map_err(failed)?;
        let mut view = View::unpack(&view).map_err(malformed)?;
        if (entries.len() as u64) < view.entries {
            return Err("entries of the journal are missing".to_owned());
        }
        let mut journal = Journal::default();
        for (position, entry) in entries.iter().enumerate() {
            let entry = seal.open(Part::Entry(position), entry).map_err(failed)?;
            journal.entries.push(Entry::unpack(&entry).map_err(malformed)?);
        }
        let length = journal.entries.len() as u64;
        let mut responses = InputResponses::default();
        let (mut answered, mut pairs) = (Vec::new(), Vec::new());
        for answer in answers {
            let body = seal.open(Part::Answer(&answer.question), &answer.answer);
            let body = String::from_utf8(body.map_err(failed)?);
            let body = body.map_err(|_| "malformed".to_owned())?;
            if answer.epoch == epoch
                && let Some(open) =
                    view.questions.iter().find(|open| open.wire_key == answer.question)
            {
                let value = RawValue::from_string(body.clone());
                let value = value.map_err(|_| "malformed".to_owned())?;
                responses.0.push((open.key.to_string(), value));
            }
            let pair = (SharedStr::from(&*answer.question), SharedStr::from(body));
            pairs.push((answer.epoch, pair));
            answered.push(answer.question);
        }
        let tool = registry.tool(&handler.tool).ok_or("the tool does not exist")?;
        let saved = Version { number: handler.version, since: handler.min_version };
        let mut version = tool.options.version;
        let mut write = TaskWrite::new(key, lease);
        match version.compatibility_with(saved) {
            Compatibility::Resume => version = version.merge(saved),
            Compatibility::Restart => {
                tracing::info!(
                    target: "mrtr::rounds",
                    "restarting a task of an earlier handler version"
                );
                journal = Journal::default();
                responses = InputResponses::default();
                view.restart(epoch);
                write.position = Some(0);
            }
            Compatibility::Refuse => return Err("the handler is too old".to_owned()),
        }
        // A handler that began anew runs its steps with the keys that they had before.
        let (known, first) = match view.restarted {
            None => (call.known.clone(), 0),
            Some(restarted) => (Vec::new(), restarted.saturating_add(1)),
        };
        let counting = pairs.into_iter().filter(|(epoch, _)| *epoch >= first);
        let known = known.into_iter().chain(counting.map(|(_, pair)| pair)).collect();
        // `attempts` also counts claims whose reply was lost, which started no run. So each run after
        // the first records in the view that it has begun.
        let failed_runs = match attempts {
            0 | 1 => 0,
            _ if view.failed_at == length => view.failed_runs + 1,
            _ => 1,
        };
        if write.position.is_some() || failed_runs != view.failed_runs {
            (view.failed_runs, view.failed_at) = (failed_runs, length);
            let sealed = seal.seal(Part::View(call.principal.as_ref()), &view.pack());
            write.view = Some(sealed.map_err(|error| error.to_string())?);
        }
        if version != saved {
            write.handler = Some(task_handler(&handler.tool, version));
        }
        let change = (write.view.is_some() || write.handler.is_some()).then_some(write);
        holding.set_entries(view.entries);
        let mut parts = call.parts(&registry.runtime);
        parts.group_states.clone_from(&tool.options.group_states);
        let (meta, pending) = (call.meta, view.pending());
        let round = Round::resume_task(meta, journal, &pending, responses, known, parts);
        let round = Arc::new(round);
        let invocation = Invocation { round: Arc::clone(&round), manual: None };
        // The code that reads the arguments is the application's.
        let called = catch_unwind(AssertUnwindSafe(|| (tool.handler)(invocation, &call.arguments)));
        let future = match called {
            Ok(Ok(future)) => Ok(future),
            Ok(Err(why)) => Err(Fault::Changed(format!("the arguments are invalid now: {why}"))),
            Err(panic) => Err(Fault::panicked(&*panic)),
        };
        let registry = Arc::clone(registry);
        let tool = handler.tool;
        let run = Self { registry, key, lease, tool, call, view, epoch, answered, round, holding };
        Ok((run, future, change))
    }

    /// Runs the handler, and writes how that ended.
    pub(crate) async fn execute(self, mut handler: ToolFuture) {
        let driven = self.drive(&mut handler).await;
        drop(handler);
        self.settle(driven).await;
    }

    async fn drive(&self, handler: &mut ToolFuture) -> Driven {
        let Ok(service) = self.registry.task_service() else { return Driven::Stopped(Stop::Lost) };
        let hint = service.register(self.key);
        let _close = CloseOnDrop(self, service, &hint);
        let mut kept = pin!(self.keep(service, &hint));
        let mut driven = pin!(drive(&self.round, handler.as_mut()));
        poll_fn(|cx| {
            // Checked first, also if no timer has fired: the process may have been suspended.
            if Instant::now() >= self.holding.until() {
                return Poll::Ready(Driven::Stopped(Stop::Lost));
            }
            if let Poll::Ready(stop) = kept.as_mut().poll(cx) {
                return Poll::Ready(Driven::Stopped(stop));
            }
            driven.as_mut().poll(cx).map(Driven::Ended)
        })
        .await
    }

    /// Writes how the run ended.
    async fn settle(mut self, driven: Driven) {
        // The handler may have reported progress since the last write.
        let committed = self.holding.take_message();
        if let Some(message) = self.round.take_message().or(committed) {
            self.view.message = Some(message);
        }
        let ending = match driven {
            Driven::Stopped(Stop::Lost) => return,
            Driven::Stopped(Stop::Cancelled) => {
                self.view.end(None);
                return self.end(RunEnd::Ended(StoredStatus::Cancelled), None).await;
            }
            Driven::Stopped(Stop::Released) => {
                return self.end(RunEnd::Released(Duration::ZERO), None).await;
            }
            Driven::Ended(ending) => ending,
        };
        let registry = Arc::clone(&self.registry);
        let Some(tool) = registry.tool(&self.tool) else { return };
        match ending {
            Ending::Detached => {}
            Ending::Finished(outcome, journal) => {
                // With an error, the handler may return before steps that were joined with it.
                if outcome.is_ok()
                    && let Err(fault) = journal.check_reached()
                {
                    return self.settle_fault(tool, &fault).await;
                }
                let outcome = match outcome {
                    Ok(ManualOutput::Complete(output)) => Ok(output.0),
                    Ok(ManualOutput::InputRequired(_) | ManualOutput::Task(_)) => {
                        let why = "a handler in the manual form cannot be a task".to_owned();
                        return self.settle_fault(tool, &Fault::Handler(why)).await;
                    }
                    Err(error) => {
                        log_error(&error, method::TOOLS_CALL, &tool.wire.name);
                        Err(error)
                    }
                };
                match registry.tool_response(tool, outcome) {
                    Ok(result) => {
                        self.view.end(Some(ViewOutcome::new(Ok(result))));
                        self.end(RunEnd::Ended(StoredStatus::Completed), None).await;
                    }
                    Err(error) => self.fail(error).await,
                }
            }
            Ending::Suspended(suspended) => self.suspend(tool, suspended).await,
            Ending::Failed(fault) => self.settle_fault(tool, &fault).await,
        }
    }

    async fn suspend(mut self, tool: &Tool, suspended: Suspended) {
        let Suspended { mut journal, open, lacks_scope, saved, .. } = suspended;
        if lacks_scope {
            let error = missing_scopes(&tool.options, &journal);
            return self.fail(error).await;
        }
        let max_rounds = tool.options.max_rounds;
        // Without a question, another replica goes on in the same epoch.
        if self.epoch >= max_rounds && !open.is_empty() {
            return self.settle_fault(tool, &Fault::too_many_rounds(max_rounds)).await;
        }
        let saved = self.holding.writing_from().map_or(saved, |from| from.min(saved));
        self.view.entries = journal.entries.len() as u64;
        self.view.failed_runs = 0;
        let entries = journal.entries.split_off(saved.min(journal.entries.len()));
        let end = if open.is_empty() {
            // The replica is overloaded or shuts down.
            RunEnd::Released(Duration::ZERO)
        } else {
            let Self { view, answered, .. } = &mut self;
            view.ask(&open, |key| answered.iter().any(|answered| answered == key));
            tracing::debug!(
                target: "mrtr::tasks",
                questions = open.len(), "the task waits for answers"
            );
            RunEnd::Waits
        };
        self.end(end, Some((saved, entries))).await;
    }

    async fn settle_fault(self, tool: &Tool, fault: &Fault) {
        let error = fault_response(fault, method::TOOLS_CALL, &tool.wire.name);
        if matches!(fault, Fault::Changed(_)) {
            return self.end(RunEnd::Released(CHANGED_PAUSE), None).await;
        }
        self.fail(error).await;
    }

    async fn fail(mut self, error: ErrorObject) {
        self.view.message = Some(error.message.clone());
        self.view.end(Some(ViewOutcome::new(Err(error))));
        self.end(RunEnd::Ended(StoredStatus::Failed), None).await;
    }

    /// Ends the run, with the last entries of the journal, which begin at a position.
    async fn end(self, end: RunEnd, entries: Option<(usize, Vec<Entry>)>) {
        let mut write = TaskWrite { end: Some(end), ..TaskWrite::new(self.key, self.lease) };
        if let Some((position, entries)) = entries {
            let Some(entries) = self.seal_entries(position, &entries) else { return };
            (write.position, write.entries) = (Some(position), entries);
        }
        if !matches!(end, RunEnd::Released(_)) {
            let Some(view) = self.seal_view(&self.view) else { return };
            write.view = Some(view);
        }
        if self.write(write).await.is_some() {
            tracing::debug!(target: "mrtr::tasks", ?end, "the run ended");
        }
    }

    pub(super) fn seal_entries(&self, position: usize, entries: &[Entry]) -> Option<Vec<Vec<u8>>> {
        let seal = self.registry.task_seal(self.key);
        let sealed = (position..)
            .zip(entries)
            .map(|(position, entry)| seal.seal(Part::Entry(position), &entry.pack()));
        log_seal_error(sealed.collect())
    }

    pub(super) fn seal_view(&self, view: &View) -> Option<Vec<u8>> {
        let seal = self.registry.task_seal(self.key);
        log_seal_error(seal.seal(Part::View(self.call.principal.as_ref()), &view.pack()))
    }
}

/// Logs an error of the sealer. The lease then runs out, and another replica continues the task.
fn log_seal_error<T>(sealed: Result<T, mrtr_codec::SealError>) -> Option<T> {
    sealed
        .inspect_err(|error| {
            tracing::error!(target: "mrtr::tasks", %error, "sealing a part of the task failed");
        })
        .ok()
}

/// Ends the registration of a run, and closes its round.
struct CloseOnDrop<'a>(&'a Run, &'a TaskService, &'a Arc<Notify>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.1.unregister(self.0.key, self.2);
        self.0.round.close();
    }
}
