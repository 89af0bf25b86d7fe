//! Checkpoints: rounds that end with a request state and without a question.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Context;

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
