//! The rule by which a round ends.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::journal::Journal;
use super::round::{Fault, Open, Round, Verdict};

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
/// "since" is one turn of the runtime: the driver yields itself, and looks again.
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
            own.parent.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
            round.watch(cx.waker());
            own.woken.store(false, Ordering::SeqCst);
            let poll = || handler.as_mut().poll(&mut Context::from_waker(&waker));
            let polled = catch_unwind(AssertUnwindSafe(poll));
            let polled = polled.unwrap_or_else(|panic| {
                round.fail(Fault::Panicked(text_of(&*panic)));
                Poll::Pending
            });
            match (polled, round.verdict(own.is_woken())) {
                (_, Verdict::Fault(fault)) => Poll::Ready(Err(Some(fault))),
                (Poll::Ready(output), _) => Poll::Ready(Ok(output)),
                (Poll::Pending, Verdict::Suspend) => Poll::Ready(Err(None)),
                (Poll::Pending, Verdict::Wait) => Poll::Pending,
            }
        })
        .await;
        match polled {
            Ok(output) => return Ending::Finished(output, round.close().0),
            Err(Some(fault)) => return Ending::Failed(fault),
            Err(None) => {
                tokio::task::yield_now().await;
                if round.verdict(own.is_woken()) == Verdict::Suspend {
                    let (journal, open) = round.close();
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

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
