//! Key rings: one active key that seals, and others that only open.

use crate::error::{OpenError, SealError};
use crate::key::{ID_LEN, Key, Secret};
use crate::seal::Seal;
use crate::token;
use crate::xaes::NONCE_LEN;

/// Maximum number of keys in a ring. A rotation needs two; overlapping rotations need more.
const MAX_KEYS: usize = 16;

/// The keys of a service: one seals tokens, all open them.
///
/// All replicas of a service have the same ring. To rotate the key without rejecting any token,
/// deploy three times, each time on all replicas:
///
/// 1. the new secret as [`staged`](KeyRingBuilder::staged);
/// 2. the new secret as [`active`](KeyRingBuilder::active) and the old one as
///    [`retiring`](KeyRingBuilder::retiring);
/// 3. once the last token of the old secret has expired, the new secret alone.
///
/// So no replica seals with a key that another replica does not have.
/// [`SharedKeyRing`](crate::SharedKeyRing) does this without a restart.
///
/// ```
/// use mrtr_codec::{KeyRing, Secret, Seal as _};
///
/// let (old, new) = (Secret::generate()?, Secret::generate()?);
/// let before = KeyRing::builder("https://book.example/mcp").active(old.clone()).build()?;
/// let after = KeyRing::builder("https://book.example/mcp").active(new).retiring(old).build()?;
///
/// let token = before.seal(b"table 7".to_vec())?;
/// assert_eq!(after.open(&token)?, b"table 7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Keys from configuration: [`KeyRing::from_env`], [`KeyRing::from_file`], [`KeyRing::from_text`],
/// and [`KeyRing::from_wrapped`] for keys wrapped by a KMS.
#[derive(Debug)]
pub struct KeyRing {
    active: Key,
    /// Staged and retiring keys.
    others: Vec<Key>,
    nonce_source: NonceSource,
}

/// Fills a nonce with random bytes.
type NonceSource = fn(&mut [u8; NONCE_LEN]) -> Result<(), SealError>;

/// Builds a [`KeyRing`].
///
/// ```
/// use mrtr_codec::{KeyRing, Secret};
///
/// let ring = KeyRing::builder("https://book.example/mcp")
///     .active(Secret::generate()?)
///     .staged(Secret::generate()?)
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct KeyRingBuilder {
    audience: String,
    active: Vec<Secret>,
    others: Vec<Secret>,
    nonce_source: Option<NonceSource>,
}

/// The cause of a rejected [`KeyRing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The audience is empty.
    #[error("the audience is empty: name the service, for example by its URL")]
    EmptyAudience,
    /// There is no active key, or more than one. The field is their number.
    #[error("a key ring has exactly one active key, not {0}")]
    NotOneActive(usize),
    /// A secret occurs twice.
    #[error("a secret occurs twice in the key ring")]
    DuplicateSecret,
    /// There are more than 16 keys. The field is their number.
    #[error("the key ring has {0} keys, but at most {MAX_KEYS} are allowed")]
    TooManyKeys(usize),
    /// The operating system's random number generator failed.
    #[error("the random number generator failed")]
    RandomSourceFailed,
    /// The feature `os-rng` is off, and no nonce source was set.
    #[error("the key ring has no nonce source: enable the feature `os-rng` or set `nonce_source`")]
    NoNonceSource,
}

impl KeyRing {
    /// Creates a builder of a key ring for `audience`.
    ///
    /// The audience names the service, for example by its URL. It is the same on all replicas, and
    /// different for each service that has the same secret. It is part of the key derivation, so
    /// services cannot open each other's tokens.
    pub fn builder(audience: impl Into<String>) -> KeyRingBuilder {
        KeyRingBuilder {
            audience: audience.into(),
            active: Vec::new(),
            others: Vec::new(),
            nonce_source: OS_NONCES,
        }
    }

    /// Creates a key ring with a new random key.
    ///
    /// Its tokens open in this process only, and only until it exits: this is for tests and for
    /// services with one replica.
    ///
    /// # Errors
    ///
    /// [`RingError::RandomSourceFailed`] if the operating system's random number generator fails.
    #[cfg(feature = "os-rng")]
    pub fn ephemeral() -> Result<Self, RingError> {
        let secret = Secret::generate().map_err(|_| RingError::RandomSourceFailed)?;
        Self::builder("ephemeral").active(secret).build()
    }

    /// Seals with the active key and `nonce`.
    pub(crate) fn seal_with_nonce(
        &self,
        plaintext: Vec<u8>,
        nonce: &[u8; NONCE_LEN],
    ) -> Result<String, SealError> {
        token::seal(&self.active, plaintext, nonce)
    }

    /// Returns the id of the active key.
    pub(crate) fn active_id(&self) -> &[u8; ID_LEN] {
        &self.active.id
    }

    /// Returns `true` if the ring has a key with this id.
    pub(crate) fn contains(&self, id: &[u8; ID_LEN]) -> bool {
        self.key(id).is_some()
    }

    fn key(&self, id: &[u8; ID_LEN]) -> Option<&Key> {
        std::iter::once(&self.active).chain(&self.others).find(|key| key.id == *id)
    }
}

/// The default nonce source: the operating system's random number generator, if enabled.
#[cfg(feature = "os-rng")]
const OS_NONCES: Option<NonceSource> =
    Some(|nonce| getrandom::fill(nonce).map_err(|_| SealError::RandomSourceFailed));
#[cfg(not(feature = "os-rng"))]
const OS_NONCES: Option<NonceSource> = None;

impl Seal for KeyRing {
    fn seal(&self, plaintext: Vec<u8>) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        (self.nonce_source)(&mut nonce)?;
        self.seal_with_nonce(plaintext, &nonce)
    }

    fn open(&self, token: &str) -> Result<Vec<u8>, OpenError> {
        token::open(token, |id| self.key(id))
    }
}

impl KeyRingBuilder {
    /// Sets the secret that seals and opens tokens. A ring has exactly one.
    pub fn active(mut self, secret: Secret) -> Self {
        self.active.push(secret);
        self
    }

    /// Adds the next active secret, which only opens tokens until all replicas have it.
    pub fn staged(mut self, secret: Secret) -> Self {
        self.others.push(secret);
        self
    }

    /// Adds the previous active secret, which only opens tokens until they have expired.
    pub fn retiring(mut self, secret: Secret) -> Self {
        self.others.push(secret);
        self
    }

    /// Sets the source of nonces. Default: the operating system's random number generator; required
    /// without the feature `os-rng`.
    ///
    /// The source must be a cryptographically secure random number generator. If a nonce repeats,
    /// both plaintexts are disclosed.
    pub fn nonce_source(
        mut self,
        source: fn(&mut [u8; NONCE_LEN]) -> Result<(), SealError>,
    ) -> Self {
        self.nonce_source = Some(source);
        self
    }

    /// Derives the keys and builds the ring.
    ///
    /// # Errors
    ///
    /// [`RingError`] if the audience is empty, if there is not exactly one active secret, if a
    /// secret occurs twice, if there are more than 16 secrets, or if there is no nonce source.
    pub fn build(self) -> Result<KeyRing, RingError> {
        if self.audience.is_empty() {
            return Err(RingError::EmptyAudience);
        }
        let count = self.active.len() + self.others.len();
        if count > MAX_KEYS {
            return Err(RingError::TooManyKeys(count));
        }
        let nonce_source = self.nonce_source.ok_or(RingError::NoNonceSource)?;
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
            Err(RingError::DuplicateSecret)
        } else {
            Ok(KeyRing { active, others, nonce_source })
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
    fn invalid_rings_are_rejected() {
        let build = |b: KeyRingBuilder| b.build().err();
        assert_eq!(build(KeyRing::builder("").active(secret(0))), Some(RingError::EmptyAudience));
        assert_eq!(build(KeyRing::builder("a")), Some(RingError::NotOneActive(0)));
        assert_eq!(
            build(KeyRing::builder("a").active(secret(0)).active(secret(1))),
            Some(RingError::NotOneActive(2))
        );
        assert_eq!(
            build(KeyRing::builder("a").active(secret(0)).retiring(secret(0))),
            Some(RingError::DuplicateSecret)
        );
        let many =
            (0..20).fold(KeyRing::builder("a").active(secret(100)), |b, n| b.staged(secret(n)));
        assert_eq!(build(many), Some(RingError::TooManyKeys(21)));
        let most =
            (0..15).fold(KeyRing::builder("a").active(secret(100)), |b, n| b.staged(secret(n)));
        assert_eq!(build(most), None);
    }

    #[test]
    fn each_rotation_step_opens_tokens_of_the_adjacent_steps() {
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
    fn token_of_another_audience_has_an_unknown_key() {
        let a = KeyRing::builder("a").active(secret(0)).build().unwrap();
        let b = KeyRing::builder("b").active(secret(0)).build().unwrap();
        assert_eq!(b.open(&a.seal(b"x".to_vec()).unwrap()), Err(OpenError::UnknownKey));
    }
}
