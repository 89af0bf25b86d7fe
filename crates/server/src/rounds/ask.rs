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
pub enum Answer<T> {
    /// Answered.
    Accept(T),
    /// Refused to answer.
    Decline,
    /// Dismissed the question.
    Cancel,
}

/// Why an answer does not fit, or what it means for the handler.
pub(crate) type Decoded<T> = Result<Result<T, Error>, String>;
type Decode<T> = Box<dyn Fn(&str) -> Decoded<T> + Send + Sync>;

/// A question on its way: await it for the answer.
///
/// While it has no answer it stays pending, and the round may end: then the handler is dropped here,
/// and runs again from its first line when the answer has come. It never fails just because it has to
/// wait. A question in a task of its own ends with [`Error::is_round_closed`] when the round does.
///
/// Dropping it before the round ends withdraws the question.
#[must_use = "a question is asked when it is awaited"]
pub struct Ask<T> {
    round: Arc<Round>,
    key: Arc<str>,
    question: Result<Arc<Question>, String>,
    decode: Decode<T>,
    /// What it comes to if the client cannot be asked, if it may be passed over.
    passed_over: Option<fn() -> T>,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    New,
    /// With what withdraws it, once it is open.
    Waiting(#[expect(dead_code, reason = "it is held for its drop")] Option<Withdraw>),
    Done,
}

/// Takes an open question back when it is dropped.
struct Withdraw(Arc<Round>, Arc<str>);

impl Drop for Withdraw {
    fn drop(&mut self) {
        self.0.withdraw(&self.1);
    }
}

impl fmt::Debug for Withdraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Withdraw").field(&self.1).finish()
    }
}

impl<T> Ask<T> {
    /// A question; if it cannot be asked, the reason why.
    pub(crate) fn new(
        round: Arc<Round>,
        key: Arc<str>,
        question: Result<Question, String>,
        decode: impl Fn(&str) -> Decoded<T> + Send + Sync + 'static,
    ) -> Self {
        let (question, decode) = (question.map(Arc::new), Box::new(decode));
        Self { round, key, question, decode, passed_over: None, progress: Progress::New }
    }
}

impl<T: 'static> Ask<T> {
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
    pub fn optional(self) -> Ask<Option<T>> {
        let Self { round, key, question, decode, progress, .. } = self;
        // The only errors are that it was declined or dismissed.
        let decode: Decode<Option<T>> = Box::new(move |text| Ok(Ok(decode(text)?.ok())));
        Ask { round, key, question, decode, passed_over: Some(|| None), progress }
    }
}

impl<T> Future for Ask<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: StdPin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (round, key) = (&this.round, &this.key);
        let mistake = |why: &str| {
            round.fail(Fault::Handler(format!("the question {key:?} {why}")));
            Progress::Waiting(None)
        };
        match (&this.progress, &this.question) {
            (Progress::Waiting(_), _) => {}
            (Progress::Done, _) => this.progress = mistake("is awaited again after its answer"),
            (Progress::New, Err(why)) => {
                this.progress = mistake(&format!("cannot be asked: {why}"));
            }
            (Progress::New, Ok(question)) => {
                let optional = this.passed_over.is_some();
                let answer = match round.ask(key, question, optional, cx.waker(), &this.decode) {
                    Looked::Answered(answer) => Some(answer),
                    Looked::PassedOver => this.passed_over.map(|answer| Ok(answer())),
                    Looked::Waiting | Looked::Closed => None,
                };
                if let Some(answer) = answer {
                    this.progress = Progress::Done;
                    return Poll::Ready(answer);
                }
                let withdraw = Withdraw(Arc::clone(round), Arc::clone(key));
                this.progress = Progress::Waiting(Some(withdraw));
            }
        }
        // In the handler's own task it is dropped by the end of the round.
        if round.is_closed(cx.waker()) {
            let closed = Error::round_closed(key);
            this.progress = Progress::Done;
            return Poll::Ready(Err(closed));
        }
        Poll::Pending
    }
}

// Nothing in it is pinned: it may move between polls.
impl<T> Unpin for Ask<T> {}

impl<T> fmt::Debug for Ask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("key", &self.key)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
