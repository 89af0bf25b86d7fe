//! The scope of a running step, in which the handler may use no other step and no question.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// A step: the address of its round, and its key.
pub(super) type StepName = (usize, Arc<str>);

thread_local! {
    /// The step that this thread is polling.
    static CURRENT_STEP: Cell<Option<StepName>> = const { Cell::new(None) };
}

pin_project! {
    /// The future of a step. While it is polled, the step is the [current](current_step) one.
    pub(super) struct StepScope<F> {
        step: Option<StepName>,
        #[pin]
        future: F,
    }
}

impl<F> StepScope<F> {
    pub(super) fn new(step: StepName, future: F) -> Self {
        Self { step: Some(step), future }
    }
}

impl<F: Future> Future for StepScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _swapped = Swapped::new(this.step);
        this.future.poll(cx)
    }
}

/// A step that was swapped with the current one. Swaps them back when it is dropped, also if the
/// poll panics.
struct Swapped<'s>(&'s mut Option<StepName>);

impl<'s> Swapped<'s> {
    fn new(step: &'s mut Option<StepName>) -> Self {
        let mut swapped = Self(step);
        swapped.swap();
        swapped
    }

    fn swap(&mut self) {
        *self.0 = CURRENT_STEP.replace(self.0.take());
    }
}

impl Drop for Swapped<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

/// Returns the name of a step of `round`.
pub(super) fn name<R>(round: &R, key: &Arc<str>) -> StepName {
    (address(round), Arc::clone(key))
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
