//! A guard for one process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{SingleUseStore, StoreError};

/// What an entry takes beside its key and value, roughly.
const OVERHEAD: usize = 256;

/// A [`SingleUseStore`] in this process's memory: for a server that is one process, and for tests.
///
/// It knows nothing of other replicas, and forgets all when the process ends: on a fleet it would let a state be used
/// once on each replica, and again after each restart. So it has to be asked for by this name.
///
/// It never forgets an entry before its time: when it is full, it refuses.
#[derive(Debug)]
pub struct MemoryStore {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<String, Record>,
    /// Which entry ends when, the next one first.
    ends: BTreeSet<(Instant, String)>,
    bytes: usize,
}

#[derive(Debug)]
struct Record {
    ends: Instant,
    value: Vec<u8>,
}

impl MemoryStore {
    /// A guard that takes up to about `bytes` of memory. A used state takes some 400 bytes and its response; so
    /// 64 MiB are enough for some ten thousand with responses of a few kilobytes.
    pub fn new(bytes: usize) -> Self {
        Self { most: bytes, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.expire(Instant::now());
        state
    }
}

impl State {
    fn expire(&mut self, now: Instant) {
        while self.ends.first().is_some_and(|(ends, _)| *ends <= now) {
            if let Some((_, key)) = self.ends.pop_first() {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &str) -> Option<Record> {
        let entry = self.entries.remove(key)?;
        self.bytes = self.bytes.saturating_sub(size(key, &entry.value));
        Some(entry)
    }

    fn insert(&mut self, key: &str, value: &[u8], ends: Instant) {
        self.bytes += size(key, value);
        self.ends.insert((ends, key.to_owned()));
        self.entries.insert(key.to_owned(), Record { ends, value: value.to_vec() });
    }
}

fn size(key: &str, value: &[u8]) -> usize {
    OVERHEAD + 2 * key.len() + value.len()
}

/// Some time that is far away: an end that the clock cannot say is no end.
fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_hours(24 * 365))
}

impl SingleUseStore for MemoryStore {
    async fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get(key) {
            return Ok(Some(entry.value.clone()));
        }
        if state.bytes + size(key, value) > self.most {
            return Err(StoreError::Full);
        }
        state.insert(key, value, after(time));
        Ok(None)
    }

    async fn settle(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(old) = state.entries.get(key) else { return Ok(()) };
        let (old, ends) = (old.value.len(), old.ends);
        if state.bytes - old + value.len() > self.most {
            return Err(StoreError::Full);
        }
        state.ends.remove(&(ends, key.to_owned()));
        state.remove(key);
        state.insert(key, value, after(time));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn the_first_claim_stands_until_its_time_is_over() {
        let store = MemoryStore::new(10_000);
        assert_eq!(store.claim("a", b"1", MINUTE).await.unwrap(), None);
        assert_eq!(store.claim("a", b"2", MINUTE).await.unwrap().as_deref(), Some(&b"1"[..]));
        store.settle("a", b"done", 2 * MINUTE).await.unwrap();
        store.settle("b", b"nothing", MINUTE).await.unwrap();
        assert_eq!(
            store.claim("b", b"3", MINUTE).await.unwrap(),
            None,
            "there was nothing to settle"
        );
        tokio::time::advance(Duration::from_millis(119_998)).await;
        assert_eq!(store.claim("a", b"4", MINUTE).await.unwrap().as_deref(), Some(&b"done"[..]));
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(store.claim("a", b"5", MINUTE).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_guard_refuses_and_forgets_nothing_and_has_room_again_later() {
        let store = MemoryStore::new(3 * (OVERHEAD + 12));
        for key in ["a", "b", "c"] {
            assert_eq!(store.claim(key, &[0; 8], MINUTE).await.unwrap(), None);
        }
        assert!(matches!(store.claim("d", b"", MINUTE).await, Err(StoreError::Full)));
        assert!(matches!(store.settle("a", &[0; 500], MINUTE).await, Err(StoreError::Full)));
        assert_eq!(store.claim("a", b"", MINUTE).await.unwrap(), Some(vec![0; 8]));
        store.settle("a", &[1; 8], 2 * MINUTE).await.unwrap();
        tokio::time::advance(MINUTE).await;
        for key in ["d", "e"] {
            assert_eq!(store.claim(key, &[0; 8], MINUTE).await.unwrap(), None);
        }
        assert!(matches!(store.claim("f", b"", MINUTE).await, Err(StoreError::Full)));
        tokio::time::advance(MINUTE).await;
        let state = store.lock();
        assert_eq!((state.bytes, state.entries.len(), state.ends.len()), (0, 0, 0));
    }
}
