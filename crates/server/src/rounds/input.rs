//! Questions, as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::fault::Fault;
use super::round::{Looked, Round};
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
#[must_use = "a question is asked when it is awaited"]
pub struct InputFuture<T> {
    asked: Asked,
    decode: Decode<T>,
    /// What it comes to if the client cannot be asked, if it may be passed over.
    passed_over: Option<fn() -> T>,
}

/// Takes the question back when it is dropped.
struct Asked {
    round: Arc<Round>,
    key: Arc<str>,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// What is to be asked, or why it cannot be.
    New(Result<Question, String>),
    Open,
    /// It is not asked: the flow has a fault.
    Stuck,
    Done,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if matches!(self.progress, Progress::Open) {
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
        let (round, progress) = (Arc::clone(round), Progress::New(question));
        let asked = Asked { round, key: key.into(), progress };
        Self { asked, decode: Box::new(decode), passed_over: None }
    }
}

impl<T: 'static> InputFuture<T> {
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
        let Self { asked, decode, .. } = self;
        // The only errors are that it was declined or dismissed.
        let decode: Decode<Option<T>> = Box::new(move |key, text| Ok(Ok(decode(key, text)?.ok())));
        InputFuture { asked, decode, passed_over: Some(|| None) }
    }
}

impl<T> Future for InputFuture<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: StdPin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { asked, decode, passed_over } = &mut *self;
        let Asked { round, key, progress } = asked;
        let stuck = |why: &str| {
            round.fail(Fault::Handler(format!("the question {key:?} {why}")));
            Progress::Stuck
        };
        *progress = match std::mem::replace(progress, Progress::Done) {
            Progress::New(Ok(question)) => {
                let decode = |text: &str| decode(key, text);
                let optional = passed_over.is_some();
                match (round.ask(key, question, optional, cx.waker(), decode), passed_over) {
                    (Looked::Answered(answer), _) => return Poll::Ready(answer),
                    (Looked::PassedOver, Some(answer)) => return Poll::Ready(Ok(answer())),
                    (Looked::Waiting, _) => {
                        *progress = Progress::Open;
                        return Poll::Pending;
                    }
                    _ => Progress::Open,
                }
            }
            Progress::New(Err(why)) => stuck(&format!("cannot be asked: {why}")),
            Progress::Done => stuck("is awaited again after its answer"),
            waiting => waiting,
        };
        // In the handler's own task it is dropped by the end of the round.
        if round.is_closed(cx.waker()) {
            *progress = Progress::Done;
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
            .field("key", &self.asked.key)
            .field("progress", &self.asked.progress)
            .finish_non_exhaustive()
    }
}
