//! Questions, as futures.

use std::fmt;
use std::future::Future;
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mrtr_schema::input::InputRequest;

use super::journal::Pin;
use super::round::{Asked, Fault, Round};
use crate::asks;
use crate::error::Error;

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
    key: String,
    request: Result<InputRequest, String>,
    decode: Decode<T>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    New,
    Waiting,
    Done,
}

impl<T> Ask<T> {
    /// A question; if it cannot be asked, the reason why.
    pub(crate) fn new(
        round: Arc<Round>,
        key: String,
        request: Result<InputRequest, String>,
        decode: impl Fn(&str) -> Decoded<T> + Send + Sync + 'static,
    ) -> Self {
        let request = request.and_then(|request| request.check().map(|()| request));
        Self { round, key, request, decode: Box::new(decode), progress: Progress::New }
    }
}

impl<T> Future for Ask<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: StdPin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match (this.progress, &this.request) {
            (Progress::Done, _) => {
                let why = format!("the question {:?} is awaited again after its answer", this.key);
                this.round.fail(Fault::Handler(why));
                this.wait(cx)
            }
            (Progress::Waiting, _) => this.wait(cx),
            (Progress::New, Err(why)) => {
                let why = format!("the question {:?} cannot be asked: {why}", this.key);
                this.round.fail(Fault::Handler(why));
                this.wait(cx)
            }
            (Progress::New, Ok(request)) => {
                let pin = Pin::of(&[&asks::pinned(request)]);
                match this.round.ask(&this.key, request, pin, cx.waker(), &this.decode) {
                    Asked::Answered(answer) => {
                        this.progress = Progress::Done;
                        Poll::Ready(answer)
                    }
                    Asked::Waiting => {
                        this.progress = Progress::Waiting;
                        Poll::Pending
                    }
                    Asked::Closed => this.wait(cx),
                }
            }
        }
    }
}

impl<T> Ask<T> {
    /// Waits for the end of the round: in the handler's own task it is dropped by then.
    fn wait(&mut self, cx: &Context<'_>) -> Poll<Result<T, Error>> {
        self.progress = Progress::Waiting;
        if self.round.is_closed(cx.waker()) {
            self.progress = Progress::Done;
            return Poll::Ready(Err(Error::round_closed(&self.key)));
        }
        Poll::Pending
    }
}

// Nothing in it is pinned: it may move between polls.
impl<T> Unpin for Ask<T> {}

impl<T> Drop for Ask<T> {
    fn drop(&mut self) {
        if self.progress == Progress::Waiting {
            self.round.withdraw(&self.key);
        }
    }
}

impl<T> fmt::Debug for Ask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("key", &self.key)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}
