//! Operator secrets, and the keys that come out of them.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::xaes::{Xaes256Gcm, wipe_stack};

/// The length of a key id in bytes.
pub(crate) const ID_LEN: usize = 16;

/// The salt of the derivation. It keeps our keys apart from whatever else an operator derives from
/// the same secret.
const SALT: &[u8] = b"mrtr sealed state v1";

/// A secret of the operator: 32 bytes or more, from a random source. The keys of a ring are derived
/// from it.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Why bytes make no [`Secret`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// Fewer than 32 bytes.
    #[error("the secret has {0} bytes; it needs at least 32 from a random source")]
    Short(usize),
    /// Hardly any two bytes differ.
    #[error("the secret is not random: it has only {0} different bytes")]
    Weak(usize),
    /// Not base64url without padding.
    #[error("the secret is not base64url without padding")]
    NotBase64,
    /// The operating system gave no random numbers.
    #[error("the operating system gave no random numbers")]
    NoRandomness,
}

impl Secret {
    /// Takes a secret.
    ///
    /// # Errors
    ///
    /// If it is shorter than 32 bytes, or has fewer than 8 different bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretError> {
        if bytes.len() < 32 {
            return Err(SecretError::Short(bytes.len()));
        }
        let mut seen = [false; 256];
        for byte in bytes {
            if let Some(slot) = seen.get_mut(usize::from(*byte)) {
                *slot = true;
            }
        }
        let different = seen.into_iter().filter(|s| *s).count();
        if different < 8 {
            return Err(SecretError::Weak(different));
        }
        Ok(Self(Zeroizing::new(bytes.to_vec())))
    }

    /// Takes a secret in base64url without padding, the form in which [`Secret::to_base64url`] gives it.
    /// White space around it, such as the line break at the end of a file, is passed over.
    ///
    /// # Errors
    ///
    /// As [`Secret::from_bytes`], or if `text` is in another form.
    pub fn from_base64url(text: &str) -> Result<Self, SecretError> {
        let bytes = Base64UrlUnpadded::decode_vec(text.trim()).map(Zeroizing::new);
        Self::from_bytes(&bytes.map_err(|_| SecretError::NotBase64)?)
    }

    /// A new secret from the operating system's random numbers.
    ///
    /// # Errors
    ///
    /// If there are none.
    #[cfg(feature = "os-rng")]
    pub fn generate() -> Result<Self, SecretError> {
        let mut bytes = Zeroizing::new(vec![0; 32]);
        getrandom::fill(&mut bytes).map_err(|_| SecretError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// The secret itself, to be stored where secrets are stored.
    pub fn to_base64url(&self) -> Zeroizing<String> {
        Zeroizing::new(Base64UrlUnpadded::encode_string(&self.0))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key of a ring, with the id that names it in tokens.
pub(crate) struct Key {
    pub(crate) id: [u8; ID_LEN],
    /// In a box, so that moving the key leaves no copy behind.
    pub(crate) cipher: Box<Xaes256Gcm>,
}

impl Key {
    /// `PRK = HKDF-Extract(SALT, secret)`;
    /// `key = HKDF-Expand(PRK, "key" ‖ 0 ‖ audience, 32)`;
    /// `id = HKDF-Expand(PRK, "id" ‖ 0 ‖ audience, 16)`.
    ///
    /// The labels contain no zero byte, so no label with its audience is another's.
    pub(crate) fn derive(secret: &Secret, audience: &str) -> Self {
        let key = Self::derive_below(secret, audience);
        wipe_stack();
        key
    }

    #[inline(never)]
    fn derive_below(secret: &Secret, audience: &str) -> Self {
        let hkdf = Hkdf::<Sha256>::new(Some(SALT), &secret.0);
        let expand = |label: &[u8], out: &mut [u8]| {
            let done = hkdf.expand_multi_info(&[label, &[0], audience.as_bytes()], out);
            debug_assert!(done.is_ok(), "HKDF-SHA256 gives up to 8160 bytes");
        };
        let mut key = Zeroizing::new([0; 32]);
        let mut id = [0; ID_LEN];
        expand(b"key", &mut *key);
        expand(b"id", &mut id);
        Self { id, cipher: Box::new(Xaes256Gcm::new(&key)) }
    }
}

impl std::fmt::Debug for Key {
    /// The id is no secret: it stands in every token.
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
    fn weak_secrets_are_refused() {
        let distinct: Vec<u8> = (0..31).collect();
        assert_eq!(Secret::from_bytes(&distinct).unwrap_err(), SecretError::Short(31));
        assert_eq!(Secret::from_bytes(&[b'a'; 64]).unwrap_err(), SecretError::Weak(1));
        assert_eq!(Secret::from_base64url("a b").unwrap_err(), SecretError::NotBase64);
        assert!(Secret::from_bytes(b"0123456789abcdef0123456789abcdef").is_ok());
        assert_eq!(Secret::from_bytes(&b"0123456".repeat(5)).unwrap_err(), SecretError::Weak(7));
        assert!(Secret::from_bytes(&b"01234567".repeat(4)).is_ok());
    }

    #[test]
    fn generated_secrets_differ_and_survive_their_text_form() {
        let (a, b) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(*a.0, *b.0);
        assert_eq!(*Secret::from_base64url(&a.to_base64url()).unwrap().0, *a.0);
    }

    #[test]
    fn audiences_have_different_keys_and_ids() {
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
    fn nothing_secret_is_printed() {
        let secret = Secret::from_bytes(b"0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let key = Key::derive(&secret, "a");
        let id = u32::from_be_bytes(*key.id.first_chunk().unwrap());
        assert_eq!(format!("{key:?}"), format!("Key({id:08x}…)"));
        assert_eq!(format!("{:?}", key.cipher), "Xaes256Gcm(…)");
    }
}
