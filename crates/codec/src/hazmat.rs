//! Primitives whose safety depends on the caller, such as sealing with a chosen nonce.
//!
//! This module is public for the generator of the test vectors, for the tests and for the fuzz
//! targets. It is hidden from the documentation and exempt from semantic versioning. Applications
//! use [`seal`](crate::seal()) and, for another source of random numbers,
//! [`KeyRingBuilder::nonce_source`](crate::KeyRingBuilder::nonce_source).

use crate::error::SealError;
use crate::ring::KeyRing;
use crate::xaes::NONCE_LEN;

pub use crate::gcm::{AeadError, TAG_LEN};
pub use crate::xaes::Xaes256Gcm;

/// Seals `plaintext` with the active key of `ring` and a chosen nonce.
///
/// Two plaintexts sealed with the same key and nonce are no longer confidential, and tokens can be
/// forged.
///
/// # Errors
///
/// [`SealError::TooLong`] if the token would be longer than
/// [`MAX_TOKEN_LEN`](crate::MAX_TOKEN_LEN).
pub fn seal_with_nonce(
    ring: &KeyRing,
    plaintext: &[u8],
    nonce: &[u8; NONCE_LEN],
) -> Result<String, SealError> {
    ring.seal_with_nonce(plaintext.to_vec(), nonce)
}
