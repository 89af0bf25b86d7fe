//! Questions to the client, as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fault::Fault;
use super::round::{InputPoll, Round};
use crate::error::Error;
use crate::question::Question;

/// The user's choice on an elicitation: the result of [`InputFuture::outcome`].
///
/// ```
/// # use mrtr_server::{Context, ElicitOutcome, Result};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Consent { yes: bool }
/// # async fn release(reservation: &str) -> Result<()> { Ok(()) }
/// async fn deposit(cx: &Context, reservation: &str) -> Result<bool> {
///     match cx.elicit("deposit", "Pay a deposit of 20 €?").outcome().await? {
///         ElicitOutcome::Accept(Consent { yes: true }) => Ok(true),
///         // The user has answered "no", declined, or cancelled the form.
///         _ => {
///             cx.step("release", async |_| release(reservation).await).await?;
///             Ok(false)
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElicitOutcome<T> {
    /// The user submitted the form, or consented to open the URL.
    Accept(T),
    /// The user declined to answer.
    Decline,
    /// The user cancelled the question.
    Cancel,
}

/// A decoded answer. The outer error is the reason why the answer is rejected; the inner one is the
/// error that the handler gets.
pub(crate) type Decoded<T> = Result<Result<T, Error>, String>;
/// Decodes the answer (second argument) to the question under a key (first argument).
type Decode<T> = Box<dyn Fn(&str, &str) -> Decoded<T> + Send + Sync>;

/// A question to the client, made by [`Context::elicit`](crate::Context::elicit) and similar
/// methods. Await it for the answer.
///
/// A question without an answer stays pending, and the round may end. The handler is then dropped
/// at this point, and runs again from its first line when the answer has arrived. In a separately
/// spawned task, a question fails with [`Error::is_round_closed`] when the round ends.
///
/// Questions that are awaited together are sent in one round. Dropping one before the round ends
/// withdraws it.
///
/// ```
/// # use mrtr_server::{Context, Result};
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Seat {
///     place: String,
/// }
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Diet {
///     avoid: String,
/// }
///
/// async fn book(cx: Context) -> Result<String> {
///     let (seat, diet) = tokio::try_join!(
///         cx.elicit::<Seat>("seat", "Inside or outside?"),
///         cx.elicit::<Diet>("diet", "Anything you do not eat?").optional(),
///     )?;
///     let avoid = diet.map_or("nothing".to_owned(), |diet| diet.avoid);
///     Ok(format!("A seat {}, avoiding {avoid}.", seat.place))
/// }
/// # let _ = mrtr_server::Tool::new("book", "Books a table", book);
/// ```
#[must_use = "a question is asked when it is awaited"]
pub struct InputFuture<T> {
    guard: OpenGuard,
    decode: Decode<T>,
    /// The output if the question is optional and the client does not support it.
    skipped: Option<fn() -> T>,
}

/// Withdraws an open question when it is dropped.
struct OpenGuard {
    round: Arc<Round>,
    key: String,
    progress: InputState,
}

#[derive(Debug)]
enum InputState {
    /// Not polled yet. An error is the reason why the question is invalid.
    New(Result<Question, String>),
    Open,
    /// The call has a fault, so the question is never asked.
    Failed,
    Done,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        if matches!(self.progress, InputState::Open) {
            self.round.withdraw(&self.key);
        }
    }
}

impl<T> InputFuture<T> {
    /// Creates a question. An error in place of the question is reported at the first poll.
    pub(crate) fn new(
        round: &Arc<Round>,
        key: String,
        question: Result<Question, String>,
        decode: impl Fn(&str, &str) -> Decoded<T> + Send + Sync + 'static,
    ) -> Self {
        let guard =
            OpenGuard { round: Arc::clone(round), key, progress: InputState::New(question) };
        Self { guard, decode: Box::new(decode), skipped: None }
    }
}

impl<T: 'static> InputFuture<T> {
    /// Turns a declined or cancelled question into a value instead of an error.
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

    /// Makes the question optional: the output is `None` if the user declines or cancels it, or
    /// if the client does not support it.
    ///
    /// A question that was skipped for lack of support is recorded in the journal, so later rounds
    /// do not ask it either.
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
    pub fn optional(self) -> InputFuture<Option<T>> {
        let Self { guard, decode, .. } = self;
        // The only errors are that the user declined or dismissed the question.
        let decode: Decode<Option<T>> = Box::new(move |key, text| Ok(Ok(decode(key, text)?.ok())));
        InputFuture { guard, decode, skipped: Some(|| None) }
    }
}

impl<T> Future for InputFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: StdPin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { guard, decode, skipped } = &mut *self;
        let OpenGuard { round, key, progress } = guard;
        let fail = |why: &str| {
            round.fail(Fault::Handler(format!("the question {key:?} {why}")));
            InputState::Failed
        };
        *progress = match std::mem::replace(progress, InputState::Done) {
            InputState::New(Ok(question)) => {
                let decode = |text: &str| decode(key, text);
                let optional = skipped.is_some();
                let polled = round.request_input(key, question, optional, cx.waker(), decode);
                match (polled, skipped) {
                    (InputPoll::Answered(answer), _) => return Poll::Ready(answer),
                    (InputPoll::Skipped, Some(skipped)) => return Poll::Ready(Ok(skipped())),
                    (InputPoll::Waiting, _) => {
                        *progress = InputState::Open;
                        return Poll::Pending;
                    }
                    _ => InputState::Open,
                }
            }
            InputState::New(Err(why)) => fail(&format!("is invalid: {why}")),
            InputState::Done => fail("was awaited again after it was answered"),
            waiting => waiting,
        };
        // Only a task of the handler's own sees the end of the round: the handler itself is
        // dropped.
        round.poll_closed(cx.waker()).map(|()| {
            *progress = InputState::Done;
            Err(Error::round_closed(key))
        })
    }
}

// No field is structurally pinned.
impl<T> Unpin for InputFuture<T> {}

impl<T> fmt::Debug for InputFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputFuture")
            .field("key", &self.guard.key)
            .field("progress", &self.guard.progress)
            .finish_non_exhaustive()
    }
}
