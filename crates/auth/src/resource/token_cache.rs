//! A bounded cache of verified tokens.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest;

/// The SHA-256 of a token. The token itself is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(super) fn of(token: &str) -> Self {
        let mut bytes = [0; 32];
        let hash = digest::digest(&digest::SHA256, token.as_bytes());
        bytes.copy_from_slice(hash.as_ref());
        Self(bytes)
    }
}

/// The number of entries of a cache.
pub(super) const CAPACITY: usize = 10_000;

/// A cache in two generations: when the young one is full, it becomes the old one, and the old one
/// is dropped. So its size is bounded without a scan, and entries in use stay.
pub(super) struct TokenCache<V>(Mutex<Generations<V>>);

struct Generations<V> {
    capacity: usize,
    young: HashMap<TokenDigest, Entry<V>>,
    old: HashMap<TokenDigest, Entry<V>>,
}

struct Entry<V> {
    value: V,
    from: u64,
    until: u64,
}

impl<V: Clone> TokenCache<V> {
    /// Creates a cache of at most `capacity` entries.
    pub(super) fn new(capacity: usize) -> Self {
        let (young, old) = (HashMap::new(), HashMap::new());
        Self(Mutex::new(Generations { capacity: capacity / 2, young, old }))
    }

    /// Returns the value of a token that is valid at `now`. An entry of the future is not valid:
    /// the clock was set back.
    pub(super) fn get(&self, token: &TokenDigest, now: u64) -> Option<V> {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = generations.young.get(token) {
            return entry.value_at(now);
        }
        let entry = generations.old.remove(token)?;
        let value = entry.value_at(now)?;
        generations.insert(*token, entry);
        Some(value)
    }

    /// Inserts a value from `now` to `until`.
    pub(super) fn insert(&self, token: TokenDigest, value: V, now: u64, until: u64) {
        if until > now {
            let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            generations.insert(token, Entry { value, from: now, until });
        }
    }
}

impl<V: Clone> Entry<V> {
    fn value_at(&self, now: u64) -> Option<V> {
        (self.from..self.until).contains(&now).then(|| self.value.clone())
    }
}

impl<V> Generations<V> {
    fn insert(&mut self, token: TokenDigest, entry: Entry<V>) {
        if self.young.len() >= self.capacity && !self.young.contains_key(&token) {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(token, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> TokenDigest {
        TokenDigest::of(&number.to_string())
    }

    #[test]
    fn entries_are_valid_in_their_time_only() {
        let cache = TokenCache::new(10);
        cache.insert(digest(1), 'a', 100, 160);
        assert_eq!(cache.get(&digest(1), 99), None);
        assert_eq!(cache.get(&digest(1), 100), Some('a'));
        assert_eq!(cache.get(&digest(1), 159), Some('a'));
        assert_eq!(cache.get(&digest(1), 160), None);
        assert_eq!(cache.get(&digest(2), 100), None);
        cache.insert(digest(3), 'b', 100, 100);
        assert_eq!(cache.get(&digest(3), 100), None);
    }

    #[test]
    fn size_is_bounded_and_entries_in_use_stay() {
        let cache = TokenCache::new(10);
        for number in 0..1000 {
            cache.insert(digest(number), number, 0, 100);
            assert_eq!(cache.get(&digest(0), 1), Some(0), "{number}");
            let generations = cache.0.lock().unwrap();
            assert!(generations.young.len() + generations.old.len() <= 10);
        }
        assert_eq!(cache.get(&digest(1), 1), None);
        assert_eq!(cache.get(&digest(999), 1), Some(999));
    }
}
