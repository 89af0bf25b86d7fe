//! Questions, as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fault::Fault;
use super::round::{InputPoll, Round};
use crate::error::Error;
use crate::question::Question;

/// What a person did with a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElicitOutcome<T> {
    /// Answered.
    Accept(T),
    /// Refused to answer.
    Decline,
    /// Dismissed the question.
    Cancel,
}

/// Why an answer does not fit, or what it means for the handler.
pub(crate) type Decoded<T> = Result<Result<T, Error>, String>;
/// Reads an answer to the question under a key.
type Decode<T> = Box<dyn Fn(&str, &str) -> Decoded<T> + Send + Sync>;

/// A question on its way: await it for the answer.
///
/// While it has no answer it stays pending, and the round may end: then the handler is dropped here,
/// and runs again from its first line when the answer has come. It never fails just because it has to
/// wait. A question in a task of its own ends with [`Error::is_round_closed`] when the round does.
///
/// Dropping it before the round ends withdraws the question.
#[must_use = "an input request is made when it is awaited"]
pub struct InputFuture<T> {
    guard: OpenGuard,
    decode: Decode<T>,
    /// What it comes to if the client cannot be asked, if it may be passed over.
    skipped: Option<fn() -> T>,
}

/// Takes the question back when it is dropped.
struct OpenGuard {
    round: Arc<Round>,
    key: Arc<str>,
    progress: InputState,
}

#[derive(Debug)]
enum InputState {
    /// What is to be asked, or why it cannot be.
    New(Result<Question, String>),
    OpenInput,
    /// It is not asked: the flow has a fault.
    Stuck,
    Done,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        if matches!(self.progress, InputState::OpenInput) {
            self.round.withdraw(&self.key);
        }
    }
}

impl<T> InputFuture<T> {
    /// A question; if it cannot be asked, the reason why.
    pub(crate) fn new(
        round: &Arc<Round>,
        key: impl Into<Arc<str>>,
        question: Result<Question, String>,
        decode: impl Fn(&str, &str) -> Decoded<T> + Send + Sync + 'static,
    ) -> Self {
        let (round, progress) = (Arc::clone(round), InputState::New(question));
        let guard = OpenGuard { round, key: key.into(), progress };
        Self { guard, decode: Box::new(decode), skipped: None }
    }
}

impl<T: 'static> InputFuture<T> {
    /// Returns the user's choice as a value instead of an error: accepted, declined or cancelled.
    ///
    /// ```
    /// # use mrtr_server::{Context, ElicitOutcome, Result};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Consent { yes: bool }
    /// # async fn pay(cx: Context) -> Result<String> {
    /// let text = match cx.elicit::<Consent>("pay", "Pay now?").outcome().await? {
    ///     ElicitOutcome::Accept(Consent { yes: true }) => "paid",
    ///     ElicitOutcome::Accept(_) | ElicitOutcome::Decline => "not paid",
    ///     ElicitOutcome::Cancel => "postponed",
    /// };
    /// # Ok(text.to_owned())
    /// # }
    /// ```
    pub fn outcome(self) -> InputFuture<ElicitOutcome<T>> {
        let Self { guard, decode, .. } = self;
        let decode: Decode<ElicitOutcome<T>> = Box::new(move |key, text| {
            Ok(Ok(match decode(key, text)? {
                Ok(value) => ElicitOutcome::Accept(value),
                Err(error) if error.is_declined() => ElicitOutcome::Decline,
                Err(_) => ElicitOutcome::Cancel,
            }))
        });
        InputFuture { guard, decode, skipped: None }
    }

    /// Does without an answer: `None` if the person declines or dismisses the question, and if the client cannot ask it.
    ///
    /// ```
    /// # use mrtr_server::{Context, Result};
    /// # #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// # struct Diet { avoid: String }
    /// # async fn book(cx: Context) -> Result<String> {
    /// let diet: Option<Diet> = cx.elicit("diet", "Anything you do not eat?").optional().await?;
    /// let avoid = diet.map_or("nothing".to_owned(), |diet| diet.avoid);
    /// # Ok(avoid)
    /// # }
    /// ```
    ///
    /// That the client could not ask it is kept in the state: later rounds do not ask it either.
    pub fn optional(self) -> InputFuture<Option<T>> {
        let Self { guard, decode, .. } = self;
        // The only errors are that it was declined or dismissed.
        let decode: Decode<Option<T>> = Box::new(move |key, text| Ok(Ok(decode(key, text)?.ok())));
        InputFuture { guard, decode, skipped: Some(|| None) }
    }
}

impl<T> Future for InputFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: StdPin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { guard, decode, skipped } = &mut *self;
        let OpenGuard { round, key, progress } = guard;
        let stuck = |why: &str| {
            round.fail(Fault::Handler(format!("the question {key:?} {why}")));
            InputState::Stuck
        };
        *progress = match std::mem::replace(progress, InputState::Done) {
            InputState::New(Ok(question)) => {
                let decode = |text: &str| decode(key, text);
                let optional = skipped.is_some();
                match (round.ask(key, question, optional, cx.waker(), decode), skipped) {
                    (InputPoll::Answered(answer), _) => return Poll::Ready(answer),
                    (InputPoll::Skipped, Some(answer)) => return Poll::Ready(Ok(answer())),
                    (InputPoll::Waiting, _) => {
                        *progress = InputState::OpenInput;
                        return Poll::Pending;
                    }
                    _ => InputState::OpenInput,
                }
            }
            InputState::New(Err(why)) => stuck(&format!("cannot be asked: {why}")),
            InputState::Done => stuck("is awaited again after its answer"),
            waiting => waiting,
        };
        // In the handler's own task it is dropped by the end of the round.
        if round.is_closed(cx.waker()) {
            *progress = InputState::Done;
            return Poll::Ready(Err(Error::round_closed(key)));
        }
        Poll::Pending
    }
}

// Nothing in it is pinned: it may move between polls.
impl<T> Unpin for InputFuture<T> {}

impl<T> fmt::Debug for InputFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputFuture")
            .field("key", &self.guard.key)
            .field("progress", &self.guard.progress)
            .finish_non_exhaustive()
    }
}
