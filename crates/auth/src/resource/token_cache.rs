//! A bounded cache of verified tokens.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem;
use std::sync::{Mutex, PoisonError};

use siphasher::sip128::{Hash128, SipHasher24};

/// The random key of the digests of a process. It is not kept elsewhere, and digests are not sent.
pub(super) struct DigestKey(SipHasher24);

/// The SipHash-2-4-128 of a token. The token itself is not kept.
///
/// Equal digests stand for equal tokens: without the key, the best attack is to guess, and each
/// guess is a request that hits one of at most 10,000 entries with a probability of 2^-114. The
/// comparison takes constant time. See `docs/adr/0020-keyed-digests-of-tokens.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenDigest(Hash128);

impl DigestKey {
    /// Creates a random key.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 16];
        getrandom::fill(&mut key)?;
        Ok(Self(SipHasher24::new_with_key(&key)))
    }

    pub(super) fn digest(&self, token: &[u8]) -> TokenDigest {
        TokenDigest(self.0.hash(token))
    }
}

impl Hash for TokenDigest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.h1);
    }
}

/// Places digests by their own bits, which are random for those without the key.
#[derive(Default)]
struct OwnBits(u64);

impl Hasher for OwnBits {
    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Map<V> = HashMap<TokenDigest, Entry<V>, BuildHasherDefault<OwnBits>>;

/// The number of entries of a cache.
pub(super) const CAPACITY: usize = 10_000;

/// A cache in two generations: when the young one is full, it becomes the old one, and the old one
/// is dropped. So its size is bounded without a scan, and entries in use stay.
pub(super) struct TokenCache<V>(Mutex<Generations<V>>);

struct Generations<V> {
    capacity: usize,
    young: Map<V>,
    old: Map<V>,
}

struct Entry<V> {
    value: V,
    from: u64,
    until: u64,
}

impl<V: Clone> TokenCache<V> {
    /// Creates a cache of at most `capacity` entries.
    pub(super) fn new(capacity: usize) -> Self {
        let (young, old) = (Map::default(), Map::default());
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
        DigestKey(SipHasher24::new_with_key(&[7; 16])).digest(number.to_string().as_bytes())
    }

    /// The first vectors of the reference implementation of SipHash with 128 bits.
    #[test]
    fn digest_is_siphash_2_4_128() {
        let key =
            DigestKey(SipHasher24::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908));
        let digest = |text: &[u8]| u128::from(key.digest(text).0).to_le_bytes();
        assert_eq!(digest(b""), 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes());
        assert_eq!(digest(&[0]), 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes());
    }

    #[test]
    fn digests_depend_on_a_random_key_and_on_every_byte() {
        let [key, other] = [DigestKey::random().unwrap(), DigestKey::random().unwrap()];
        assert!(key.digest(b"token") == key.digest(b"token"));
        assert!(key.digest(b"token") != other.digest(b"token"));
        let token = [b'a'; 500];
        for i in 0..token.len() {
            let mut changed = token;
            changed[i] = b'b';
            assert!(key.digest(&token) != key.digest(&changed), "byte {i}");
        }
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
