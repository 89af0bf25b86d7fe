//! The rule by which a round ends.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::fault::Fault;
use super::journal::Journal;
use super::round::{Open, Round};

/// How a leg ended.
pub(crate) enum Ending<T> {
    /// The handler returned.
    Finished(T, Journal),
    /// All that is left is to wait for answers.
    Suspended(Journal, Vec<Open>),
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
        let mut activity = 0;
        let polled = poll_fn(|cx| {
            own.parent.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
            round.watch(cx.waker());
            own.woken.store(false, Ordering::SeqCst);
            let poll = || handler.as_mut().poll(&mut Context::from_waker(&waker));
            let polled = catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|panic| {
                round.fail(Fault::panicked(&*panic));
                Poll::Pending
            });
            let (happened, suspended) = round.look();
            activity = happened;
            match (suspended, polled) {
                (Err(fault), _) => Poll::Ready(Err(Some(fault))),
                (Ok(_), Poll::Ready(output)) => Poll::Ready(Ok(output)),
                (Ok(true), Poll::Pending) if !own.is_woken() => Poll::Ready(Err(None)),
                (Ok(_), Poll::Pending) => Poll::Pending,
            }
        })
        .await;
        match polled {
            Ok(output) => return Ending::Finished(output, round.close().0),
            Err(Some(fault)) => return Ending::Failed(fault),
            Err(None) => {
                // Whether others have the waker, besides `own`, `waker`, and those who wait for the end of the round; `None` if
                // that cannot be known.
                let others = || {
                    let known = round.waits_only_here(&waker).map(|here| 2 + here);
                    known.map(|known| Arc::strong_count(&own) > known)
                };
                // What nobody has, nobody fires.
                if others() != Some(false) {
                    tokio::task::yield_now().await;
                }
                let others = others();
                if !own.is_woken()
                    && let Some((journal, open)) = round.close_if_suspended(activity)
                {
                    if others == Some(true) {
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
    }
}

/// The handler's waker: it notes that it was fired, and passes it on.
struct OwnWaker {
    woken: AtomicBool,
    parent: Mutex<Waker>,
}

impl OwnWaker {
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
