//! XAES-256-GCM (C2SP): AES-256-GCM with a 192-bit nonce.
//!
//! Random 96-bit nonces under one key are safe for about 2³² messages only, and a large fleet seals
//! that many in a day. XAES-256-GCM derives a key for each message, so messages need not be
//! counted:
//!
//! ```text
//! L  = AES-256(K, 0¹²⁸)
//! K1 = L · x in GF(2¹²⁸)                (shift left; if a 1 was shifted out, last byte ⊕ 0x87)
//! Kx = AES-256(K, (00 01 'X' 00 ‖ N[0..12]) ⊕ K1)
//!    ‖ AES-256(K, (00 02 'X' 00 ‖ N[0..12]) ⊕ K1)
//! C  = AES-256-GCM(Kx, nonce = N[12..24], aad, plaintext)
//! ```
//!
//! The first half of the nonce selects the key. Two messages collide only if all 192 bits are
//! equal.

use aes::Aes256Enc;
use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use zeroize::{Zeroize as _, Zeroizing};

use crate::gcm::{self, AeadError, TAG_LEN};
use crate::wipe::wipe_stack;

/// The length of a nonce in bytes.
pub const NONCE_LEN: usize = 24;

/// An expanded XAES-256-GCM key.
pub struct Xaes256Gcm {
    cipher: Aes256Enc,
    k1: Zeroizing<[u8; 16]>,
}

impl Xaes256Gcm {
    /// Expands a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let cipher = Aes256Enc::new(key.into());
        let mut l = Block::<Aes256Enc>::default();
        cipher.encrypt_block(&mut l);
        let doubled = u128::from_be_bytes(l.into());
        // Branch-free, so that timing does not depend on the key: the mask is all ones if the top
        // bit was set.
        let carry = 0u128.wrapping_sub(doubled >> 127);
        let k1 = (doubled << 1) ^ (carry & 0x87);
        Self { cipher, k1: Zeroizing::new(k1.to_be_bytes()) }
    }

    /// Encrypts `buffer` in place and returns the tag.
    ///
    /// # Errors
    ///
    /// [`AeadError`] if `buffer` is longer than AES-GCM allows (64 GiB).
    pub fn encrypt(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        buffer: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        let tag = self.encrypt_frames(nonce, aad, buffer);
        wipe_stack();
        tag
    }

    /// Decrypts `sealed = ciphertext ‖ tag` in place and returns the plaintext, which is its first
    /// part. On failure, `sealed` contains nothing of the plaintext.
    ///
    /// # Errors
    ///
    /// [`AeadError`] if the tag does not match.
    pub fn decrypt<'b>(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        sealed: &'b mut [u8],
    ) -> Result<&'b mut [u8], AeadError> {
        let result = self.decrypt_frames(nonce, aad, sealed);
        wipe_stack();
        result?;
        let (text, _) = sealed.split_last_chunk_mut::<TAG_LEN>().ok_or(AeadError)?;
        Ok(text)
    }

    /// Encrypts in frames of its own, below the caller's, which `wipe_stack` then overwrites.
    #[inline(never)]
    fn encrypt_frames(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        buffer: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        let (key, gcm_nonce) = self.derive(nonce);
        gcm::encrypt(&key, gcm_nonce, aad, buffer)
    }

    /// Decrypts in frames of its own, below the caller's, which `wipe_stack` then overwrites.
    #[inline(never)]
    fn decrypt_frames(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        sealed: &mut [u8],
    ) -> Result<(), AeadError> {
        let (key, gcm_nonce) = self.derive(nonce);
        gcm::decrypt(&key, gcm_nonce, aad, sealed)
    }

    /// Derives the key and the 96-bit nonce for one message.
    fn derive(&self, nonce: &[u8; NONCE_LEN]) -> (Zeroizing<[u8; 32]>, [u8; 12]) {
        let [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, gcm_nonce @ ..] = *nonce;
        let mut blocks = [1, 2].map(|counter| -> Block<Aes256Enc> {
            let block = [0, counter, b'X', 0, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11];
            let xored = u128::from_ne_bytes(block) ^ u128::from_ne_bytes(*self.k1);
            xored.to_ne_bytes().into()
        });
        self.cipher.encrypt_blocks(&mut blocks);
        let mut key = Zeroizing::new([0; 32]);
        for (half, block) in key.chunks_exact_mut(16).zip(&mut blocks) {
            half.copy_from_slice(block);
            block.zeroize();
        }
        (key, gcm_nonce)
    }
}

impl std::fmt::Debug for Xaes256Gcm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Xaes256Gcm(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        use std::fmt::Write as _;
        bytes.iter().fold(String::new(), |mut out, byte| {
            write!(out, "{byte:02x}").unwrap();
            out
        })
    }

    /// The two vectors of the C2SP specification. In one of them, doubling has a carry.
    #[test]
    fn c2sp_vectors() {
        for (key, aad, expected) in [
            (1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (
                3,
                "c2sp.org/XAES-256-GCM",
                "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
            ),
        ] {
            let cipher = Xaes256Gcm::new(&[key; 32]);
            let nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX";
            let mut text = *b"XAES-256-GCM";
            let tag = cipher.encrypt(nonce, aad.as_bytes(), &mut text).unwrap();
            let mut sealed = [&text[..], &tag].concat();
            assert_eq!(hex(&sealed), expected);
            assert_eq!(
                cipher.decrypt(nonce, aad.as_bytes(), &mut sealed).unwrap(),
                b"XAES-256-GCM"
            );
        }
    }

    #[test]
    fn decryption_fails_with_another_nonce_or_aad() {
        let cipher = Xaes256Gcm::new(&[7; 32]);
        let mut text = *b"a text of more than one block";
        let tag = cipher.encrypt(&[0; 24], b"aad", &mut text).unwrap();
        let sealed = [&text[..], &tag].concat();
        for at in [0, 11, 12, 23] {
            let mut nonce = [0; 24];
            nonce[at] = 1;
            assert_eq!(cipher.decrypt(&nonce, b"aad", &mut sealed.clone()), Err(AeadError));
        }
        let mut wrong = sealed.clone();
        assert_eq!(cipher.decrypt(&[0; 24], b"aae", &mut wrong), Err(AeadError));
        assert!(!wrong.windows(4).any(|part| part == b"text"), "plaintext left in the buffer");
        assert_eq!(cipher.decrypt(&[0; 24], b"aad", &mut [0; TAG_LEN - 1]), Err(AeadError));
    }
}
