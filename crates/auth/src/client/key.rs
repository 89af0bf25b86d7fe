//! The key that tokens of a server are bound to.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::error::LoginError;
use super::secret::Secret;
use super::session::StoredSession;
use super::signing_key::SigningKey;

/// Returns the key of a session, or a new one, and its stored form.
pub(super) fn key_of(session: &StoredSession) -> Result<(SigningKey, Secret), LoginError> {
    let stored = session.dpop_key.as_ref().and_then(|stored| {
        let der = zeroize::Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(stored.expose()).ok()?);
        Some((SigningKey::from_pkcs8(&der, "ES256").ok()?, stored.clone()))
    });
    if let Some(stored) = stored {
        return Ok(stored);
    }
    let der = SigningKey::generate()?;
    let stored = Secret::new(BASE64_URL_SAFE_NO_PAD.encode(&*der));
    Ok((SigningKey::from_pkcs8(&der, "ES256")?, stored))
}
