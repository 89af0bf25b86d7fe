//! Checkpoints: rounds that end with a request state and without a question.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Waker};

use super::journal::{CHECKPOINT, EntryKind};
use super::round::Round;
use crate::error::Error;

/// Implements [`Context::checkpoint`](crate::Context::checkpoint).
pub(crate) async fn checkpoint(round: Arc<Round>, key: Arc<str>) -> Result<(), Error> {
    let passed = round.checkpoint(&key);
    if passed == Some(true) {
        return Ok(());
    }
    let mut request = None;
    poll_fn(|cx| {
        if passed.is_some() {
            request.get_or_insert_with(|| SuspendRequest::new(&round, cx));
        }
        round.poll_closed(cx.waker())
    })
    .await;
    Err(Error::round_closed(&key))
}

impl Round {
    /// Returns true if an earlier round ended at this checkpoint. If not, records that this round
    /// does. `None` if the call has a fault.
    fn checkpoint(&self, key: &Arc<str>) -> Option<bool> {
        let mut state = self.lock();
        let location = state.use_key(self, key)?;
        let passed = state.replay.decision(&location, "a checkpoint", [CHECKPOINT]);
        let passed = passed.map_err(|fault| state.fail(fault)).ok()?.is_some();
        if !passed {
            state.replay.record(key, EntryKind::Decision, CHECKPOINT.to_owned());
            state.note_decision();
        }
        // The journal of a task is kept after each step.
        Some(passed || state.commits.is_some())
    }

    /// Requests that the round ends as soon as the handler is suspended, with or without a
    /// question.
    fn request_suspend(&self, waker: &Waker) {
        let mut state = self.lock();
        state.suspend_requests += 1;
        state.wake_driver();
        state.wake_on_close(waker);
    }

    /// Cancels one [request](Self::request_suspend).
    fn cancel_suspend_request(&self) {
        let mut state = self.lock();
        state.suspend_requests = state.suspend_requests.saturating_sub(1);
    }
}

/// A request that the round ends without a question. Dropping it cancels the request.
pub(super) struct SuspendRequest(Arc<Round>);

impl SuspendRequest {
    pub(super) fn new(round: &Arc<Round>, cx: &Context<'_>) -> Self {
        round.request_suspend(cx.waker());
        Self(Arc::clone(round))
    }
}

impl Drop for SuspendRequest {
    fn drop(&mut self) {
        self.0.cancel_suspend_request();
    }
}
