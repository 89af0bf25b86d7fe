//! AES-256-GCM under a single-use key, with one of two cipher libraries.

#[cfg(feature = "aws-lc")]
pub(crate) use self::aws_lc::{decrypt, encrypt};
#[cfg(not(feature = "aws-lc"))]
pub(crate) use self::rust_crypto::{decrypt, encrypt};

/// The length of an authentication tag in bytes.
pub const TAG_LEN: usize = 16;

/// The plaintext is longer than AES-GCM allows (64 GiB), or the ciphertext is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("AES-GCM failed")]
pub struct AeadError;

/// The implementation in Rust, by RustCrypto.
#[cfg(not(feature = "aws-lc"))]
mod rust_crypto {
    use aes::Aes256Enc;
    use aes_gcm::AesGcm;
    use aes_gcm::aead::{AeadInOut, KeyInit, consts::U12};

    use super::{AeadError, TAG_LEN};

    /// GCM only encrypts blocks. Without the decryption round keys, the key expansion takes half
    /// the time.
    type Gcm = AesGcm<Aes256Enc, U12>;

    /// Encrypts `text` in place and returns the tag.
    pub(crate) fn encrypt(
        key: &[u8; 32],
        nonce: [u8; 12],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        let tag = Gcm::new(key.into()).encrypt_inout_detached(&nonce.into(), aad, text.into());
        tag.map(Into::into).map_err(|_| AeadError)
    }

    /// Decrypts `sealed = ciphertext ‖ tag` in place.
    pub(crate) fn decrypt(
        key: &[u8; 32],
        nonce: [u8; 12],
        aad: &[u8],
        sealed: &mut [u8],
    ) -> Result<(), AeadError> {
        let (text, tag) = sealed.split_last_chunk_mut::<TAG_LEN>().ok_or(AeadError)?;
        let tag = (&*tag).into();
        let gcm = Gcm::new(key.into());
        gcm.decrypt_inout_detached(&nonce.into(), aad, text.into(), tag).map_err(|_| AeadError)
    }
}

/// The implementation in C and assembly, by AWS-LC.
#[cfg(feature = "aws-lc")]
mod aws_lc {
    use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::{AeadError, TAG_LEN};

    /// Expands a key.
    fn gcm(key: &[u8; 32]) -> Result<LessSafeKey, AeadError> {
        UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| AeadError)
    }

    /// Encrypts `text` in place and returns the tag.
    pub(crate) fn encrypt(
        key: &[u8; 32],
        nonce: [u8; 12],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        // The key is derived from a random nonce and used once, so any GCM nonce is unique for it.
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = gcm(key)?.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
        tag.map_err(|_| AeadError)?.as_ref().try_into().map_err(|_| AeadError)
    }

    /// Decrypts `sealed = ciphertext ‖ tag` in place.
    pub(crate) fn decrypt(
        key: &[u8; 32],
        nonce: [u8; 12],
        aad: &[u8],
        sealed: &mut [u8],
    ) -> Result<(), AeadError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        gcm(key)?.open_in_place(nonce, Aad::from(aad), sealed).map(|_| ()).map_err(|_| AeadError)
    }
}
