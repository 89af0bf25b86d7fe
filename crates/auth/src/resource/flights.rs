//! Verifications in flight, which requests with the same token share.

use std::future::Future;

use tokio::sync::OnceCell;

use super::token_cache::TokenDigest;
use crate::in_use::InUse;

/// The verifications in flight. There are at most as many as requests that wait for them.
pub(super) struct Flights<V>(InUse<TokenDigest, OnceCell<V>>);

impl<V: Clone> Flights<V> {
    pub(super) fn new() -> Self {
        Self(InUse::new())
    }

    /// Returns the outcome of the verification of a token that is in flight, or else of `work`.
    ///
    /// Cancel safe: if the request that does the work is cancelled, another one that waits for it
    /// begins its own.
    pub(super) async fn join(&self, token: TokenDigest, work: impl Future<Output = V>) -> V {
        let cell = self.0.get(token);
        let outcome = cell.get_or_init(|| work).await.clone();
        // An outcome is for those who waited for it. Later requests find it in the caches, if at
        // all.
        cell.retire();
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
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
            assert_eq!(flights.0.len(), 1);
            drop(first);
            assert_eq!(flights.0.len(), 1);
            assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(2));
            assert_eq!(flights.0.len(), 0);
            let mut third = Box::pin(flights.join(token, std::future::pending()));
            assert!(third.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(flights.0.len(), 0);
    }

    /// An outcome that stayed would be used however old it is.
    #[test]
    fn outcome_is_for_those_who_waited_for_it() {
        const THREADS: u32 = 4;
        let (flights, barrier) = (Flights::<u32>::new(), Barrier::new(4));
        let token = DigestKey::random().unwrap().digest(b"token");
        // A thread that panics would leave the others at the barrier.
        let stale = AtomicBool::new(false);
        let run = || {
            for round in 0..1_000 {
                barrier.wait();
                let mut joined = pin!(flights.join(token, async { round }));
                let joined = joined.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if matches!(joined, Poll::Ready(found) if found != round) {
                    stale.store(true, Ordering::Relaxed);
                }
            }
        };
        thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(run))));
        assert!(!stale.load(Ordering::Relaxed));
        assert_eq!(flights.0.len(), 0);
    }
}
