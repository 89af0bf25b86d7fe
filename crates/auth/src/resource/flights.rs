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
        // Declared before the cell, so that it is dropped after it.
        let _cleanup = Cleanup { flights: self, token };
        let cell = Arc::clone(self.cells().entry(token).or_default());
        let outcome = cell.get_or_init(|| work).await.clone();
        // An outcome is for those who waited for it. Later requests find it in the caches, if at
        // all.
        let mut cells = self.cells();
        if cells.get(&token).is_some_and(|found| Arc::ptr_eq(found, &cell)) {
            cells.remove(&token);
        }
        outcome
    }
}

impl<V> Flights<V> {
    fn cells(&self) -> MutexGuard<'_, Cells<V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the cell of a verification that all requests have left.
struct Cleanup<'a, V> {
    flights: &'a Flights<V>,
    token: TokenDigest,
}

impl<V> Drop for Cleanup<'_, V> {
    fn drop(&mut self) {
        let mut cells = self.flights.cells();
        // Requests have clones, which are made under the lock of the map.
        if cells.get(&self.token).is_some_and(|cell| Arc::strong_count(cell) == 1) {
            cells.remove(&self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Barrier;
    use std::task::{Context, Poll, Waker};
    use std::thread;

    use super::super::token_cache::DigestKey;
    use super::*;

    #[test]
    fn last_request_removes_the_cell() {
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
            let mut third = Box::pin(flights.join(token, std::future::pending()));
            assert!(third.as_mut().poll(&mut cx).is_pending());
        }
        assert!(flights.cells().is_empty());
    }

    /// An outcome that stayed would be used however old it is.
    #[test]
    fn outcome_is_for_those_who_waited_for_it() {
        const THREADS: u32 = 4;
        let (flights, barrier) = (Flights::<u32>::new(), Barrier::new(4));
        let token = DigestKey::random().unwrap().digest(b"token");
        let run = || {
            for round in 0..1_000 {
                barrier.wait();
                let mut joined = pin!(flights.join(token, async { round }));
                let joined = joined.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(
                    matches!(joined, Poll::Ready(found) if found == round) || joined.is_pending()
                );
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(run))));
        assert!(flights.cells().is_empty());
    }
}
