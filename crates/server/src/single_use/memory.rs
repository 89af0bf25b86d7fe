//! A single-use store in memory, for one process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{SingleUseStore, StoreError};

/// The approximate memory of an entry in bytes, in addition to its key, which is stored twice, and
/// its value.
const OVERHEAD: usize = 256;

/// A [`SingleUseStore`] in memory, for tests and for servers of one process.
///
/// It is not shared with other replicas, and it is lost at a restart. With several replicas, each
/// of them would accept a state once, and again after each restart.
///
/// When it is full, it refuses new entries instead of evicting old ones.
#[derive(Debug)]
pub struct MemoryStore {
    max_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<String, Record>,
    /// The expiry of each entry, the earliest first.
    expiries: BTreeSet<(Instant, String)>,
    bytes: usize,
}

#[derive(Debug)]
struct Record {
    expires: Instant,
    value: Vec<u8>,
}

impl MemoryStore {
    /// Creates a store that uses up to about `bytes` of memory.
    ///
    /// A used state takes about 400 bytes in addition to its response. 64 MiB are enough for more
    /// than ten thousand states with responses of a few kilobytes.
    pub fn new(bytes: usize) -> Self {
        Self { max_bytes: bytes, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove_expired(Instant::now());
        state
    }
}

impl State {
    fn remove_expired(&mut self, now: Instant) {
        while self.expiries.first().is_some_and(|(expires, _)| *expires <= now) {
            if let Some((_, key)) = self.expiries.pop_first() {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &str) -> Option<Record> {
        let entry = self.entries.remove(key)?;
        self.bytes = self.bytes.saturating_sub(size(key, &entry.value));
        Some(entry)
    }

    fn insert(&mut self, key: &str, value: &[u8], expires: Instant) {
        self.bytes += size(key, value);
        self.expiries.insert((expires, key.to_owned()));
        self.entries.insert(key.to_owned(), Record { expires, value: value.to_vec() });
    }
}

fn size(key: &str, value: &[u8]) -> usize {
    OVERHEAD + 2 * key.len() + value.len()
}

/// Returns the instant after `time`. An instant that cannot be represented becomes a year from now.
fn expiry(time: Duration) -> Instant {
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
        if state.bytes + size(key, value) > self.max_bytes {
            return Err(StoreError::Full);
        }
        state.insert(key, value, expiry(time));
        Ok(None)
    }

    async fn settle(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        let mut state = self.lock();
        let Some(old) = state.entries.get(key) else { return Ok(()) };
        let old_length = old.value.len();
        let old_expiry = old.expires;
        if state.bytes - old_length + value.len() > self.max_bytes {
            return Err(StoreError::Full);
        }
        state.expiries.remove(&(old_expiry, key.to_owned()));
        state.remove(key);
        state.insert(key, value, expiry(time));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn first_claim_holds_until_it_expires() {
        let store = MemoryStore::new(10_000);
        assert_eq!(store.claim("a", b"1", MINUTE).await.unwrap(), None);
        assert_eq!(store.claim("a", b"2", MINUTE).await.unwrap().as_deref(), Some(&b"1"[..]));
        store.settle("a", b"done", 2 * MINUTE).await.unwrap();
        store.settle("b", b"nothing", MINUTE).await.unwrap();
        assert_eq!(
            store.claim("b", b"3", MINUTE).await.unwrap(),
            None,
            "`settle` does not create entries"
        );
        tokio::time::advance(Duration::from_millis(119_998)).await;
        assert_eq!(store.claim("a", b"4", MINUTE).await.unwrap().as_deref(), Some(&b"done"[..]));
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(store.claim("a", b"5", MINUTE).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn full_store_refuses_new_entries_and_evicts_none_until_they_expire() {
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
        assert_eq!((state.bytes, state.entries.len(), state.expiries.len()), (0, 0, 0));
    }
}
