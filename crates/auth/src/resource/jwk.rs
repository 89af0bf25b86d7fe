//! Public keys, and the sets in which issuers publish them (RFC 7517).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde_json::{Map, Value, json};

use super::algorithm::Algorithm;
use super::strict_json;

/// The largest number of keys in a set.
const MAX_KEYS: usize = 64;
/// The sizes of RSA keys, in bits. NIST SP 800-131A disallows smaller ones; larger ones are slow.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The members of private and symmetric keys.
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// A key that cannot be used to verify signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnusableKey {
    #[error("the key has a private part")]
    Private,
    #[error("the key is not for signatures")]
    Use,
    #[error("the key type or the curve is not supported")]
    Type,
    #[error("a member is missing, or not base64url of the right length")]
    Member,
    #[error("the RSA key is not 2048 to 8192 bits long")]
    RsaSize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    P256,
    P384,
    Ed25519,
    Rsa,
}

/// A public key for signatures.
pub(super) struct PublicKey {
    backend: DecodingKey,
    family: Family,
    kid: Option<String>,
    /// `alg`: the only algorithm that the key is for.
    alg: Option<String>,
    thumbprint: String,
}

impl PublicKey {
    /// Reads a key.
    ///
    /// # Errors
    ///
    /// If it is not a public key for signatures, or not supported.
    pub(super) fn from_jwk(jwk: &Map<String, Value>) -> Result<Self, UnusableKey> {
        if PRIVATE.iter().any(|name| jwk.contains_key(*name)) {
            return Err(UnusableKey::Private);
        }
        let is_for_signatures = jwk.get("use").is_none_or(|value| value == "sig")
            && jwk.get("key_ops").is_none_or(|ops| {
                ops.as_array().is_some_and(|ops| ops.iter().any(|op| op == "verify"))
            });
        if !is_for_signatures {
            return Err(UnusableKey::Use);
        }
        let text = |name| jwk.get(name).and_then(Value::as_str);
        let (family, backend, canonical) = match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => elliptic(jwk, Family::P256, 32)?,
            (Some("EC"), Some("P-384")) => elliptic(jwk, Family::P384, 48)?,
            (Some("OKP"), Some("Ed25519")) => {
                let (x, text) = member(jwk, "x", Some(32))?;
                let canonical = json!({ "crv": "Ed25519", "kty": "OKP", "x": text });
                (Family::Ed25519, DecodingKey::from_ed_der(&x), canonical)
            }
            (Some("RSA"), _) => rsa(jwk)?,
            _ => return Err(UnusableKey::Type),
        };
        // RFC 7638: the members are in lexicographic order, as they are written above.
        let hash = digest::digest(&digest::SHA256, canonical.to_string().as_bytes());
        Ok(Self {
            backend,
            family,
            kid: text("kid").map(str::to_owned),
            alg: text("alg").map(str::to_owned),
            thumbprint: URL_SAFE_NO_PAD.encode(hash),
        })
    }

    /// Returns true if the key can sign with `algorithm`, and is not meant for another one.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        let family = match algorithm {
            Algorithm::Es256 => Family::P256,
            Algorithm::Es384 => Family::P384,
            Algorithm::EdDsa => Family::Ed25519,
            Algorithm::Rs256
            | Algorithm::Rs384
            | Algorithm::Rs512
            | Algorithm::Ps256
            | Algorithm::Ps384
            | Algorithm::Ps512 => Family::Rsa,
        };
        let meant = self.alg.as_deref();
        self.family == family && meant.is_none_or(|alg| Algorithm::parse(alg) == Some(algorithm))
    }

    /// Returns the SHA-256 thumbprint, as base64url (RFC 7638).
    pub(super) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    pub(super) fn backend(&self) -> &DecodingKey {
        &self.backend
    }
}

fn elliptic(
    jwk: &Map<String, Value>,
    family: Family,
    length: usize,
) -> Result<(Family, DecodingKey, Value), UnusableKey> {
    let ((x, x_text), (y, y_text)) =
        (member(jwk, "x", Some(length))?, member(jwk, "y", Some(length))?);
    // The uncompressed form of a point (SEC 1, section 2.3.3).
    let point = [&[4], x.as_slice(), &y].concat();
    let canonical = json!({ "crv": jwk.get("crv"), "kty": "EC", "x": x_text, "y": y_text });
    Ok((family, DecodingKey::from_ec_der(&point), canonical))
}

fn rsa(jwk: &Map<String, Value>) -> Result<(Family, DecodingKey, Value), UnusableKey> {
    let ((n, n_text), (e, e_text)) = (member(jwk, "n", None)?, member(jwk, "e", None)?);
    let significant = n.iter().skip_while(|byte| **byte == 0);
    let leading = significant.clone().next().map_or(0, |byte| byte.leading_zeros());
    let bits = (significant.count() * 8).saturating_sub(usize::try_from(leading).unwrap_or(0));
    if !RSA_BITS.contains(&bits) {
        return Err(UnusableKey::RsaSize);
    }
    if e.len() > 8 {
        return Err(UnusableKey::Member);
    }
    let canonical = json!({ "e": e_text, "kty": "RSA", "n": n_text });
    Ok((Family::Rsa, DecodingKey::from_rsa_raw_components(&n, &e), canonical))
}

/// Returns a member, decoded and as it is written.
fn member<'a>(
    jwk: &'a Map<String, Value>,
    name: &str,
    length: Option<usize>,
) -> Result<(Vec<u8>, &'a str), UnusableKey> {
    let text = jwk.get(name).and_then(Value::as_str).ok_or(UnusableKey::Member)?;
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| UnusableKey::Member)?;
    if bytes.is_empty() || length.is_some_and(|length| bytes.len() != length) {
        return Err(UnusableKey::Member);
    }
    Ok((bytes, text))
}

/// The keys of an issuer.
pub(super) struct KeySet(Vec<PublicKey>);

/// A document that is not a usable set of keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidKeySet {
    #[error("not a JWK set: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("not a JWK set: no array \"keys\"")]
    NoKeys,
    #[error("more than {MAX_KEYS} keys")]
    TooMany,
    #[error("no key is usable for signatures")]
    NoUsableKey,
}

impl KeySet {
    /// Parses a set. Keys that cannot be used are left out.
    ///
    /// # Errors
    ///
    /// If the document is malformed, has more than 64 keys, or none that can be used.
    pub(super) fn parse(document: &[u8]) -> Result<Self, InvalidKeySet> {
        let document = strict_json::object(document)?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or(InvalidKeySet::NoKeys)?;
        if keys.len() > MAX_KEYS {
            return Err(InvalidKeySet::TooMany);
        }
        let usable: Vec<_> = keys
            .iter()
            .filter_map(Value::as_object)
            .filter_map(|jwk| {
                PublicKey::from_jwk(jwk)
                    .inspect_err(|reason| {
                        tracing::debug!(target: "mrtr::auth", %reason, "key left out");
                    })
                    .ok()
            })
            .collect();
        if usable.is_empty() {
            return Err(InvalidKeySet::NoUsableKey);
        }
        Ok(Self(usable))
    }

    /// Returns the keys that may have signed a token. A key without ID matches every ID.
    pub(super) fn candidates(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &PublicKey> {
        self.0.iter().filter(move |key| {
            let matches = match (kid, key.kid.as_deref()) {
                (Some(wanted), Some(kid)) => wanted == kid,
                _ => true,
            };
            matches && key.fits(algorithm)
        })
    }

    /// Returns true if a key for `algorithm` has exactly this ID.
    pub(super) fn has_id(&self, kid: &str, algorithm: Algorithm) -> bool {
        self.0.iter().any(|key| key.kid.as_deref() == Some(kid) && key.fits(algorithm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(jwk: &Value) -> Result<PublicKey, UnusableKey> {
        PublicKey::from_jwk(jwk.as_object().unwrap())
    }

    fn with(mut jwk: Value, name: &str, value: impl Into<Value>) -> Value {
        jwk[name] = value.into();
        jwk
    }

    fn bytes(length: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![0xff; length])
    }

    fn p256() -> Value {
        json!({ "kty": "EC", "crv": "P-256", "x": bytes(32), "y": bytes(32) })
    }

    /// The example of RFC 7638, section 3.1.
    #[test]
    fn thumbprint_is_that_of_the_rfc() {
        let jwk = json!({
            "kty": "RSA",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
            "e": "AQAB",
            "alg": "RS256",
            "kid": "2011-04-29",
        });
        let key = key(&jwk).unwrap();
        assert_eq!(key.thumbprint(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        assert!(key.fits(Algorithm::Rs256));
        assert!(!key.fits(Algorithm::Ps256), "the key is meant for RS256");
        assert!(!key.fits(Algorithm::Es256));
    }

    #[test]
    fn keys_that_are_not_for_signatures_are_rejected() {
        for (jwk, expected) in [
            (with(p256(), "use", "enc"), UnusableKey::Use),
            (with(p256(), "use", 1), UnusableKey::Use),
            (with(p256(), "key_ops", json!(["sign"])), UnusableKey::Use),
            (with(p256(), "key_ops", "verify"), UnusableKey::Use),
            (with(p256(), "d", bytes(32)), UnusableKey::Private),
            (with(p256(), "k", Value::Null), UnusableKey::Private),
            (with(p256(), "x", bytes(31)), UnusableKey::Member),
            (with(p256(), "x", format!("{}=", bytes(32))), UnusableKey::Member),
            (with(p256(), "y", Value::Null), UnusableKey::Member),
            (with(p256(), "crv", "secp256k1"), UnusableKey::Type),
            (with(p256(), "kty", "oct"), UnusableKey::Type),
            (json!({ "kty": "oct", "k": "c2VjcmV0" }), UnusableKey::Private),
            (json!({ "kty": "RSA", "n": bytes(128), "e": "AQAB" }), UnusableKey::RsaSize),
            (json!({ "kty": "RSA", "n": bytes(255), "e": "AQAB" }), UnusableKey::RsaSize),
            (json!({ "kty": "RSA", "n": bytes(1025), "e": "AQAB" }), UnusableKey::RsaSize),
            (json!({ "kty": "RSA", "n": bytes(256), "e": bytes(9) }), UnusableKey::Member),
            (json!({ "kty": "OKP", "crv": "X25519", "x": bytes(32) }), UnusableKey::Type),
        ] {
            assert_eq!(key(&jwk).err(), Some(expected), "{jwk}");
        }
        // Leading zeros do not make a key longer.
        let padded = URL_SAFE_NO_PAD.encode([vec![0; 128], vec![0xff; 128]].concat());
        let jwk = json!({ "kty": "RSA", "n": padded, "e": "AQAB" });
        assert_eq!(key(&jwk).err(), Some(UnusableKey::RsaSize));
        key(&with(with(p256(), "use", "sig"), "key_ops", json!(["verify"]))).unwrap();
    }

    #[test]
    fn set_leaves_out_what_it_cannot_use() {
        let set = |keys: Value| KeySet::parse(json!({ "keys": keys }).to_string().as_bytes());
        let named = |kid: &str| with(p256(), "kid", kid);
        let keys = set(json!([1, { "kty": "new" }, named("a"), named("b"), p256()])).unwrap();
        assert_eq!(keys.candidates(Some("a"), Algorithm::Es256).count(), 2);
        assert_eq!(keys.candidates(Some("c"), Algorithm::Es256).count(), 1);
        assert_eq!(keys.candidates(None, Algorithm::Es256).count(), 3);
        assert_eq!(keys.candidates(None, Algorithm::Es384).count(), 0);
        assert!(set(json!(vec![p256(); 64])).is_ok());
        assert!(matches!(set(json!(vec![p256(); 65])), Err(InvalidKeySet::TooMany)));
        assert!(matches!(set(json!([])), Err(InvalidKeySet::NoUsableKey)));
        assert!(matches!(set(json!({})), Err(InvalidKeySet::NoKeys)));
        assert!(KeySet::parse(b"{\"keys\":[],\"keys\":[]}").is_err());
    }
}
