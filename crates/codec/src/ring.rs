//! Key rings: one key seals, several open.

use crate::error::OpenError;
use crate::key::{ID_LEN, Key, Secret};
use crate::seal::{Seal, SealError};
use crate::token;
use crate::xaes::NONCE_LEN;

/// At most how many keys a ring holds.
const MAX_KEYS: usize = 16;

/// The keys of a fleet: one seals, all open.
///
/// To rotate without refusing anybody, deploy three times: the new secret as
/// [`staged`](KeyRingBuilder::staged) everywhere, then as [`active`](KeyRingBuilder::active) with the
/// old one [`retiring`](KeyRingBuilder::retiring), and once all old tokens have expired, without the
/// old one. So no replica ever seals with a key that another cannot open.
#[derive(Debug)]
pub struct KeyRing {
    active: Key,
    /// Staged and retiring keys.
    others: Vec<Key>,
    nonces: NonceSource,
}

/// Fills in random bytes.
type NonceSource = fn(&mut [u8; NONCE_LEN]) -> Result<(), SealError>;

/// Builds a [`KeyRing`].
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct KeyRingBuilder {
    audience: String,
    active: Vec<Secret>,
    others: Vec<Secret>,
    nonces: Option<NonceSource>,
}

/// Why there is no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The audience is empty.
    #[error("the audience is empty: name the service, for example by its URL")]
    NoAudience,
    /// Not exactly one active key.
    #[error("a ring has exactly one active key, not {0}")]
    NotOneActive(usize),
    /// A secret is there twice.
    #[error("a secret is in the ring twice")]
    Repeated,
    /// Too many keys.
    #[error("the ring has {0} keys; at most {MAX_KEYS} are allowed")]
    TooMany(usize),
    /// The operating system gave no random numbers, or the feature for them is off and no other source
    /// of nonces was given.
    #[error("there is no source of random numbers")]
    NoRandomness,
}

impl KeyRing {
    /// Starts a ring for `audience`: the service whose tokens these are, the same on every replica
    /// and different from every other service that has the secret. It is part of every key.
    pub fn builder(audience: impl Into<String>) -> KeyRingBuilder {
        KeyRingBuilder {
            audience: audience.into(),
            active: Vec::new(),
            others: Vec::new(),
            nonces: OS_NONCES,
        }
    }

    /// A ring with a fresh key that nobody else has: its tokens end with this process, and no other
    /// replica can open them.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random numbers.
    #[cfg(feature = "os-rng")]
    pub fn ephemeral() -> Result<Self, RingError> {
        let secret = Secret::generate().map_err(|_| RingError::NoRandomness)?;
        Self::builder("ephemeral").active(secret).build()
    }

    /// Seals with a nonce of the caller's. The same nonce twice gives both plaintexts away: this is
    /// for test vectors and for callers with a random source of their own.
    ///
    /// # Errors
    ///
    /// If the token would be longer than [`crate::MAX_LEN`].
    pub fn seal_with_nonce(
        &self,
        plaintext: &[u8],
        nonce: &[u8; NONCE_LEN],
    ) -> Result<String, SealError> {
        token::seal(&self.active, plaintext.to_vec(), nonce)
    }

    pub(crate) fn active_id(&self) -> &[u8; ID_LEN] {
        &self.active.id
    }

    /// Whether there is a key with this id.
    pub(crate) fn has(&self, id: &[u8; ID_LEN]) -> bool {
        self.key(id).is_some()
    }

    fn key(&self, id: &[u8; ID_LEN]) -> Option<&Key> {
        std::iter::once(&self.active).chain(&self.others).find(|key| key.id == *id)
    }
}

/// The operating system's random numbers, where the feature for them is on.
#[cfg(feature = "os-rng")]
const OS_NONCES: Option<NonceSource> =
    Some(|nonce| getrandom::fill(nonce).map_err(|_| SealError::NoRandomness));
#[cfg(not(feature = "os-rng"))]
const OS_NONCES: Option<NonceSource> = None;

impl Seal for KeyRing {
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        (self.nonces)(&mut nonce)?;
        token::seal(&self.active, plaintext, &nonce)
    }

    fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
        token::open(token, |id| self.key(id))
    }
}

impl KeyRingBuilder {
    /// The secret that seals, and opens.
    pub fn active(mut self, secret: Secret) -> Self {
        self.active.push(secret);
        self
    }

    /// A secret that only opens: the next active one, on its way to all replicas.
    pub fn staged(mut self, secret: Secret) -> Self {
        self.others.push(secret);
        self
    }

    /// A secret that only opens: the last active one, until its tokens have expired.
    pub fn retiring(mut self, secret: Secret) -> Self {
        self.others.push(secret);
        self
    }

    /// Where nonces come from. Default: the operating system, with the feature `os-rng`; without it, a
    /// source has to be given. It must be fit for cryptography: a nonce that comes twice gives both
    /// plaintexts away.
    pub fn nonces(mut self, source: fn(&mut [u8; NONCE_LEN]) -> Result<(), SealError>) -> Self {
        self.nonces = Some(source);
        self
    }

    /// Derives the keys.
    ///
    /// # Errors
    ///
    /// If the audience is empty, there is not exactly one active secret, a secret is repeated, or
    /// there are more than 16, or there is no source of nonces.
    pub fn build(self) -> Result<KeyRing, RingError> {
        if self.audience.is_empty() {
            return Err(RingError::NoAudience);
        }
        let count = self.active.len() + self.others.len();
        if count > MAX_KEYS {
            return Err(RingError::TooMany(count));
        }
        let nonces = self.nonces.ok_or(RingError::NoRandomness)?;
        let [active] = self.active.as_slice() else {
            return Err(RingError::NotOneActive(self.active.len()));
        };
        let active = Key::derive(active, &self.audience);
        let others: Vec<_> = self.others.iter().map(|s| Key::derive(s, &self.audience)).collect();
        let mut ids: Vec<_> = others.iter().chain([&active]).map(|key| key.id).collect();
        ids.sort_unstable();
        ids.dedup();
        // Equal ids mean equal secrets, or a collision that would make a key ambiguous.
        if ids.len() < count {
            Err(RingError::Repeated)
        } else {
            Ok(KeyRing { active, others, nonces })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(first: u8) -> Secret {
        Secret::from_bytes(&(first..first + 32).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn wrong_rings_are_refused() {
        let build = |b: KeyRingBuilder| b.build().err();
        assert_eq!(build(KeyRing::builder("").active(secret(0))), Some(RingError::NoAudience));
        assert_eq!(build(KeyRing::builder("a")), Some(RingError::NotOneActive(0)));
        assert_eq!(
            build(KeyRing::builder("a").active(secret(0)).active(secret(1))),
            Some(RingError::NotOneActive(2))
        );
        assert_eq!(
            build(KeyRing::builder("a").active(secret(0)).retiring(secret(0))),
            Some(RingError::Repeated)
        );
        let many =
            (0..20).fold(KeyRing::builder("a").active(secret(100)), |b, n| b.staged(secret(n)));
        assert_eq!(build(many), Some(RingError::TooMany(21)));
        let most =
            (0..15).fold(KeyRing::builder("a").active(secret(100)), |b, n| b.staged(secret(n)));
        assert_eq!(build(most), None);
    }

    #[test]
    fn every_step_of_a_rotation_opens_what_the_steps_beside_it_sealed() {
        let ring = |b: KeyRingBuilder| b.build().unwrap();
        let steps = [
            ring(KeyRing::builder("a").active(secret(0))),
            ring(KeyRing::builder("a").active(secret(0)).staged(secret(1))),
            ring(KeyRing::builder("a").active(secret(1)).retiring(secret(0))),
            ring(KeyRing::builder("a").active(secret(1))),
        ];
        for pair in steps.windows(2) {
            for (sealer, opener) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                assert_eq!(opener.open(&sealer.seal(b"x".to_vec()).unwrap()).unwrap(), b"x");
            }
        }
        let gone = steps[3].open(&steps[0].seal(b"x".to_vec()).unwrap());
        assert_eq!(gone, Err(OpenError::UnknownKey));
    }

    #[test]
    fn another_audience_is_an_unknown_key() {
        let a = KeyRing::builder("a").active(secret(0)).build().unwrap();
        let b = KeyRing::builder("b").active(secret(0)).build().unwrap();
        assert_eq!(b.open(&a.seal(b"x".to_vec()).unwrap()), Err(OpenError::UnknownKey));
    }
}
