//! Steps: side effects whose results are kept.

use std::fmt;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use mrtr_codec::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Sleep;
use tracing::Instrument as _;

use super::fault::Fault;
use super::journal::StepKind;
use super::round::{Round, StepStart};
use super::step_scope::StepScope;
use crate::error::Error;

/// What a step's closure is given.
pub struct Step {
    round: Arc<Round>,
    key: Arc<str>,
    inputs: Option<Digest>,
    /// Once it was asked for.
    idempotency_key: OnceLock<String>,
}

impl Step {
    /// A key to hand to the outside world, so that it does the thing once however often the step runs:
    /// the same for the same step of the same flow, given the same answers, or, where the step has
    /// [`inputs`](StepFuture::inputs), the same inputs.
    ///
    /// A step runs at most once per request received. A client that never got the response sends the
    /// request again, and then only the outside world can know that it was done before. Two things the
    /// key does not cover. A *first* request that is sent twice starts two flows with two keys, unless the step is
    /// [`after_checkpoint`](StepFuture::after_checkpoint). And a client that goes back and answers differently gets another key,
    /// because it asks for another thing.
    ///
    /// So does an honest one, if a step failed (or was given up) and runs again after a question that was answered in between:
    /// a card that was refused wants another payment than the next card. Where it is the same thing that is tried again, say what
    /// it is done with, by [`inputs`](StepFuture::inputs).
    pub fn idempotency_key(&self) -> &str {
        self.idempotency_key.get_or_init(|| idempotency_key(&self.round, &self.key, self.inputs))
    }

    /// Tries `what` up to `times`, until it does not fail. Between two tries it waits: 100 ms after the first, then twice
    /// as long each time, 10 s at most, and up to half of that less by chance, so that many who failed together do not
    /// come again together. All tries have the same [idempotency key](Self::idempotency_key), and the
    /// [deadline](StepFuture::timeout) holds for all of them. `times` of 0 is 1.
    ///
    /// # Errors
    ///
    /// That of the last try.
    pub async fn retry<T, E, Fut>(&self, times: u32, mut what: impl FnMut() -> Fut) -> Result<T, E>
    where
        Fut: Future<Output = Result<T, E>>,
    {
        let mut pause = FIRST_PAUSE;
        for _ in 1..times {
            if let Ok(done) = what().await {
                return Ok(done);
            }
            tokio::time::sleep(pause.mul_f64(1.0 - chance() / 2.0)).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        what().await
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A number from 0 to 1. Without random numbers, nothing is left to chance.
fn chance() -> f64 {
    getrandom::u32().map_or(0.0, |random| f64::from(random) / f64::from(u32::MAX))
}

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a step may go on without its client, if it has no deadline.
const ALONE: Duration = Duration::from_mins(1);

/// A step on its way: await it for its result. Until then it can be told more about itself.
///
/// Dropping it before it is done cuts it off, unless it is to [finish](Self::finish_on_disconnect), and nothing is kept.
#[must_use = "a step is done when it is awaited"]
pub struct StepFuture<'a, T> {
    round: Arc<Round>,
    key: Arc<str>,
    options: Options,
    /// Has it done in a task of its own.
    detach: Option<Detach<'a, T>>,
    progress: StepState<'a, T>,
}

type Detach<'a, T> = fn(Doing<'a, T>, &str, Duration, &Round) -> Doing<'a, T>;

type Start<'a, T> = Box<dyn FnOnce(Step) -> Doing<'a, T> + Send + 'a>;
type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

#[derive(Debug, Default)]
struct Options {
    after_checkpoint: bool,
    kind: StepKind,
    records_errors: bool,
    deadline: Option<Duration>,
    inputs: Option<Digest>,
}

enum StepState<'a, T> {
    New(Start<'a, T>),
    /// It is another replica's, if nothing else comes up.
    Left(Start<'a, T>, EndWaiter),
    /// What it holds is dropped first, then it has ended.
    Running(Doing<'a, T>, Option<Pin<Box<Sleep>>>, Running),
    /// The round ends before it is done; somebody may have asked for that.
    Abandoned(
        #[expect(dead_code, reason = "it is held, and taken back by being dropped")]
        Option<EndWaiter>,
    ),
    Done,
}

impl<'a, T: Serialize + DeserializeOwned> StepFuture<'a, T> {
    pub(crate) fn new<F, Fut>(round: Arc<Round>, key: Arc<str>, run: F) -> Self
    where
        F: FnOnce(Step) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Error>> + Send + 'a,
    {
        let run = Box::new(move |step| Box::pin(run(step)) as Doing<'a, T>);
        let options = Options::default();
        Self { round, key, options, detach: None, progress: StepState::New(run) }
    }

    /// If nothing of the flow was sealed yet, lets the client come once more, with a state and without an answer,
    /// before the step runs. Then a first request that is sent twice does not do it under two
    /// [idempotency keys](Step::idempotency_key). It costs a round trip, and a round of those that a client grants.
    pub fn after_checkpoint(mut self) -> Self {
        self.options.after_checkpoint = true;
        self
    }

    /// A later pass need not come to this step. Without this, a handler that ends without coming to a step that was
    /// done is taken for one that has changed, and the call fails.
    pub fn skippable(mut self) -> Self {
        self.options.kind.skippable = true;
        self
    }

    /// Keeps the error too, if it ends in one: later rounds get that, and do not run it again. Of an error that only the
    /// log may name, later rounds know no more than that it was one. Default: a step that failed runs again.
    pub fn record_errors(mut self) -> Self {
        self.options.records_errors = true;
        self
    }

    /// How long it may take; then it is cut off, and ends in an error that the model can read. Default: as long as the leg
    /// ([`crate::Tool::deadline`], 1 min).
    pub fn timeout(mut self, time: Duration) -> Self {
        self.options.deadline = Some(time);
        self
    }

    /// What the step is done with. Then its [idempotency key](Step::idempotency_key) depends on this, on the flow and on
    /// the step's key, and not on what else was answered.
    pub fn idempotent_on(mut self, inputs: &impl Serialize) -> Self {
        let json = serde_json::to_string(inputs).map_err(|error| error.to_string());
        let digest = |json: String| Digest::of_json(Some(&json)).map_err(|error| error.to_string());
        match json.and_then(digest) {
            Ok(digest) => self.options.inputs = Some(digest),
            Err(why) => {
                let why = format!("the inputs of step {:?} have no digest: {why}", self.key);
                self.round.fail(Fault::Handler(why));
            }
        }
        self
    }
}

impl<T: Send + 'static> StepFuture<'static, T> {
    /// Once it has begun, does it to its end, whatever becomes of the request: for what must not be left half done.
    /// Without this, a client that goes away cuts the step off, and so does the end of the leg.
    ///
    /// It runs in a task of its own, until its [`deadline`](Self::deadline) (default: 1 min).
    /// [`Server::finished`](crate::Server::finished) waits for it; `mrtr::serve` gives that 10 s when it shuts down. Nobody is
    /// there to keep its result: if the client sends its request again, the step runs again, with the same
    /// [idempotency key](Step::idempotency_key).
    pub fn finish_on_disconnect(mut self) -> Self {
        self.detach = Some(detached);
        self
    }
}

/// Does it in a task of its own.
fn detached<T: Send + 'static>(
    doing: Doing<'static, T>,
    key: &str,
    time: Duration,
    round: &Round,
) -> Doing<'static, T> {
    let running = round.runtime().tasks.track();
    let late = too_late(key);
    let task = tokio::spawn(
        async move {
            let done = tokio::time::timeout(time, doing).await;
            drop(running);
            done.unwrap_or(Err(late))
        }
        .in_current_span(),
    );
    Box::pin(async {
        match task.await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(cancelled) => Err(Error::internal(cancelled)),
            },
        }
    })
}

fn too_late(key: &str) -> Error {
    Error::new(format!("{key:?} took too long and was given up."))
}

impl<'a, T: Serialize + DeserializeOwned + 'a> Future for StepFuture<'a, T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (round, key) = (&this.round, &this.key);
        this.progress = match std::mem::replace(&mut this.progress, StepState::Done) {
            StepState::New(_) if this.options.after_checkpoint && round.rounds() == 0 => {
                StepState::Abandoned(Some(EndWaiter::new(round, cx)))
            }
            StepState::New(run) => match round.begin_step(key, recall) {
                StepStart::Abandoned => StepState::Abandoned(None),
                StepStart::HandOver => StepState::Left(run, EndWaiter::new(round, cx)),
                StepStart::Recorded(result) => return Poll::Ready(result),
                StepStart::Run => start(round, key, &this.options, this.detach, run),
            },
            StepState::Left(run, end_waiters) if round.begin_after_hand_over() => {
                drop(end_waiters);
                start(round, key, &this.options, this.detach, run)
            }
            StepState::Done => {
                round.fail(Fault::Handler(format!(
                    "the step {key:?} is awaited again after its result"
                )));
                StepState::Abandoned(None)
            }
            other => other,
        };
        let StepState::Running(doing, deadline, running) = &mut this.progress else {
            // In the handler's own task it is dropped by the end of the round.
            let closed = round.is_closed(cx.waker());
            return if closed { Poll::Ready(Err(Error::round_closed(key))) } else { Poll::Pending };
        };
        let result = match (doing.as_mut().poll(cx), deadline) {
            (Poll::Ready(result), _) => result,
            (Poll::Pending, None) => return Poll::Pending,
            (Poll::Pending, Some(deadline)) => {
                ready!(deadline.as_mut().poll(cx));
                Err(too_late(key))
            }
        };
        match keep(&result, &this.options) {
            Ok(kept) => running.result = kept,
            Err(error) => {
                let why = format!("the result of step {key:?} cannot be kept: {error}");
                round.fail(Fault::Handler(why));
            }
        }
        this.progress = StepState::Done;
        Poll::Ready(result)
    }
}

fn start<'a, T: 'a>(
    round: &Arc<Round>,
    key: &Arc<str>,
    options: &Options,
    detach: Option<Detach<'a, T>>,
    run: Start<'a, T>,
) -> StepState<'a, T> {
    let running = Running::new(round, key);
    let step = Step {
        round: Arc::clone(round),
        key: Arc::clone(key),
        inputs: options.inputs,
        idempotency_key: OnceLock::new(),
    };
    #[cfg(feature = "testing")]
    if let Some(steps) = &round.steps {
        steps.record(key, step.idempotency_key());
    }
    let doing: Doing<'a, T> = Box::pin(StepScope::new(&**round, key, run(step)));
    let (doing, deadline) = match detach {
        None => (doing, options.deadline.map(tokio::time::sleep).map(Box::pin)),
        // The deadline goes with it.
        Some(detach) => (detach(doing, key, options.deadline.unwrap_or(ALONE), round), None),
    };
    StepState::Running(doing, deadline, running)
}

/// What there is to keep of a result.
fn keep<T: Serialize>(
    result: &Result<T, Error>,
    options: &Options,
) -> Result<Option<(StepKind, String)>, serde_json::Error> {
    match result {
        Ok(value) => Ok(Some((options.kind, serde_json::to_string(value)?))),
        Err(_) if !options.records_errors => Ok(None),
        Err(error) => {
            let kind = StepKind { failed: true, ..options.kind };
            Ok(Some((kind, serde_json::to_string(&error.to_recorded())?)))
        }
    }
}

/// Reads what was kept; the error is that it cannot be read.
fn recall<T: DeserializeOwned>(kind: StepKind, kept: &str) -> Result<Result<T, Error>, String> {
    let read = if kind.failed {
        serde_json::from_str(kept).map(|kept| Err(Error::from_recorded(kept)))
    } else {
        serde_json::from_str(kept).map(Ok)
    };
    read.map_err(|error| error.to_string())
}

/// Ends the round with a state, once: see [`crate::Context::checkpoint`].
pub(crate) async fn checkpoint(round: Arc<Round>, key: Arc<str>) -> Result<(), Error> {
    let passed = round.checkpoint(&key);
    if passed == Some(true) {
        return Ok(());
    }
    let mut end_waiters = None;
    std::future::poll_fn(|cx| {
        if passed.is_some() {
            end_waiters.get_or_insert_with(|| EndWaiter::new(&round, cx));
        }
        if round.is_closed(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    Err(Error::round_closed(&key))
}

/// Somebody who waits for the round to end. Dropping it takes that back.
struct EndWaiter(Arc<Round>);

impl EndWaiter {
    fn new(round: &Arc<Round>, cx: &Context<'_>) -> Self {
        round.wait_for_end(cx.waker());
        Self(Arc::clone(round))
    }
}

impl Drop for EndWaiter {
    fn drop(&mut self) {
        self.0.cancel_wait();
    }
}

/// A step in flight. Dropping it ends the step, whether it came to a result or not.
struct Running {
    round: Arc<Round>,
    key: Arc<str>,
    result: Option<(StepKind, String)>,
}

impl Running {
    fn new(round: &Arc<Round>, key: &Arc<str>) -> Self {
        Self { round: Arc::clone(round), key: Arc::clone(key), result: None }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.round.end_step(&self.key, self.result.take());
    }
}

fn idempotency_key(round: &Round, key: &str, inputs: Option<Digest>) -> String {
    // It has one: a step begins with it.
    let call = round.id().unwrap_or_default();
    let Digest(digest) = match inputs {
        None => Digest::of_parts(&[b"idempotency key", &call, key.as_bytes(), &round.known().0]),
        Some(Digest(inputs)) => {
            Digest::of_parts(&[b"idempotency key of inputs", &call, key.as_bytes(), &inputs])
        }
    };
    let (half, _) = digest.split_at(16);
    hex(half)
}

/// In hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

// Nothing in it is pinned: it may move between polls.
impl<T> Unpin for StepFuture<'_, T> {}

impl<T> fmt::Debug for StepFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepFuture")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
