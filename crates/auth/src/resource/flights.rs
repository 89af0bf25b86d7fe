//! Verifications in flight, which requests with the same token share.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use super::token_cache::TokenDigest;

type Cells<V> = HashMap<TokenDigest, Arc<OnceCell<V>>>;

/// The verifications in flight. There are at most as many as requests that wait for them.
pub(super) struct Flights<V>(Mutex<Cells<V>>);

impl<V: Clone> Flights<V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Returns the outcome of the verification of a token that is in flight, or else of `work`.
    ///
    /// Cancel safe: if the request that does the work is cancelled, another one that waits for it
    /// begins its own.
    pub(super) async fn join(&self, token: TokenDigest, work: impl Future<Output = V>) -> V {
        let cell = Arc::clone(self.cells().entry(token).or_default());
        let waiter = Waiter { flights: self, token, cell };
        waiter.cell.get_or_init(|| work).await.clone()
    }
}

impl<V> Flights<V> {
    fn cells(&self) -> MutexGuard<'_, Cells<V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for an outcome. The last one removes it.
struct Waiter<'a, V> {
    flights: &'a Flights<V>,
    token: TokenDigest,
    cell: Arc<OnceCell<V>>,
}

impl<V> Drop for Waiter<'_, V> {
    fn drop(&mut self) {
        let mut cells = self.flights.cells();
        // The map has the other one. Cells are cloned under its lock only.
        if Arc::strong_count(&self.cell) == 2 {
            cells.remove(&self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::super::token_cache::DigestKey;
    use super::*;

    #[test]
    fn last_waiter_removes_the_outcome() {
        let flights = Flights::<u8>::new();
        let token = DigestKey::random().unwrap().digest(b"token");
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut first = Box::pin(flights.join(token, std::future::pending()));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            let mut second = pin!(flights.join(token, async { 2 }));
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert_eq!(flights.cells().len(), 1);
            drop(first);
            assert_eq!(flights.cells().len(), 1);
            assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(2));
            assert!(flights.cells().is_empty());
        }
        assert_eq!(pin!(flights.join(token, async { 3 })).poll(&mut cx), Poll::Ready(3));
    }
}
