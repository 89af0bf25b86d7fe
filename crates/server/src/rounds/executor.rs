//! The rule by which a round ends.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::fault::Fault;
use super::journal::Journal;
use super::round::{OpenInput, Round};

/// How a leg ended.
pub(crate) enum Ending<T> {
    /// The handler returned.
    Finished(T, Journal),
    /// All that is left is to wait for answers.
    Suspended(Journal, Vec<OpenInput>),
    /// The flow cannot go on.
    Failed(Fault),
}

/// Runs a handler until the round ends.
///
/// A round ends when the handler returns, or when all three hold:
///
/// 1. a question is open,
/// 2. no step is in flight,
/// 3. the handler's last poll was pending, and its waker was not fired during that poll or since.
///
/// Without the third, a handler that yields beside a question would split a joined round in two. A
/// runtime may put the wake-up of a task that yields off until it has turned to its other tasks, so
/// "since" is one turn of the runtime: the driver yields itself, and looks again. Where it is the only one to
/// have the waker, there is nothing to look for.
///
/// The round is closed before the handler is dropped: what is dropped with it was asked.
pub(crate) async fn drive<T>(
    round: &Round,
    mut handler: Pin<Box<dyn Future<Output = T> + Send + '_>>,
) -> Ending<T> {
    let own = Arc::new(OwnWaker {
        woken: AtomicBool::new(false),
        parent: Mutex::new(Waker::noop().clone()),
    });
    let waker = Waker::from(Arc::clone(&own));
    loop {
        let polled = poll_fn(|cx| {
            own.begin();
            let poll = || handler.as_mut().poll(&mut Context::from_waker(&waker));
            let polled = catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
                round.fail(Fault::panicked(&*panic));
                Poll::Pending
            });
            if let Poll::Ready(output) = polled {
                let finished = round.finish().map(|journal| Ending::Finished(output, journal));
                return Poll::Ready(Polled::Over(finished.unwrap_or_else(Ending::Failed)));
            }
            match round.look(cx.waker()) {
                Err(fault) => Poll::Ready(Polled::Over(Ending::Failed(fault))),
                Ok(Some(activity)) if !own.is_woken() => Poll::Ready(Polled::Suspended(activity)),
                Ok(_) => {
                    own.wait(cx.waker());
                    Poll::Pending
                }
            }
        })
        .await;
        let activity = match polled {
            Polled::Over(ending) => return ending,
            Polled::Suspended(activity) => activity,
        };
        // Whether others have the waker, besides `own`, `waker`, and those who wait for the end of the round; `None` if that
        // cannot be known.
        let others = || {
            let known = round.waiters_using(&waker).map(|here| 2 + here);
            known.map(|known| Arc::strong_count(&own) > known)
        };
        let mut beside = others();
        // What nobody has, nobody fires.
        if beside != Some(false) {
            tokio::task::yield_now().await;
            beside = others();
        }
        if !own.is_woken()
            && let Some((journal, open)) = round.close_if_suspended(activity)
        {
            if beside == Some(true) {
                let keys: Vec<_> = open.iter().map(|open| &*open.key).collect();
                tracing::warn!(
                    target: "mrtr::rounds",
                    beside = ?keys,
                    "the handler also waits for what is neither a question nor a step: that is dropped, as the round ends"
                );
            }
            return Ending::Suspended(journal, open);
        }
    }
}

/// What came of a poll.
enum Polled<T> {
    Over(Ending<T>),
    /// There is nothing to wait for but answers, as of this activity.
    Suspended(u64),
}

/// The handler's waker: it notes that it was fired, and passes it on to who waits for that. During a poll nobody does: who
/// polls looks afterwards.
struct OwnWaker {
    woken: AtomicBool,
    parent: Mutex<Waker>,
}

impl OwnWaker {
    /// From here on counts what fires it.
    fn begin(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }

    /// Passes on to `parent` that it was fired, be it before this or after.
    fn wait(&self, parent: &Waker) {
        self.parent.lock().unwrap_or_else(PoisonError::into_inner).clone_from(parent);
        // Who fires it before the line above may have found another parent.
        if self.is_woken() {
            parent.wake_by_ref();
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for OwnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.parent.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}
