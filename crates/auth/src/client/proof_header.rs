//! What was sent with a request.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::{HeaderMap, header};

/// Returns the token that was sent with a request.
pub(super) fn sent_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.split_once(' ').map(|(_, token)| token)
}

/// Returns the nonce of the proof that was sent with a request.
pub(super) fn sent_nonce(headers: &HeaderMap) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Claims {
        nonce: Option<String>,
    }
    let proof = headers.get("dpop")?.to_str().ok()?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(proof.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok()?.nonce
}
