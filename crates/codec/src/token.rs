//! The outer form of a token.
//!
//! A token is `mrtr1.`, followed by `key id (16) ‖ nonce (24) ‖ ciphertext ‖ tag (16)` in base64url
//! without padding. Prefix and key id are authenticated.

use base64_simd::URL_SAFE_NO_PAD;

use crate::error::{OpenError, SealError};
use crate::gcm::TAG_LEN;
use crate::key::{ID_LEN, Key};
use crate::xaes::NONCE_LEN;

/// The prefix, which names the format and its version.
const PREFIX: &str = "mrtr1.";

/// The longest token in bytes (128 KiB). Longer tokens are not sealed, and are rejected before they
/// are decoded.
pub const MAX_TOKEN_LEN: usize = 128 * 1024;

/// The length of key id and nonce in bytes.
const HEAD_LEN: usize = ID_LEN + NONCE_LEN;

/// Returns the additional authenticated data, `PREFIX ‖ key id`.
fn aad(id: &[u8; ID_LEN]) -> [u8; PREFIX.len() + ID_LEN] {
    let mut out = [0; PREFIX.len() + ID_LEN];
    let (prefix, rest) = out.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX.as_bytes());
    rest.copy_from_slice(id);
    out
}

/// Encrypts `plaintext` in place and frames it as a token.
///
/// The key id and the nonce are spliced in front of the ciphertext, so a buffer with spare capacity
/// is not reallocated.
pub(crate) fn seal(
    key: &Key,
    plaintext: Vec<u8>,
    nonce: &[u8; NONCE_LEN],
) -> Result<String, SealError> {
    let plaintext_len = plaintext.len();
    let binary_len = HEAD_LEN + plaintext_len + TAG_LEN;
    let token_len = PREFIX.len() + (binary_len * 4).div_ceil(3);
    if token_len > MAX_TOKEN_LEN {
        return Err(SealError::TooLong(plaintext_len));
    }
    let mut bytes = plaintext;
    let tag = key.cipher.encrypt(nonce, &aad(&key.id), &mut bytes);
    bytes.extend_from_slice(&tag.map_err(|_| SealError::TooLong(plaintext_len))?);
    let mut head = [0; HEAD_LEN];
    let (id, rest) = head.split_at_mut(ID_LEN);
    id.copy_from_slice(&key.id);
    rest.copy_from_slice(nonce);
    bytes.splice(..0, head);
    let mut token = String::with_capacity(token_len);
    token.push_str(PREFIX);
    URL_SAFE_NO_PAD.encode_append(&bytes, &mut token);
    Ok(token)
}

/// Decodes and decrypts a token with the key that `find` returns for its key id.
pub(crate) fn open<'k>(
    token: &str,
    find: impl FnOnce(&[u8; ID_LEN]) -> Option<&'k Key>,
) -> Result<Vec<u8>, OpenError> {
    if token.len() > MAX_TOKEN_LEN {
        return Err(OpenError::TooLong);
    }
    // The decoder rejects padding, other alphabets and unused bits that are not zero, so the same
    // bytes have one token.
    let encoded = token.strip_prefix(PREFIX).ok_or(OpenError::Malformed)?;
    let mut bytes = URL_SAFE_NO_PAD.decode_to_vec(encoded).map_err(|_| OpenError::Malformed)?;
    if bytes.len() < HEAD_LEN + TAG_LEN {
        return Err(OpenError::Malformed);
    }
    let (id, rest) = bytes.split_first_chunk::<ID_LEN>().ok_or(OpenError::Malformed)?;
    let id = *id;
    let nonce = *rest.first_chunk::<NONCE_LEN>().ok_or(OpenError::Malformed)?;
    let key = find(&id).ok_or(OpenError::UnknownKey)?;
    // Decrypts in place: before a token is known to be authentic, it costs no more memory than its
    // own length.
    let (_, sealed) = bytes.split_at_mut(HEAD_LEN);
    let plaintext = key.cipher.decrypt(&nonce, &aad(&id), sealed).map_err(|_| OpenError::Forged)?;
    let end = HEAD_LEN + plaintext.len();
    bytes.truncate(end);
    bytes.drain(..HEAD_LEN);
    Ok(bytes)
}
