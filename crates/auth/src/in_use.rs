//! Values that exist while they are used.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values by key. All users of a key at the same time share one, and the last one removes it.
pub(crate) struct InUse<K, V>(Mutex<HashMap<K, Entry<V>>>);

struct Entry<V> {
    value: Arc<V>,
    users: usize,
}

impl<K: Clone + Eq + Hash, V: Default> InUse<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Returns the value of a key, which is new if the key has no user.
    pub(crate) fn get(&self, key: K) -> Used<'_, K, V> {
        let mut entries = self.entries();
        let entry = entries.entry(key.clone());
        let entry = entry.or_insert_with(|| Entry { value: Arc::default(), users: 0 });
        entry.users += 1;
        Used { all: self, key, value: Arc::clone(&entry.value) }
    }
}

impl<K, V> InUse<K, V> {
    fn entries(&self) -> MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }
}

/// A handle to the value of a key. Dropping the last one removes the value.
pub(crate) struct Used<'a, K: Eq + Hash, V> {
    all: &'a InUse<K, V>,
    key: K,
    value: Arc<V>,
}

impl<K: Eq + Hash, V> Used<'_, K, V> {
    /// Lets later users of the key have a new value.
    #[cfg(feature = "resource")]
    pub(crate) fn retire(&self) {
        let mut entries = self.all.entries();
        if entries.get(&self.key).is_some_and(|entry| self.is_of(entry)) {
            entries.remove(&self.key);
        }
    }

    /// Returns false if the value was retired, and the key has another one.
    fn is_of(&self, entry: &Entry<V>) -> bool {
        Arc::ptr_eq(&entry.value, &self.value)
    }
}

impl<K: Eq + Hash, V> Deref for Used<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<K: Eq + Hash, V> Drop for Used<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.all.entries();
        if let Some(entry) = entries.get_mut(&self.key).filter(|entry| self.is_of(entry)) {
            entry.users -= 1;
            if entry.users == 0 {
                entries.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tokio::sync::Mutex;

    use super::*;

    type Locks = InUse<&'static str, Mutex<()>>;

    /// Holds the lock of an owner until it is dropped.
    async fn hold(locks: &Locks, owner: &'static str, then: impl Future<Output = ()>) {
        let lock = locks.get(owner);
        let _guard = lock.lock().await;
        then.await;
    }

    #[test]
    fn owners_wait_for_themselves_only_and_nothing_is_left() {
        let locks = Locks::new();
        let mut cx = Context::from_waker(Waker::noop());
        let forever = std::future::pending;
        {
            let mut first = Box::pin(hold(&locks, "alice", forever()));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            let mut second = pin!(hold(&locks, "alice", async {}));
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert_eq!(pin!(hold(&locks, "bob", async {})).poll(&mut cx), Poll::Ready(()));
            drop(first);
            assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(()));
            let mut first = Box::pin(hold(&locks, "alice", forever()));
            assert!(first.as_mut().poll(&mut cx).is_pending());
            let mut cancelled = Box::pin(hold(&locks, "alice", async {}));
            assert!(cancelled.as_mut().poll(&mut cx).is_pending());
            assert_eq!(locks.len(), 1);
            drop(first);
            drop(cancelled);
        }
        assert_eq!(locks.len(), 0);
    }
}
