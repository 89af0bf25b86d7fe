//! AES-256-GCM with a key for one message, by one of two libraries.

use crate::xaes::{AeadError, TAG_LEN};

#[cfg(feature = "aws-lc")]
pub(crate) use self::aws_lc::{decrypt, encrypt};
#[cfg(not(feature = "aws-lc"))]
pub(crate) use self::rust_crypto::{decrypt, encrypt};

/// Pure Rust.
#[cfg(not(feature = "aws-lc"))]
mod rust_crypto {
    use aes::Aes256Enc;
    use aes_gcm::AesGcm;
    use aes_gcm::aead::{AeadInOut, KeyInit, consts::U12};

    use super::{AeadError, TAG_LEN};

    /// GCM only ever encrypts blocks, and making the keys for decrypting them takes as long again.
    type Gcm = AesGcm<Aes256Enc, U12>;

    pub(crate) fn encrypt(
        key: &[u8; 32],
        nonce: [u8; 12],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        let tag = Gcm::new(key.into()).encrypt_inout_detached(&nonce.into(), aad, text.into());
        tag.map(Into::into).map_err(|_| AeadError)
    }

    /// Decrypts `ciphertext ‖ tag`.
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

/// AWS-LC, in C and assembly.
#[cfg(feature = "aws-lc")]
mod aws_lc {
    use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

    use super::{AeadError, TAG_LEN};

    fn gcm(key: &[u8; 32]) -> Result<LessSafeKey, AeadError> {
        UnboundKey::new(&AES_256_GCM, key).map(LessSafeKey::new).map_err(|_| AeadError)
    }

    pub(crate) fn encrypt(
        key: &[u8; 32],
        nonce: [u8; 12],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = gcm(key)?.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
        tag.map_err(|_| AeadError)?.as_ref().try_into().map_err(|_| AeadError)
    }

    /// Decrypts `ciphertext ‖ tag`.
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
