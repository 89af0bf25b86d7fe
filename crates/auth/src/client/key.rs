//! The key that tokens of a server are bound to.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::error::LoginError;
use super::secret::Secret;
use super::session::StoredSession;
use super::signing_key::SigningKey;

const ALGORITHM: &str = "ES256";

/// Returns the key of a session, if it has one that is usable.
pub(super) fn key_of(session: &StoredSession) -> Option<SigningKey> {
    let stored = session.dpop_key.as_ref()?;
    let der = zeroize::Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(stored.expose()).ok()?);
    SigningKey::from_pkcs8(&der, ALGORITHM).ok()
}

/// Creates a key, and its stored form.
pub(super) fn new_key() -> Result<(SigningKey, Secret), LoginError> {
    let der = SigningKey::generate()?;
    let stored = Secret::new(BASE64_URL_SAFE_NO_PAD.encode(&*der));
    Ok((SigningKey::from_pkcs8(&der, ALGORITHM)?, stored))
}
