//! Races, whose outcome every later pass repeats.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::round::Round;

/// See [`crate::Context::race`].
pub(crate) async fn race<T>(
    round: Arc<Round>,
    key: String,
    one: impl Future<Output = T>,
    other: impl Future<Output = T>,
) -> T {
    match round.winner(&key) {
        Some(true) => return one.await,
        Some(false) => return other.await,
        None => {}
    }
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let (first, output) = match one.as_mut().poll(cx) {
            Poll::Ready(output) => (true, output),
            Poll::Pending => match other.as_mut().poll(cx) {
                Poll::Ready(output) => (false, output),
                Poll::Pending => return Poll::Pending,
            },
        };
        round.decide(&key, first);
        Poll::Ready(output)
    })
    .await
}
