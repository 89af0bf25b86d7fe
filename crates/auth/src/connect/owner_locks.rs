//! Locks by the owner of an account.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mrtr_codec::Principal;
use tokio::sync::OwnedMutexGuard;

type Locks = HashMap<Principal, Arc<tokio::sync::Mutex<()>>>;

/// Locks by owner, so that a refresh token is not used twice, and a refresh does not replace an
/// account that was connected in the meantime. Only locks in use are kept.
#[derive(Default)]
pub(super) struct OwnerLocks(Mutex<Locks>);

impl OwnerLocks {
    pub(super) async fn lock(&self, owner: &Principal) -> OwnerLock<'_> {
        let lock = Arc::clone(self.locks().entry(owner.clone()).or_default());
        // Created before it waits: a future that is dropped removes the lock, too.
        let mut held = OwnerLock { locks: self, owner: owner.clone(), guard: None };
        held.guard = Some(lock.lock_owned().await);
        held
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lock of an owner. It is released when this is dropped.
pub(super) struct OwnerLock<'a> {
    locks: &'a OwnerLocks,
    owner: Principal,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for OwnerLock<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.locks.locks();
        // Those who hold it or wait for it have clones, which are made under the lock of the map.
        if locks.get(&self.owner).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn owners_wait_for_themselves_only_and_nothing_is_left() {
        let locks = OwnerLocks::default();
        let [alice, bob] = ["alice", "bob"].map(|name| Principal::new("https://a.example", name));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = pin!(locks.lock(&alice)).poll(&mut cx) else { panic!("it waits") };
        {
            let mut second = pin!(locks.lock(&alice));
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert!(pin!(locks.lock(&bob)).poll(&mut cx).is_ready());
            drop(first);
            assert!(second.as_mut().poll(&mut cx).is_ready());
            let first = pin!(locks.lock(&alice)).poll(&mut cx);
            assert!(first.is_ready());
            let mut cancelled = Box::pin(locks.lock(&alice));
            assert!(cancelled.as_mut().poll(&mut cx).is_pending());
            drop(first);
            drop(cancelled);
        }
        assert!(locks.locks().is_empty());
    }
}
