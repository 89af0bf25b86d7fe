//! Knowing that one is inside a step, where nothing may be asked and no other step be done.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    /// The step that this thread is polling, and the address of its round.
    static STEP: Cell<Option<(usize, Arc<str>)>> = const { Cell::new(None) };
}

/// What a step does, polled so that it is known.
pub(super) struct StepScope<F> {
    round: usize,
    key: Arc<str>,
    doing: F,
}

impl<F> StepScope<F> {
    pub(super) fn new<R>(round: &R, key: &Arc<str>, doing: F) -> Self {
        Self { round: address(round), key: Arc::clone(key), doing }
    }
}

impl<F: Future + Unpin> Future for StepScope<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let _out = Out(STEP.replace(Some((self.round, Arc::clone(&self.key)))));
        Pin::new(&mut self.doing).poll(cx)
    }
}

/// Puts back what was there before, if the poll panics too.
struct Out(Option<(usize, Arc<str>)>);

impl Drop for Out {
    fn drop(&mut self) {
        STEP.set(self.0.take());
    }
}

/// The step of this round that is being polled here.
pub(super) fn step_of<R>(round: &R) -> Option<Arc<str>> {
    let step = STEP.take();
    let of_round =
        step.as_ref().filter(|(of, _)| *of == address(round)).map(|(_, key)| Arc::clone(key));
    STEP.set(step);
    of_round
}

/// Identifies a round. It must be called with the round itself, not with a reference-counted pointer.
fn address<R>(round: &R) -> usize {
    std::ptr::from_ref(round).addr()
}
