//! XAES-256-GCM (C2SP): AES-256-GCM with a 192-bit nonce.
//!
//! Random 96-bit nonces under one key stop being safe after about 2³² messages, which a large fleet
//! seals in a day. Here every message has a key of its own, so that nobody has to count:
//!
//! ```text
//! L  = AES-256(K, 0¹²⁸)
//! K1 = L · x in GF(2¹²⁸)                     (shift left; if a bit fell off, last byte ⊕ 0x87)
//! Kx = AES-256(K, (00 01 'X' 00 ‖ N[0..12]) ⊕ K1)
//!    ‖ AES-256(K, (00 02 'X' 00 ‖ N[0..12]) ⊕ K1)
//! C  = AES-256-GCM(Kx, nonce = N[12..24], aad, plaintext)
//! ```
//!
//! The first half of the nonce picks the key, so two messages collide only if all 192 bits do.

use aes::Aes256;
use aes::cipher::{Block, BlockCipherEncrypt, KeyInit};
use aes_gcm::Aes256Gcm;
use aes_gcm::aead::AeadInOut;
use zeroize::Zeroizing;

/// The length of a nonce in bytes.
pub const NONCE_LEN: usize = 24;
/// The length of an authentication tag in bytes.
pub const TAG_LEN: usize = 16;

/// The plaintext is longer than AES-GCM allows (64 GiB), or the ciphertext is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("AES-GCM failed")]
pub struct AeadError;

/// An XAES-256-GCM key, expanded once.
pub struct Xaes256Gcm {
    cipher: Aes256,
    k1: Zeroizing<[u8; 16]>,
}

impl Xaes256Gcm {
    /// Expands a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let cipher = Aes256::new(key.into());
        let mut l = Block::<Aes256>::default();
        cipher.encrypt_block(&mut l);
        let doubled = u128::from_be_bytes(l.into());
        // Branch-free: the mask is all ones if the top bit was set.
        let carry = 0u128.wrapping_sub(doubled >> 127);
        let k1 = (doubled << 1) ^ (carry & 0x87);
        Self { cipher, k1: Zeroizing::new(k1.to_be_bytes()) }
    }

    /// Encrypts `buffer` in place and returns the tag.
    ///
    /// # Errors
    ///
    /// If `buffer` is longer than AES-GCM allows.
    pub fn encrypt(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        buffer: &mut [u8],
    ) -> Result<[u8; TAG_LEN], AeadError> {
        let (gcm, rest) = self.derive(nonce);
        let tag = gcm.encrypt_inout_detached(&rest.into(), aad, buffer.into());
        tag.map(Into::into).map_err(|_| AeadError)
    }

    /// Decrypts `buffer` in place. If this fails, `buffer` holds nothing of the plaintext.
    ///
    /// # Errors
    ///
    /// If the tag does not match.
    pub fn decrypt(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        buffer: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), AeadError> {
        let (gcm, rest) = self.derive(nonce);
        let verdict = gcm.decrypt_inout_detached(&rest.into(), aad, buffer.into(), tag.into());
        verdict.map_err(|_| AeadError)
    }

    /// The cipher and the 96-bit nonce for one message.
    fn derive(&self, nonce: &[u8; NONCE_LEN]) -> (Aes256Gcm, [u8; 12]) {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            a8,
            a9,
            a10,
            a11, //
            rest @ ..,
        ] = *nonce;
        let mut key = Zeroizing::new([0; 32]);
        for (half, counter) in key.chunks_exact_mut(16).zip([1, 2]) {
            let block = [0, counter, b'X', 0, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11];
            let xored = u128::from_ne_bytes(block) ^ u128::from_ne_bytes(*self.k1);
            let mut block: Block<Aes256> = xored.to_ne_bytes().into();
            self.cipher.encrypt_block(&mut block);
            half.copy_from_slice(&block);
        }
        (Aes256Gcm::new((&*key).into()), rest)
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

    /// The two vectors of the C2SP specification, which between them take both branches of the
    /// doubling.
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
            assert_eq!(hex(&text) + &hex(&tag), expected);
            cipher.decrypt(nonce, aad.as_bytes(), &mut text, &tag).unwrap();
            assert_eq!(&text, b"XAES-256-GCM");
        }
    }

    #[test]
    fn both_halves_of_the_nonce_and_the_aad_count() {
        let cipher = Xaes256Gcm::new(&[7; 32]);
        let mut text = *b"text";
        let tag = cipher.encrypt(&[0; 24], b"aad", &mut text).unwrap();
        for at in [0, 11, 12, 23] {
            let mut nonce = [0; 24];
            nonce[at] = 1;
            assert_eq!(cipher.decrypt(&nonce, b"aad", &mut text.clone(), &tag), Err(AeadError));
        }
        assert_eq!(cipher.decrypt(&[0; 24], b"aae", &mut text.clone(), &tag), Err(AeadError));
    }
}
