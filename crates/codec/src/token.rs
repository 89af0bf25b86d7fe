//! The outer form of a token: `mrtr1.` and then, in base64url without padding,
//! `key id (16) ‖ nonce (24) ‖ ciphertext ‖ tag (16)`. Prefix and key id are authenticated.

use base64_simd::URL_SAFE_NO_PAD;

use crate::error::OpenError;
use crate::key::{ID_LEN, Key};
use crate::seal::SealError;
use crate::xaes::{NONCE_LEN, TAG_LEN};

/// Names the format and its version.
const PREFIX: &str = "mrtr1.";

/// The longest token in bytes. What is longer is refused before it is decoded.
pub const MAX_LEN: usize = 128 * 1024;

const HEAD: usize = ID_LEN + NONCE_LEN;

/// The additional authenticated data: `PREFIX ‖ key id`.
fn aad(id: &[u8; ID_LEN]) -> [u8; PREFIX.len() + ID_LEN] {
    let mut out = [0; PREFIX.len() + ID_LEN];
    let (prefix, rest) = out.split_at_mut(PREFIX.len());
    prefix.copy_from_slice(PREFIX.as_bytes());
    rest.copy_from_slice(id);
    out
}

pub(crate) fn seal(
    key: &Key,
    plaintext: Vec<u8>,
    nonce: &[u8; NONCE_LEN],
) -> Result<String, SealError> {
    let plain = plaintext.len();
    let length = HEAD + plain + TAG_LEN;
    let characters = PREFIX.len() + (length * 4).div_ceil(3);
    if characters > MAX_LEN {
        return Err(SealError::TooLong(plain));
    }
    let mut bytes = plaintext;
    let tag = key.cipher.encrypt(nonce, &aad(&key.id), &mut bytes);
    bytes.extend_from_slice(&tag.map_err(|_| SealError::TooLong(plain))?);
    let mut head = [0; HEAD];
    let (id, rest) = head.split_at_mut(ID_LEN);
    id.copy_from_slice(&key.id);
    rest.copy_from_slice(nonce);
    bytes.splice(..0, head);
    let mut token = String::with_capacity(characters);
    token.push_str(PREFIX);
    URL_SAFE_NO_PAD.encode_append(&bytes, &mut token);
    Ok(token)
}

pub(crate) fn open<'k>(
    token: &str,
    find: impl FnOnce(&[u8; ID_LEN]) -> Option<&'k Key>,
) -> Result<Vec<u8>, OpenError> {
    if token.len() > MAX_LEN {
        return Err(OpenError::TooLong);
    }
    // It refuses padding, foreign letters and loose bits at the end: one text for one token.
    let text = token.strip_prefix(PREFIX).ok_or(OpenError::Malformed)?;
    let mut bytes = URL_SAFE_NO_PAD.decode_to_vec(text).map_err(|_| OpenError::Malformed)?;
    if bytes.len() < HEAD + TAG_LEN {
        return Err(OpenError::Malformed);
    }
    let (id, rest) = bytes.split_first_chunk::<ID_LEN>().ok_or(OpenError::Malformed)?;
    let (id, nonce) = (*id, *rest.first_chunk::<NONCE_LEN>().ok_or(OpenError::Malformed)?);
    let key = find(&id).ok_or(OpenError::UnknownKey)?;
    // In place: until it is authentic, no more is allocated than the token is long.
    let (_, sealed) = bytes.split_at_mut(HEAD);
    let text = key.cipher.decrypt(&nonce, &aad(&id), sealed).map_err(|_| OpenError::Forged)?;
    let end = HEAD + text.len();
    bytes.truncate(end);
    bytes.drain(..HEAD);
    Ok(bytes)
}
