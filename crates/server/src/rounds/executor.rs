//! The executor of a handler, and the rule by which a round ends.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::fault::Fault;
use super::journal::Journal;
use super::round::{Round, Suspended, Waiting};

/// The end of a round.
pub(crate) enum Ending<T> {
    /// The handler returned.
    Finished(T, Journal),
    /// The handler can only wait for answers, or for the next round.
    Suspended(Suspended),
    /// The call is to become a task. The handler can be driven further once the journal is
    /// [attached](Round::attach) to a store.
    Detached,
    /// The call cannot continue.
    Failed(Fault),
}

/// Runs a handler until its round ends.
///
/// A round ends when the handler returns, or when all of these hold:
///
/// 1. A question is open, or the handler asked for the end of the round.
/// 2. No step is in flight.
/// 3. The handler's last poll was pending, and its waker was not called during that poll or since.
///
/// Without the third, a handler that yields beside a question would split into two rounds what
/// should be one. A runtime may defer the wake-up of a task that yields until other tasks have run.
/// So "since" includes one turn of the runtime: the driver yields once itself, and checks again. It
/// skips that turn if the waker has no other holders.
///
/// The round is closed before the handler is dropped, so dropping a question does not withdraw it.
pub(crate) async fn drive<T>(
    round: &Round,
    mut handler: Pin<&mut (dyn Future<Output = T> + Send + '_)>,
) -> Ending<T> {
    let handler_waker = HandlerWaker::new();
    let waker = Waker::from(Arc::clone(&handler_waker));
    loop {
        let polled = poll_fn(|cx| {
            handler_waker.reset();
            let poll = || handler.as_mut().poll(&mut Context::from_waker(&waker));
            let polled = catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
                round.fail(Fault::panicked(&*panic));
                Poll::Pending
            });
            if let Poll::Ready(output) = polled {
                let finished = round.finish().map(|journal| Ending::Finished(output, journal));
                return Poll::Ready(Polled::Ended(finished.unwrap_or_else(Ending::Failed)));
            }
            match round.poll_suspended(cx.waker()) {
                Err(fault) => Poll::Ready(Polled::Ended(Ending::Failed(fault))),
                Ok(Waiting::ForTask) => Poll::Ready(Polled::Ended(Ending::Detached)),
                Ok(Waiting::ForInput(activity)) if !handler_waker.is_woken() => {
                    Poll::Ready(Polled::Suspended(activity))
                }
                Ok(Waiting::ForInput(_) | Waiting::Elsewhere) => {
                    handler_waker.forward_to(cx.waker());
                    Poll::Pending
                }
            }
        })
        .await;
        let activity = match polled {
            Polled::Ended(ending) => return ending,
            Polled::Suspended(activity) => activity,
        };
        // True if the waker has holders besides `handler_waker`, `waker`, and the round's own list;
        // `None` if that is unknown.
        let has_other_holders = || {
            let known = 2 + round.close_waiters_with(&waker)?;
            Some(Arc::strong_count(&handler_waker) > known)
        };
        let mut waits_elsewhere = has_other_holders();
        if waits_elsewhere != Some(false) {
            deferred_wakes().await;
            waits_elsewhere = has_other_holders();
        }
        if !handler_waker.is_woken()
            && let Some(suspended) = round.close_if_suspended(activity)
        {
            if waits_elsewhere == Some(true) {
                let questions: Vec<_> = suspended.open.iter().map(|open| &*open.key).collect();
                tracing::warn!(
                    target: "mrtr::rounds",
                    ?questions,
                    "the handler also waits for something that is neither a question nor a \
                     step; it is dropped when the round ends"
                );
            }
            return Ending::Suspended(suspended);
        }
    }
}

/// Waits until the runtime has made the wake-ups that are deferred, such as that of a handler in
/// `yield_now`.
///
/// A poll of the task for another reason does not end this early, as it would end `yield_now`: the
/// writer of a task is polled together with its handler.
async fn deferred_wakes() {
    let turn = HandlerWaker::new();
    let waker = Waker::from(Arc::clone(&turn));
    let mut yielded = pin!(tokio::task::yield_now());
    if yielded.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
        return;
    }
    poll_fn(|cx| {
        if turn.is_woken() {
            return Poll::Ready(());
        }
        turn.forward_to(cx.waker());
        Poll::Pending
    })
    .await;
}

/// The result of polling a handler.
enum Polled<T> {
    Ended(Ending<T>),
    /// The handler is suspended, as of this [activity](Round::poll_suspended).
    Suspended(u64),
}

/// The waker of a handler. It records that it was called, and wakes its parent, the driver's waker.
///
/// The parent is not set during a poll: the driver checks [`is_woken`](Self::is_woken) afterwards.
struct HandlerWaker {
    woken: AtomicBool,
    parent: Mutex<Waker>,
}

// All accesses are sequentially consistent. In `forward_to` and `wake_by_ref`, each side writes
// what the other side then reads, and one of them has to see the other's write; weaker orderings
// would rely on the mutex between them.
impl HandlerWaker {
    fn new() -> Arc<Self> {
        let parent = Mutex::new(Waker::noop().clone());
        Arc::new(Self { woken: AtomicBool::new(false), parent })
    }

    /// Forgets earlier calls.
    fn reset(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }

    /// Wakes `parent` at the next call, or now if there was one since the last reset.
    fn forward_to(&self, parent: &Waker) {
        self.parent.lock().unwrap_or_else(PoisonError::into_inner).clone_from(parent);
        // A call before the line above may have woken an earlier parent.
        if self.is_woken() {
            parent.wake_by_ref();
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for HandlerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.parent.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
    }
}
