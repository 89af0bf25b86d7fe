//! Steps: side effects whose results are recorded.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mrtr_codec::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Sleep;
use tracing::Instrument as _;

use super::at_most_once::{AtMostOnce, UNKNOWN};
use super::checkpoint::SuspendRequest;
use super::fault::Fault;
use super::journal::StepKind;
use super::round::Round;
use super::round_steps::{InFlightGuard, StepStart};
use super::step_argument::Step;
use super::step_scope::StepScope;
use super::stored::{Ahead, detach};
use crate::error::Error;

/// The default timeout of a step that [finishes on disconnect](StepFuture::finish_on_disconnect):
/// as long as the default timeout of a request.
const DETACHED_TIMEOUT: Duration = Duration::from_mins(1);

/// A step, made by [`Context::step`](crate::Context::step). Set its options, then await it for its
/// result.
///
/// Dropping it before it completes cancels the step, unless it is to
/// [finish on disconnect](Self::finish_on_disconnect), and records nothing.
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_server::{Context, Result};
/// # async fn reserve(seat: &str, _key: &str) -> Result<String> { Ok(seat.to_owned()) }
/// # async fn quote() -> Result<u64> { Ok(20) }
/// # async fn charge(euros: u64, idempotency_key: &str) -> Result<String> {
/// #     Ok(format!("{euros} {idempotency_key}"))
/// # }
///
/// async fn buy(cx: Context) -> Result<String> {
///     // A refusal decides what happens next, so it is recorded like a success.
///     let window = cx.step("window", async |s| reserve("window", s.idempotency_key()).await);
///     let seat = match window.record_errors().await {
///         Ok(seat) => seat,
///         Err(_) => {
///             cx.step("aisle", async |s| reserve("aisle", s.idempotency_key()).await).await?
///         }
///     };
///
///     // Another version of this handler may do without this step.
///     let quote = cx.step("quote", async |_| quote().await).timeout(Duration::from_secs(5));
///     let euros = quote.skippable().await?;
///
///     // The user is charged once, even if the first request arrives twice, and the charge is not
///     // cancelled if the client disconnects.
///     let receipt = cx
///         .step("charge", async move |step| charge(euros, step.idempotency_key()).await)
///         .after_checkpoint()
///         .idempotent_on(&euros)
///         .finish_on_disconnect()
///         .await?;
///     Ok(format!("{seat}: {receipt}"))
/// }
/// # let _ = mrtr_server::Tool::new("buy", "Buys a seat", buy);
/// ```
#[must_use = "a step runs when it is awaited"]
pub struct StepFuture<'a, T> {
    round: Arc<Round>,
    key: String,
    options: StepOptions,
    /// Moves the step to a separately spawned task.
    detach: Option<Detach<'a, T>>,
    progress: StepState<'a, T>,
}

type StepOutput<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;
type RunStep<'a, T> = Box<dyn FnOnce(Step) -> StepOutput<'a, T> + Send + 'a>;
type Detach<'a, T> = fn(StepOutput<'a, T>, Result<T, Error>, Duration, &Round) -> StepOutput<'a, T>;

#[derive(Debug, Default)]
struct StepOptions {
    after_checkpoint: bool,
    kind: StepKind,
    record_errors: bool,
    at_most_once: bool,
    timeout: Option<Duration>,
    inputs: Option<Digest>,
}

impl StepOptions {
    /// Returns true if a first request that is sent twice must not run the step twice.
    fn needs_checkpoint(&self) -> bool {
        self.after_checkpoint || self.at_most_once
    }
}

enum StepState<'a, T> {
    New(RunStep<'a, T>),
    /// Waits until the call is a task.
    Detaching(RunStep<'a, T>, Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>),
    /// Left to another replica, unless a question is opened in this round.
    HandedOver(RunStep<'a, T>, SuspendRequest, Arc<str>),
    /// Waits for the commit of a decision, on which the step may act, or of what it records before
    /// it runs.
    Deciding(RunStep<'a, T>, u64, InFlightGuard),
    /// The guard comes last: the step has ended when its future and its timer have been dropped.
    Running(StepOutput<'a, T>, Option<Pin<Box<Sleep>>>, InFlightGuard),
    /// Waits for the commit of its result, and is in flight until then.
    Saving(
        Result<T, Error>,
        u64,
        #[expect(dead_code, reason = "held for its `Drop`, which ends the step")] InFlightGuard,
    ),
    /// Not to run in this round, which will end. The step may have requested that.
    Abandoned(
        #[expect(dead_code, reason = "held for its `Drop`, which cancels the request")]
        Option<SuspendRequest>,
    ),
    Done,
}

impl<'a, T: Serialize + DeserializeOwned> StepFuture<'a, T> {
    pub(crate) fn new<F, Fut>(round: Arc<Round>, key: String, run: F) -> Self
    where
        F: FnOnce(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Error>> + Send + 'a,
    {
        let run = Box::new(move |step: Step| {
            let name = step.name();
            Box::pin(StepScope::new(name, run(step))) as StepOutput<'a, T>
        });
        let options = StepOptions::default();
        Self { round, key, options, detach: None, progress: StepState::New(run) }
    }

    /// Runs the step only after a request state was sealed. In the first round, the round ends
    /// without a question, and the client repeats the request with the state.
    ///
    /// A first request that is sent twice then has one [idempotency key](Step::idempotency_key)
    /// instead of two. It costs a round trip, and one of the rounds that a client allows.
    pub fn after_checkpoint(mut self) -> Self {
        self.options.after_checkpoint = true;
        self
    }

    /// Allows later replays to end without reaching this step. Without this option, the call fails:
    /// a handler that does not reach a recorded step has changed, or is not deterministic.
    pub fn skippable(mut self) -> Self {
        self.options.kind.skippable = true;
        self
    }

    /// Records the error if the step fails: later rounds return that error, and do not run the step
    /// again. Internal errors are recorded without their message. Default: a failed step runs
    /// again.
    ///
    /// Every error is recorded, also that of the [`timeout`](Self::timeout), after which the effect
    /// may have happened. Use it only if each error is certain, such as a refusal.
    pub fn record_errors(mut self) -> Self {
        self.options.record_errors = true;
        self
    }

    /// Runs the step at most once in this call: if it is not known what became of it, it is not run
    /// again, and its outcome is [`AtMostOnce::Unknown`]. The handler decides what to do then.
    ///
    /// Use it if the other system knows no idempotency keys, and two runs are worse than none. The
    /// step costs a second commit, before it runs. A failure of the step is its outcome, as with
    /// [`record_errors`](Self::record_errors); that it exceeded its timeout is an unknown outcome.
    ///
    /// The call becomes a task, as by [`Context::detach`](crate::Context::detach). If it cannot,
    /// because the client has no tasks or the tool no policy for them, the tool has to be
    /// [`single_use`](crate::Tool::single_use), and the step runs after a checkpoint: when its
    /// outcome is unknown, so is that of the whole request. Without either, the call fails.
    ///
    /// A first request that is sent twice is two tasks, each with its own step, and so is a call
    /// that a new version of the handler restarts.
    pub fn at_most_once(self) -> StepFuture<'a, AtMostOnce<T>>
    where
        T: 'a,
    {
        let Self { round, key, options, detach, progress } = self;
        if detach.is_some() {
            let why = format!(
                "the step {key:?} is set to finish on disconnect before it is set to run at most once"
            );
            round.fail(Fault::Handler(why));
        }
        let progress = match progress {
            StepState::New(run) => StepState::New(Box::new(move |step| {
                let output = run(step);
                Box::pin(async move { output.await.map(AtMostOnce::Completed) })
            })),
            _ => StepState::Done,
        };
        let options = StepOptions { at_most_once: true, record_errors: true, ..options };
        StepFuture { round, key, options, detach: None, progress }
    }

    /// Sets a timeout. A step that exceeds it is cancelled, and fails with an error that the model
    /// can read. Default: the rest of the request's
    /// [`request_timeout`](crate::Tool::request_timeout) (1 min).
    pub fn timeout(mut self, time: Duration) -> Self {
        self.options.timeout = Some(time);
        self
    }

    /// Makes the [idempotency key](Step::idempotency_key) depend on `inputs` instead of all answers
    /// so far. It always depends on the call and on the step's key.
    ///
    /// Inputs that cannot be serialized as JSON fail the call.
    pub fn idempotent_on(mut self, inputs: &impl Serialize) -> Self {
        let json = serde_json::to_string(inputs).map_err(|error| error.to_string());
        let digest =
            |json: String| Digest::from_json(Some(&json)).map_err(|error| error.to_string());
        match json.and_then(digest) {
            Ok(digest) => self.options.inputs = Some(digest),
            Err(why) => {
                let why = format!("the inputs of step {:?} are not valid JSON: {why}", self.key);
                self.round.fail(Fault::Handler(why));
            }
        }
        self
    }
}

impl<T: Send + 'static> StepFuture<'static, T> {
    /// Runs the step to its end even if the client disconnects or the round ends. Without this
    /// option, both cancel it.
    ///
    /// The step runs in a separately spawned task, within its [`timeout`](Self::timeout) (default:
    /// 1 min). [`Server::drained`](crate::Server::drained) waits for it; at shutdown, `mrtr::serve`
    /// allows it 10 s. The result of a step that has lost its client is not recorded: if the client
    /// repeats the request, the step runs again, with the same [idempotency
    /// key](Step::idempotency_key).
    pub fn finish_on_disconnect(mut self) -> Self {
        self.detach = Some(run_detached);
        self
    }
}

/// Runs a step in a separately spawned task. `late` is its result if it exceeds its time.
fn run_detached<T: Send + 'static>(
    output: StepOutput<'static, T>,
    late: Result<T, Error>,
    time: Duration,
    round: &Round,
) -> StepOutput<'static, T> {
    let tracked = round.runtime().tasks.track();
    let task = tokio::spawn(
        async move {
            let output = tokio::time::timeout(time, output).await;
            drop(tracked);
            output.unwrap_or(late)
        }
        .in_current_span(),
    );
    Box::pin(async {
        match task.await {
            Ok(output) => output,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(cancelled) => Err(Error::internal(cancelled)),
            },
        }
    })
}

/// Returns the result of a step that has exceeded its time.
fn late<T: DeserializeOwned>(key: &str, options: &StepOptions) -> Result<T, Error> {
    if options.at_most_once
        && let Ok(unknown) = serde_json::from_str(UNKNOWN)
    {
        return Ok(unknown);
    }
    Err(Error::new(format!("The step {key:?} timed out.")))
}

impl<'a, T: Serialize + DeserializeOwned + 'a> Future for StepFuture<'a, T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (round, key) = (&this.round, &this.key);
        this.progress = match std::mem::replace(&mut this.progress, StepState::Done) {
            StepState::New(run) if this.options.at_most_once && round.may_detach() => {
                StepState::Detaching(run, Box::pin(detach(Arc::clone(round))))
            }
            StepState::New(_) if this.options.at_most_once && !round.runs_once() => {
                round.fail(needs_task(key));
                StepState::Abandoned(None)
            }
            StepState::New(_)
                if this.options.needs_checkpoint() && round.rounds() == 0 && !round.is_task() =>
            {
                StepState::Abandoned(Some(SuspendRequest::new(round, cx)))
            }
            StepState::New(run) => match round.begin_step(key, decode) {
                StepStart::Abandoned => StepState::Abandoned(None),
                StepStart::HandOver(key) => {
                    StepState::HandedOver(run, SuspendRequest::new(round, cx), key)
                }
                StepStart::Recorded(result) => return Poll::Ready(result),
                StepStart::Run(key, decision) => this.begin(run, key, decision),
            },
            StepState::HandedOver(run, request, key) if round.begin_handed_over_step() => {
                drop(request);
                this.begin(run, key, round.last_uncommitted_decision())
            }
            StepState::Done => {
                let why = format!("the step {key:?} was awaited again after it completed");
                round.fail(Fault::Handler(why));
                StepState::Abandoned(None)
            }
            other => other,
        };
        if let StepState::Detaching(_, detached) = &mut this.progress {
            ready!(detached.as_mut().poll(cx))?;
            if let StepState::Detaching(run, _) =
                std::mem::replace(&mut this.progress, StepState::Done)
            {
                this.progress = StepState::New(run);
            }
            return self.poll(cx);
        }
        if let StepState::Deciding(_, decision, _) = this.progress {
            let is_committed = ready!(round.poll_committed(decision, cx.waker()));
            this.progress = match std::mem::replace(&mut this.progress, StepState::Done) {
                _ if !is_committed => return Poll::Ready(Err(Error::round_closed(key))),
                StepState::Deciding(..) if round.is_cancelled() => StepState::Abandoned(None),
                // The store did not create the task.
                StepState::Deciding(..) if this.options.at_most_once && !round.may_run_once() => {
                    round.fail(needs_task(key));
                    StepState::Abandoned(None)
                }
                StepState::Deciding(run, _, guard) => start(guard, &this.options, this.detach, run),
                other => other,
            };
        }
        if let StepState::Saving(_, change, _) = this.progress {
            return this.poll_saved(change, cx);
        }
        let StepState::Running(output, timer, guard) = &mut this.progress else {
            // Only a task of the handler's own sees the end of the round: the handler itself is
            // dropped.
            return round.poll_closed(cx.waker()).map(|()| Err(Error::round_closed(key)));
        };
        let result = match (output.as_mut().poll(cx), timer) {
            (Poll::Ready(result), _) => result,
            (Poll::Pending, None) => return Poll::Pending,
            (Poll::Pending, Some(timer)) => {
                ready!(timer.as_mut().poll(cx));
                late(key, &this.options)
            }
        };
        match encode(&result, &this.options) {
            Ok(None) => {}
            Ok(Some(encoded)) => match round.save_step(&guard.key, encoded, guard.is_ahead) {
                Err(encoded) => guard.result = Some(encoded),
                Ok(change) => {
                    if let StepState::Running(output, timer, guard) =
                        std::mem::replace(&mut this.progress, StepState::Done)
                    {
                        drop((output, timer));
                        this.progress = StepState::Saving(result, change, guard);
                    }
                    return this.poll_saved(change, cx);
                }
            },
            Err(error) => {
                let why = format!("the result of step {key:?} is not valid JSON: {error}");
                round.fail(Fault::Handler(why));
            }
        }
        this.progress = StepState::Done;
        Poll::Ready(result)
    }
}

/// The fault of a step that runs at most once, in a call that cannot ensure it.
fn needs_task(key: &str) -> Fault {
    Fault::Handler(format!(
        "the step {key:?} is to run at most once, but this call cannot become a task (the tool \
         has no policy for tasks, the client has no tasks, or their store was full), and the tool \
         is not `single_use`"
    ))
}

impl<'a, T: DeserializeOwned + 'a> StepFuture<'a, T> {
    /// Begins the step after a decision was committed, if any, and after what it records ahead.
    fn begin(
        &self,
        run: RunStep<'a, T>,
        key: Arc<str>,
        mut decision: Option<u64>,
    ) -> StepState<'a, T> {
        let mut guard = InFlightGuard::new(&self.round, key);
        if self.options.at_most_once {
            // A replay may never reach it: the loser of a race.
            let kind = StepKind { skippable: true, ..self.options.kind };
            match self.round.record_ahead(&guard.key, (kind, UNKNOWN.to_owned())) {
                Ahead::Recorded(change) => {
                    guard.is_ahead = true;
                    decision = Some(change);
                }
                // Recorded when the step is dropped, unless it has completed.
                Ahead::NoStore(unknown) => guard.result = Some(unknown),
                Ahead::Closed => return StepState::Abandoned(None),
            }
        }
        match decision {
            None => start(guard, &self.options, self.detach, run),
            Some(change) => StepState::Deciding(run, change, guard),
        }
    }
}

impl<T> StepFuture<'_, T> {
    /// Waits until the result of the step is committed.
    fn poll_saved(&mut self, change: u64, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let is_committed = ready!(self.round.poll_committed(change, cx.waker()));
        match std::mem::replace(&mut self.progress, StepState::Done) {
            _ if !is_committed => Poll::Ready(Err(Error::round_closed(&self.key))),
            StepState::Saving(result, ..) => Poll::Ready(result),
            _ => Poll::Pending,
        }
    }
}

fn start<'a, T: DeserializeOwned + 'a>(
    guard: InFlightGuard,
    options: &StepOptions,
    detach: Option<Detach<'a, T>>,
    run: RunStep<'a, T>,
) -> StepState<'a, T> {
    let (round, key) = (&guard.round, &guard.key);
    let step = Step::new(round, key, options.inputs);
    #[cfg(feature = "testing")]
    if let Some(log) = &round.step_log {
        log.record(key, step.idempotency_key());
    }
    let output = run(step);
    match detach {
        None => {
            let timer = options.timeout.map(tokio::time::sleep).map(Box::pin);
            StepState::Running(output, timer, guard)
        }
        // The task has a timer of its own.
        Some(detach) => {
            let time = options.timeout.unwrap_or(DETACHED_TIMEOUT);
            let late = late(key, options);
            StepState::Running(detach(output, late, time, round), None, guard)
        }
    }
}

/// Encodes a result for the journal. `None` if it is not to be recorded.
fn encode<T: Serialize>(
    result: &Result<T, Error>,
    options: &StepOptions,
) -> Result<Option<(StepKind, String)>, serde_json::Error> {
    match result {
        Ok(value) => Ok(Some((options.kind, serde_json::to_string(value)?))),
        Err(_) if !options.record_errors => Ok(None),
        Err(error) => {
            let kind = StepKind { failed: true, ..options.kind };
            Ok(Some((kind, serde_json::to_string(&error.to_recorded())?)))
        }
    }
}

/// Decodes a recorded result. The outer error is the reason why that is impossible.
fn decode<T: DeserializeOwned>(kind: StepKind, recorded: &str) -> Result<Result<T, Error>, String> {
    let decoded = if kind.failed {
        serde_json::from_str(recorded).map(|recorded| Err(Error::from_recorded(recorded)))
    } else {
        serde_json::from_str(recorded).map(Ok)
    };
    decoded.map_err(|error| error.to_string())
}

// No field is structurally pinned.
impl<T> Unpin for StepFuture<'_, T> {}

impl<T> fmt::Debug for StepFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepFuture")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
