//! The scope of a running step, in which the handler may use no other step and no question.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    /// The step that this thread is polling: the address of its round, and its key.
    static CURRENT_STEP: Cell<Option<(usize, Arc<str>)>> = const { Cell::new(None) };
}

/// The future of a step. While it is polled, the step is the [current](current_step) one.
pub(super) struct StepScope<F> {
    round: usize,
    key: Arc<str>,
    future: F,
}

impl<F> StepScope<F> {
    pub(super) fn new<R>(round: &R, key: &Arc<str>, future: F) -> Self {
        Self { round: address(round), key: Arc::clone(key), future }
    }
}

impl<F: Future + Unpin> Future for StepScope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outer = CURRENT_STEP.replace(Some((self.round, Arc::clone(&self.key))));
        let _restore = RestoreOnDrop(outer);
        Pin::new(&mut self.future).poll(cx)
    }
}

/// Restores the outer step, also if the poll panics.
struct RestoreOnDrop(Option<(usize, Arc<str>)>);

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        CURRENT_STEP.set(self.0.take());
    }
}

/// Returns the key of the step of `round` that this thread is polling.
///
/// Steps of other rounds do not count: a step may call a server in the same process.
pub(super) fn current_step<R>(round: &R) -> Option<Arc<str>> {
    let current = CURRENT_STEP.take();
    let key =
        current.as_ref().filter(|(of, _)| *of == address(round)).map(|(_, key)| Arc::clone(key));
    CURRENT_STEP.set(current);
    key
}

/// Returns the address that identifies a round. Pass the round itself, not a pointer to it.
fn address<R>(round: &R) -> usize {
    std::ptr::from_ref(round).addr()
}
