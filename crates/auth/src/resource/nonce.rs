//! Nonces for proofs: authenticated times, which need no store (RFC 9449, section 9).

use std::fmt;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;

use super::claims::LEEWAY;

/// The time for which a nonce is valid, in seconds.
const LIFETIME: u64 = 2 * 60;
/// The age from which responses have the next nonce, in seconds.
const RENEWAL: u64 = 60;

/// Separates the authenticated text from other uses of the key.
const LABEL: &[u8] = b"mrtr-auth DPoP nonce 1\0";

/// Issues and checks nonces.
///
/// ```text
/// nonce = base64url(time ‖ HMAC-SHA-256(key, label ‖ time ‖ resource))
/// ```
///
/// The time has 8 bytes, the most significant first, and is in seconds since 1970.
#[derive(Clone)]
pub(super) struct Nonces(hmac::Key);

impl Nonces {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Issues a nonce.
    pub(super) fn issue(&self, resource: &str, now: u64) -> HeaderValue {
        let time = now.to_be_bytes();
        let tag = hmac::sign(&self.0, &authenticated(time, resource));
        let nonce = URL_SAFE_NO_PAD.encode([&time, tag.as_ref()].concat());
        // Base64url is always a header value.
        HeaderValue::try_from(nonce).unwrap_or_else(|_| HeaderValue::from_static(""))
    }

    /// Returns the age of a nonce in seconds, if it is valid at `now`.
    pub(super) fn age(&self, nonce: &str, resource: &str, now: u64) -> Option<u64> {
        let bytes = URL_SAFE_NO_PAD.decode(nonce).ok()?;
        let (time, tag) = bytes.split_first_chunk::<8>()?;
        hmac::verify(&self.0, &authenticated(*time, resource), tag).ok()?;
        let time = u64::from_be_bytes(*time);
        let is_issued = time <= now.saturating_add(LEEWAY);
        let age = now.saturating_sub(time);
        (is_issued && age < LIFETIME).then_some(age)
    }

    /// Returns true if a client should use a new nonce.
    pub(super) fn is_old(age: u64) -> bool {
        age >= RENEWAL
    }
}

fn authenticated(time: [u8; 8], resource: &str) -> Vec<u8> {
    [LABEL, &time, resource.as_bytes()].concat()
}

impl fmt::Debug for Nonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonces")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_is_valid_for_two_minutes_at_its_resource() {
        let [nonces, others] = [[1; 32], [2; 32]].map(|key| Nonces::new(&key));
        let issued = nonces.issue("a", 1000);
        let nonce = issued.to_str().unwrap();
        assert_eq!(nonces.age(nonce, "a", 1000), Some(0));
        assert_eq!(nonces.age(nonce, "a", 1119), Some(119));
        assert_eq!(nonces.age(nonce, "a", 1120), None);
        assert_eq!(nonces.age(nonce, "a", 970), Some(0), "another replica may be late");
        assert_eq!(nonces.age(nonce, "a", 969), None);
        assert_eq!(nonces.age(nonce, "b", 1000), None);
        assert_eq!(others.age(nonce, "a", 1000), None);
        assert!(!Nonces::is_old(59) && Nonces::is_old(60));
    }

    #[test]
    fn changed_nonces_are_rejected() {
        let nonces = Nonces::new(&[1; 32]);
        let issued = nonces.issue("a", 1000);
        let nonce = issued.to_str().unwrap();
        for (at, c) in nonce.char_indices() {
            let changed = if c == 'A' { "B" } else { "A" };
            let changed = format!("{}{changed}{}", &nonce[..at], &nonce[at + 1..]);
            assert_eq!(nonces.age(&changed, "a", 1000), None, "{changed}");
            assert_eq!(nonces.age(&nonce[..at], "a", 1000), None);
        }
        assert_eq!(nonces.age(&format!("{nonce}A"), "a", 1000), None);
    }
}
