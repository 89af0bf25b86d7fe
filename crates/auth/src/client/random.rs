//! Unpredictable values, derived from one random seed.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// 32 random bytes.
#[derive(Clone)]
pub(crate) struct Seed(Zeroizing<[u8; 32]>);

impl Seed {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the bytes.
    #[cfg(feature = "connect")]
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads random bytes from the operating system.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self::new(bytes))
    }

    /// Derives a value of 43 characters for a purpose: the SHA-256 digest of the seed and the
    /// purpose, in base64url.
    pub(crate) fn derive(&self, purpose: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(*self.0);
        hash.update(purpose);
        BASE64_URL_SAFE_NO_PAD.encode(hash.finalize())
    }
}

/// Returns the SHA-256 digest of a text, in base64url: the challenge of a PKCE verifier (RFC 7636,
/// section 4.2), and the `ath` of an access token (RFC 9449, section 4.2).
pub(crate) fn sha256_base64url(text: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_of_the_example_in_rfc_7636() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(sha256_base64url(verifier), challenge);
    }

    #[test]
    fn values_of_different_purposes_differ() {
        let seed = Seed::new([1; 32]);
        assert_ne!(seed.derive("state"), seed.derive("verifier"));
        assert_eq!(seed.derive("state").len(), 43);
    }
}
