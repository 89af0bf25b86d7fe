//! Operator secrets and the keys derived from them.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::wipe::wipe_stack;
use crate::xaes::Xaes256Gcm;

/// The length of a key id in bytes.
pub(crate) const ID_LEN: usize = 16;

/// The salt of the derivation. It separates these keys from other keys that an operator derives
/// from the same secret.
const SALT: &[u8] = b"mrtr sealed state v1";

/// The shortest secret in bytes: the security level of AES-256.
const MIN_LEN: usize = 32;

/// Minimum number of distinct bytes in a secret. 32 random bytes have fewer than 8 distinct values
/// with a probability below 2⁻¹²⁰, and typed placeholders have fewer.
const MIN_DISTINCT: usize = 8;

/// A secret of the operator, from which a [`KeyRing`](crate::KeyRing) derives its keys.
///
/// It has at least 32 bytes from a random source. `mrtr keygen` and [`Secret::generate`] make new
/// ones. The bytes are wiped from memory on drop, and [`Debug`](std::fmt::Debug) does not print
/// them.
///
/// ```
/// use mrtr_codec::{Secret, SecretError};
///
/// let secret = Secret::generate()?;
/// let text = secret.to_base64url(); // for a secret store
/// let same = Secret::from_base64url(&text)?;
/// assert_eq!(*same.to_base64url(), *text);
///
/// assert_eq!(Secret::from_bytes(b"hunter2").unwrap_err(), SecretError::TooShort(7));
/// # Ok::<(), SecretError>(())
/// ```
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// The cause of a rejected [`Secret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The secret has fewer than 32 bytes. The field is its length.
    #[error("the secret has {0} bytes, but at least {MIN_LEN} random bytes are required")]
    TooShort(usize),
    /// The secret has fewer than 8 distinct bytes, so it is not random. The field is their number.
    #[error("the secret is not random: it has only {0} distinct bytes")]
    NotRandom(usize),
    /// The text is not base64url without padding.
    #[error("the secret is not base64url without padding")]
    NotBase64Url,
    /// The operating system's random number generator failed.
    #[error("the random number generator failed")]
    RandomSourceFailed,
}

impl Secret {
    /// Creates a secret from random bytes.
    ///
    /// # Errors
    ///
    /// [`SecretError::TooShort`] for fewer than 32 bytes, and [`SecretError::NotRandom`] for fewer
    /// than 8 distinct bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < MIN_LEN {
            return Err(SecretError::TooShort(bytes.len()));
        }
        let mut seen = [false; 256];
        for byte in bytes {
            if let Some(slot) = seen.get_mut(usize::from(*byte)) {
                *slot = true;
            }
        }
        let distinct = seen.into_iter().filter(|seen| *seen).count();
        if distinct < MIN_DISTINCT {
            return Err(SecretError::NotRandom(distinct));
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// Creates a secret from base64url without padding, as written by [`Secret::to_base64url`].
    ///
    /// White space around the text, such as the line break at the end of a file, is ignored.
    ///
    /// # Errors
    ///
    /// [`SecretError::NotBase64Url`] for other text, and the errors of [`Secret::from_bytes`].
    pub fn from_base64url(text: &str) -> Result<Self, SecretError> {
        let bytes = Base64UrlUnpadded::decode_vec(text.trim()).map(Zeroizing::new);
        Self::from_bytes(&bytes.map_err(|_| SecretError::NotBase64Url)?)
    }

    /// Generates a secret of 32 bytes with the operating system's random number generator.
    ///
    /// # Errors
    ///
    /// [`SecretError::RandomSourceFailed`] if the generator fails.
    #[cfg(feature = "os-rng")]
    pub fn generate() -> Result<Self, SecretError> {
        let mut bytes = Zeroizing::new(vec![0; MIN_LEN]);
        getrandom::fill(&mut bytes).map_err(|_| SecretError::RandomSourceFailed)?;
        Ok(Self(bytes))
    }

    /// Returns the secret as base64url without padding, to be kept in a secret store.
    pub fn to_base64url(&self) -> Zeroizing<String> {
        Zeroizing::new(Base64UrlUnpadded::encode_string(&self.0))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key of a ring and the id that names it in tokens.
pub(crate) struct Key {
    pub(crate) id: [u8; ID_LEN],
    /// Boxed, because moving a key would leave copies of it in memory.
    pub(crate) cipher: Box<Xaes256Gcm>,
}

impl Key {
    /// Derives the key of a secret and an audience.
    ///
    /// ```text
    /// PRK = HKDF-Extract(SALT, secret)
    /// key = HKDF-Expand(PRK, "key" ‖ 0 ‖ audience, 32)
    /// id  = HKDF-Expand(PRK, "id"  ‖ 0 ‖ audience, 16)
    /// ```
    ///
    /// The labels contain no zero byte, so no two pairs of label and audience have the same `info`.
    pub(crate) fn derive(secret: &Secret, audience: &str) -> Self {
        let key = Self::derive_frames(secret, audience);
        wipe_stack();
        key
    }

    /// Derives in frames of its own, below the caller's, which `wipe_stack` then overwrites.
    #[inline(never)]
    fn derive_frames(secret: &Secret, audience: &str) -> Self {
        let hkdf = Hkdf::<Sha256>::new(Some(SALT), &secret.0);
        let expand = |label: &[u8], out: &mut [u8]| {
            let done = hkdf.expand_multi_info(&[label, &[0], audience.as_bytes()], out);
            debug_assert!(done.is_ok(), "HKDF-SHA256 yields up to 8160 bytes");
        };
        let mut key = Zeroizing::new([0; 32]);
        let mut id = [0; ID_LEN];
        expand(b"key", &mut *key);
        expand(b"id", &mut id);
        Self { id, cipher: Box::new(Xaes256Gcm::new(&key)) }
    }
}

impl std::fmt::Debug for Key {
    /// Prints the start of the id, which is public: every token contains it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(")?;
        self.id.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_non_random_secrets_are_rejected() {
        let distinct: Vec<u8> = (0..31).collect();
        assert_eq!(Secret::from_bytes(&distinct).unwrap_err(), SecretError::TooShort(31));
        assert_eq!(Secret::from_bytes(&[b'a'; 64]).unwrap_err(), SecretError::NotRandom(1));
        assert_eq!(Secret::from_base64url("a b").unwrap_err(), SecretError::NotBase64Url);
        assert!(Secret::from_bytes(b"0123456789abcdef0123456789abcdef").is_ok());
        assert_eq!(
            Secret::from_bytes(&b"0123456".repeat(5)).unwrap_err(),
            SecretError::NotRandom(7)
        );
        assert!(Secret::from_bytes(&b"01234567".repeat(4)).is_ok());
    }

    #[test]
    fn generated_secrets_differ_and_round_trip_through_base64url() {
        let (a, b) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(*a.0, *b.0);
        assert_eq!(*Secret::from_base64url(&a.to_base64url()).unwrap().0, *a.0);
    }

    #[test]
    fn keys_and_ids_depend_on_the_audience() {
        let secret = Secret::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap();
        let (a, b) = (Key::derive(&secret, "a"), Key::derive(&secret, "b"));
        assert_ne!(a.id, b.id);
        assert_eq!(a.id, Key::derive(&secret, "a").id);
        let mut text = *b"text";
        let tag = a.cipher.encrypt(&[0; 24], b"", &mut text).unwrap();
        let mut sealed = [&text[..], &tag].concat();
        assert!(b.cipher.decrypt(&[0; 24], b"", &mut sealed.clone()).is_err());
        assert!(a.cipher.decrypt(&[0; 24], b"", &mut sealed).is_ok());
    }

    #[test]
    fn debug_output_contains_no_secret() {
        let secret = Secret::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let key = Key::derive(&secret, "a");
        let id = u32::from_be_bytes(*key.id.first_chunk().unwrap());
        assert_eq!(format!("{key:?}"), format!("Key({id:08x}…)"));
        assert_eq!(format!("{:?}", key.cipher), "Xaes256Gcm(…)");
    }
}
