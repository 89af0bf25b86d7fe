//! Calls that may become tasks.

use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mrtr_codec::Digest;
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::tasks::CreateTaskResult;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;

use super::execute::{CloseOnDrop, RoundExecution, with_timeout};
use super::tasks::{declares_tasks, missing_extension, task_on_wire};
use super::tools::ToolCall;
use crate::output::ToolOutput;
use crate::registry::{Outcome, Registry, ResponseFuture};
use crate::request_parts::RequestParts;
use crate::rounds::{Ending, Fault, drive};
use crate::tasks::{
    Created, Holding, Lease, NewTask, Part, Run, RunEnd, StoredCall, TaskHandler, TaskKey,
    TaskPolicy, TaskRecord, TaskService, TaskStart, TaskWrite, ToolFuture, View, either, is_full,
    task_handler, within_request,
};
use crate::tool::Tool;

/// A call that may become a task.
#[derive(Clone, Copy)]
struct Detachable<'a> {
    service: &'a TaskService,
    policy: &'a TaskPolicy,
    tool: &'a Tool,
}

/// Answers a call of a tool that has a policy for tasks.
pub(crate) fn call(
    server: Arc<Registry>,
    request: &Request,
    parts: Box<RequestParts>,
) -> ResponseFuture<'_> {
    Box::pin(async move {
        match server.begin_tool(ToolCall::from_request(request)?, parts)? {
            (tool, round, Ok(handler)) => match server.detachable(tool, &round.round.parts)? {
                Some(task) => round.run_detachable(&server, task, handler).await,
                None => server.run_tool(tool, &round, handler).await,
            },
            (.., Err(why)) => server.invalid_arguments(&why),
        }
    })
}

impl Registry {
    /// Returns the tasks and the policy for a call that may become a task: the tool has a policy,
    /// and the client declares the extension with this request.
    ///
    /// # Errors
    ///
    /// An error response, if the policy requires a client with the extension.
    fn detachable<'a>(
        &'a self,
        tool: &'a Tool,
        parts: &RequestParts,
    ) -> Result<Option<Detachable<'a>>, ErrorObject> {
        let (Some(policy), Some(service)) = (&tool.task, self.tasks.as_deref()) else {
            return Ok(None);
        };
        if declares_tasks(parts) {
            return Ok(Some(Detachable { service, policy, tool }));
        }
        if policy.required { Err(missing_extension()) } else { Ok(None) }
    }
}

impl RoundExecution<'_> {
    /// Runs a round that may become a task, and returns the response.
    async fn run_detachable(
        &self,
        registry: &Arc<Registry>,
        task: Detachable<'_>,
        handler: ToolFuture,
    ) -> Outcome {
        if let Some(response) = self.claim().await? {
            return response;
        }
        tracing::Span::current().record("mrtr.round", self.round.rounds() + 1);
        self.round.allow_detach();
        let response = self.respond_or_detach(registry, task, handler).await;
        self.settle_claim(&response).await;
        response
    }

    async fn respond_or_detach(
        &self,
        registry: &Arc<Registry>,
        task: Detachable<'_>,
        mut handler: ToolFuture,
    ) -> Outcome {
        // Tasks of the handler's own must learn of the end of the round, also if the client
        // disconnects. The run of a task ends the round itself.
        let mut close = CloseOnDrop(Some(&*self.round));
        let begun = Instant::now();
        let ending = match task.policy.start {
            TaskStart::Immediately => Ending::Detached,
            TaskStart::After(time) if time < self.target.options.request_timeout => {
                let driven = {
                    let driven = pin!(drive(&self.round, handler.as_mut()));
                    with_timeout(time, driven).await
                };
                match driven {
                    Some(ending) => ending,
                    None => match self.create_in_time(registry, task).await? {
                        Some(created) => {
                            close.0 = None;
                            return self.detach(registry, task, handler, created).await;
                        }
                        None => self.drive(&mut handler, begun.elapsed()).await?,
                    },
                }
            }
            TaskStart::After(_) | TaskStart::OnDetach => {
                self.drive(&mut handler, Duration::ZERO).await?
            }
        };
        if let Ending::Detached = ending {
            let permit = task.service.try_permit();
            let created = self.create(registry, task, permit).await.inspect_err(|error| {
                // Nothing was created.
                if is_full(error) {
                    self.allow_release();
                }
            })?;
            close.0 = None;
            return self.detach(registry, task, handler, created).await;
        }
        let complete = |outcome| registry.tool_response(task.tool, outcome);
        self.respond(ending, |output: ToolOutput| output.0, complete)
    }

    /// Creates the task of a call that takes long. Without a permit, or if the store is full, the
    /// call goes on as it is: returns `None`.
    ///
    /// # Errors
    ///
    /// An error response, if the store fails. It may have created the task, which another replica
    /// then runs, so this one must not go on.
    async fn create_in_time(
        &self,
        registry: &Arc<Registry>,
        task: Detachable<'_>,
    ) -> Result<Option<CreatedTask>, ErrorObject> {
        let Some(permit) = task.service.try_permit() else { return Ok(None) };
        match self.create(registry, task, Some(permit)).await {
            Err(error) if is_full(&error) => {
                self.round.detach_failed();
                Ok(None)
            }
            created => created.map(Some),
        }
    }

    /// Creates the task in the store.
    async fn create(
        &self,
        registry: &Arc<Registry>,
        Detachable { service, policy, tool }: Detachable<'_>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<CreatedTask, ErrorObject> {
        let fault = |fault: Fault| self.fault_response(&fault);
        let entries = self.round.attach().map_err(fault)?;
        let meta = self.round.next_meta(registry.clock.now()).map_err(fault)?;
        let id = task_id(&meta.id, self.round.answers_digest());
        let key = TaskKey::of(&id);
        let lease = service.new_lease();
        let lease = lease.map_err(|_| fault(Fault::Handler("no random numbers".to_owned())))?;
        let parts = &self.round.parts;
        let call = StoredCall::new(meta, self.round.known_answers(), self.target.arguments, parts);
        let seal = registry.task_seal(key);
        let sealed = |part, body: &[u8]| {
            seal.seal(part, body)
                .map_err(|error| fault(Fault::Handler(format!("sealing the task failed: {error}"))))
        };
        let entries = entries.iter().enumerate();
        let new = NewTask {
            key,
            service: service.name.clone(),
            handler: task_handler(&tool.wire.name, self.version),
            ttl: policy.ttl,
            retention: policy.retention,
            call: sealed(Part::Call(&tool.wire.name), &call.pack())?,
            view: sealed(Part::View(parts.principal.as_ref()), &View::default().pack())?,
            entries: entries
                .map(|(position, entry)| sealed(Part::Entry(position), &entry.pack()))
                .collect::<Result<_, _>>()?,
        };
        let holding = Holding::new(Instant::now(), service.usable_lease());
        let is_first = self.round.rounds() == 0;
        let registry_of_first = is_first.then(|| Arc::clone(registry));
        let handler = new.handler.clone();
        let mut unconfirmed = Unconfirmed { registry: registry_of_first, key, handler, lease };
        let created = within_request(service.store.create(new, lease)).await;
        if created.as_ref().map_or_else(is_full, |_| true) {
            unconfirmed.registry = None;
        }
        drop(unconfirmed);
        let (record, is_new) = match created? {
            Created::New(record) => (record, true),
            // The client has repeated its request.
            Created::Exists(record) => (record, false),
        };
        let run = is_new.then(|| Run {
            registry: Arc::clone(registry),
            key,
            lease: lease.id,
            tool: tool.wire.name.clone(),
            call,
            view: View::default(),
            epoch: 0,
            answered: Vec::new(),
            round: Arc::clone(&self.round),
            holding,
        });
        Ok(CreatedTask { id, key, record, run, permit })
    }

    /// Continues the handler of a new task beside the response. Without a permit, the handler is
    /// dropped, and a replica with room continues it from its journal. A step that is in flight is
    /// not interrupted: it would run again.
    async fn detach(
        &self,
        registry: &Arc<Registry>,
        Detachable { service, policy, .. }: Detachable<'_>,
        handler: ToolFuture,
        created: CreatedTask,
    ) -> Outcome {
        let CreatedTask { id, key, record, run, permit } = created;
        match (run, permit) {
            (Some(run), permit) if permit.is_some() || self.round.has_steps_in_flight() => {
                self.round.task_created();
                self.round.parts.notifier.close();
                let span =
                    tracing::info_span!(target: "mrtr::tasks", "task", tool = run.tool, ?key);
                let tracked = registry.runtime.tasks.track();
                let run = async move {
                    run.execute(handler).await;
                    drop((permit, tracked));
                };
                tokio::spawn(run.instrument(span));
            }
            (Some(run), _) => {
                self.round.close();
                let end = Some(RunEnd::Released(Duration::ZERO));
                let write = TaskWrite { end, ..TaskWrite::new(key, run.lease) };
                // If it fails, the lease runs out.
                drop(within_request(service.store.write(write)).await);
            }
            (None, _) => self.round.close(),
        }
        let part = Part::View(self.round.parts.principal.as_ref());
        let view = registry.task_seal(key).open(part, &record.view).ok();
        let view = view.and_then(|view| View::unpack(&view).ok());
        let view = view.ok_or_else(|| {
            self.fault_response(&Fault::Handler("the task cannot be opened".to_owned()))
        })?;
        let (task, _) = task_on_wire(&id, &record, &view, policy)?.into_parts();
        registry.complete(&CreateTaskResult::new(task))
    }
}

/// A task whose creation is unconfirmed: the reply of the store was lost, or the client has
/// disconnected. No client knows its id, so dropping this value cancels it.
///
/// `registry` is `None` once the store has created or refused the task, and in later rounds, whose
/// request state identifies the task if the request is repeated.
struct Unconfirmed {
    registry: Option<Arc<Registry>>,
    key: TaskKey,
    handler: TaskHandler,
    lease: Lease,
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        let runtime = Handle::try_current();
        if let (Some(registry), Ok(runtime)) = (self.registry.take(), runtime) {
            // Shutdown waits for it from now on.
            let tracked = registry.runtime.tasks.track();
            let cancelled = cancel(registry, self.key, self.handler.clone(), self.lease);
            runtime.spawn(async move {
                cancelled.await;
                drop(tracked);
            });
        }
    }
}

/// The time after which an unconfirmed creation that failed to be cancelled is given up.
const CANCEL_TIMEOUT: Duration = Duration::from_mins(10);

/// The pauses between attempts to cancel it.
const CANCEL_PAUSES: Range<Duration> = Duration::from_secs(1)..Duration::from_secs(10);

/// Cancels a task that may have been created, or may still be: a commit that hangs in the store may
/// succeed much later.
///
/// An empty task with the same key takes its place. If the store is about to create the task, it
/// decides first which of them exists, and the one that exists is cancelled. No replica runs the
/// empty one: it is held until its lease has expired, and the next claim then ends it.
async fn cancel(registry: Arc<Registry>, key: TaskKey, handler: TaskHandler, lease: Lease) {
    let Some(service) = registry.tasks.as_deref() else { return };
    let permit = service.unconfirmed.try_acquire();
    let empty = NewTask {
        key,
        service: service.name.clone(),
        handler,
        // A creation that takes longer is not expected.
        ttl: Some(6 * CANCEL_TIMEOUT),
        retention: Duration::ZERO,
        call: Vec::new(),
        view: Vec::new(),
        entries: Vec::new(),
    };
    let since = Instant::now();
    let mut pause = CANCEL_PAUSES.start;
    loop {
        let placed = within_request(service.store.create(empty.clone(), lease)).await;
        let cancelled = within_request(service.store.cancel(key)).await;
        if placed.is_ok() && cancelled.is_ok() {
            return;
        }
        let hand_over = &registry.runtime.hand_over;
        if permit.is_err() || hand_over.is_closing() || since.elapsed() > CANCEL_TIMEOUT {
            let why = "a task that no client knows could not be cancelled, and may run";
            tracing::error!(target: "mrtr::tasks", ?key, "{why}");
            return;
        }
        // A server that shuts down makes one more attempt.
        either(hand_over.closing(), sleep(pause)).await;
        pause = (2 * pause).min(CANCEL_PAUSES.end);
    }
}

/// A task in the store.
struct CreatedTask {
    id: String,
    key: TaskKey,
    record: TaskRecord,
    /// The run of a new task. `None`: the task existed.
    run: Option<Run>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Returns the id of a task: 22 characters, with 128 bits that cannot be guessed.
///
/// A request that is repeated, with a request state, gets the same task.
fn task_id(call: &[u8; 16], answers: Digest) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let digest = Digest::from_parts(&[b"mrtr task id", call, answers.as_bytes()]);
    let (half, _) = digest.as_bytes().split_at(16);
    URL_SAFE_NO_PAD.encode(half)
}
