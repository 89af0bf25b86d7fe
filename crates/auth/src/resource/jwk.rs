//! Public keys, and the sets in which issuers publish them (RFC 7517).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::error::KeyRejected;
use aws_lc_rs::signature::{self, ParsedPublicKey, RsaPublicKeyComponents};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::algorithm::Algorithm;
use super::strict_json::{self, Json, Object};

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
    #[error("the key is not valid, such as a point that is not on its curve")]
    Invalid,
}

/// A public key for signatures.
pub(super) struct PublicKey {
    /// The key, prepared for each algorithm that it is for.
    verifiers: Vec<(Algorithm, ParsedPublicKey)>,
    kid: Option<String>,
    thumbprint: String,
}

/// The members that make a key.
enum Material<'a> {
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa { n: &'a [u8], e: &'a [u8] },
}

impl PublicKey {
    /// Reads a key, for those of `algorithms` that it is for.
    ///
    /// # Errors
    ///
    /// If it is not a public key for signatures, or not supported.
    pub(super) fn from_jwk(
        jwk: &Object<'_>,
        algorithms: &[Algorithm],
    ) -> Result<Self, UnusableKey> {
        if PRIVATE.iter().any(|name| jwk.get(name).is_some()) {
            return Err(UnusableKey::Private);
        }
        let is_for_signatures = jwk.get("use").is_none_or(|value| value.as_str() == Some("sig"))
            && jwk.get("key_ops").is_none_or(|ops| {
                ops.as_array().is_some_and(|ops| ops.iter().any(|op| op.as_str() == Some("verify")))
            });
        if !is_for_signatures {
            return Err(UnusableKey::Use);
        }
        let text = |name| jwk.get(name).and_then(Json::as_str);
        let (n, e);
        // RFC 7638: the members of the thumbprint are in lexicographic order. They are base64url,
        // so they need no escapes.
        let (material, canonical) = match (text("kty"), text("crv")) {
            (Some("EC"), Some(curve @ "P-256")) => {
                let (point, canonical) = elliptic(jwk, curve, 32)?;
                (Material::P256(point), canonical)
            }
            (Some("EC"), Some(curve @ "P-384")) => {
                let (point, canonical) = elliptic(jwk, curve, 48)?;
                (Material::P384(point), canonical)
            }
            (Some("OKP"), Some("Ed25519")) => {
                let (x, text) = member(jwk, "x", Some(32))?;
                let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{text}"}}"#);
                (Material::Ed25519(x), canonical)
            }
            (Some("RSA"), _) => {
                let (n_text, e_text);
                ((n, n_text), (e, e_text)) = (member(jwk, "n", None)?, member(jwk, "e", None)?);
                let canonical = format!(r#"{{"e":"{e_text}","kty":"RSA","n":"{n_text}"}}"#);
                (rsa(&n, &e)?, canonical)
            }
            _ => return Err(UnusableKey::Type),
        };
        let meant = text("alg");
        let verifiers: Result<Vec<_>, _> = algorithms
            .iter()
            .filter(|one| meant.is_none_or(|alg| Algorithm::parse(alg) == Some(**one)))
            .filter_map(|one| Some((*one, material.prepared(*one)?)))
            .map(|(algorithm, key)| Ok((algorithm, key.map_err(|_| UnusableKey::Invalid)?)))
            .collect();
        Ok(Self {
            verifiers: verifiers?,
            kid: text("kid").map(str::to_owned),
            thumbprint: URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes())),
        })
    }

    /// Returns true if the key is for `algorithm`, and was read for it.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        self.verifier(algorithm).is_some()
    }

    /// Returns true if `signature` is one of this key by `algorithm`.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        self.verifier(algorithm).is_some_and(|key| key.verify_sig(message, signature).is_ok())
    }

    /// Returns the SHA-256 thumbprint, as base64url (RFC 7638).
    pub(super) fn thumbprint(&self) -> &str {
        &self.thumbprint
    }

    fn verifier(&self, algorithm: Algorithm) -> Option<&ParsedPublicKey> {
        self.verifiers.iter().find(|(own, _)| *own == algorithm).map(|(_, key)| key)
    }
}

impl Material<'_> {
    /// Returns the key for `algorithm`, or none if the algorithm is for other keys.
    fn prepared(&self, algorithm: Algorithm) -> Option<Result<ParsedPublicKey, KeyRejected>> {
        let rsa = |parameters| match self {
            Self::Rsa { n, e } => {
                Some(RsaPublicKeyComponents { n, e }.to_parsed_public_key(parameters))
            }
            _ => None,
        };
        match (algorithm, self) {
            (Algorithm::Es256, Self::P256(point)) => {
                Some(ParsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point))
            }
            (Algorithm::Es384, Self::P384(point)) => {
                Some(ParsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point))
            }
            (Algorithm::EdDsa, Self::Ed25519(point)) => {
                Some(ParsedPublicKey::new(&signature::ED25519, point))
            }
            (Algorithm::Es256 | Algorithm::Es384 | Algorithm::EdDsa, _) => None,
            (Algorithm::Rs256, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            (Algorithm::Rs384, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            (Algorithm::Rs512, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            (Algorithm::Ps256, _) => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            (Algorithm::Ps384, _) => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            (Algorithm::Ps512, _) => rsa(&signature::RSA_PSS_2048_8192_SHA512),
        }
    }
}

/// Returns a point, and the members of its thumbprint.
fn elliptic(
    jwk: &Object<'_>,
    curve: &str,
    length: usize,
) -> Result<(Vec<u8>, String), UnusableKey> {
    let ((x, x_text), (y, y_text)) =
        (member(jwk, "x", Some(length))?, member(jwk, "y", Some(length))?);
    // The uncompressed form of a point (SEC 1, section 2.3.3).
    let point = [&[4], x.as_slice(), &y].concat();
    Ok((point, format!(r#"{{"crv":"{curve}","kty":"EC","x":"{x_text}","y":"{y_text}"}}"#)))
}

fn rsa<'a>(n: &'a [u8], e: &'a [u8]) -> Result<Material<'a>, UnusableKey> {
    let n = without_zeros(n);
    let leading = n.first().map_or(0, |byte| byte.leading_zeros());
    let bits = (n.len() * 8).saturating_sub(usize::try_from(leading).unwrap_or(0));
    if !RSA_BITS.contains(&bits) {
        return Err(UnusableKey::RsaSize);
    }
    if e.len() > 8 {
        return Err(UnusableKey::Member);
    }
    Ok(Material::Rsa { n, e: without_zeros(e) })
}

/// Returns a number without its leading zeros, which some issuers write.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// Returns a member, decoded and as it is written.
fn member<'a>(
    jwk: &'a Object<'_>,
    name: &str,
    length: Option<usize>,
) -> Result<(Vec<u8>, &'a str), UnusableKey> {
    let text = jwk.get(name).and_then(Json::as_str).ok_or(UnusableKey::Member)?;
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
        let keys = document.get("keys").and_then(Json::as_array).ok_or(InvalidKeySet::NoKeys)?;
        if keys.len() > MAX_KEYS {
            return Err(InvalidKeySet::TooMany);
        }
        let usable: Vec<_> = keys
            .iter()
            .filter_map(Json::as_object)
            .filter_map(|jwk| {
                PublicKey::from_jwk(jwk, &Algorithm::ALL)
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
    use serde_json::{Value, json};

    fn key(jwk: &Value) -> Result<PublicKey, UnusableKey> {
        let text = jwk.to_string();
        PublicKey::from_jwk(&strict_json::object(text.as_bytes()).unwrap(), &Algorithm::ALL)
    }

    fn with(mut jwk: Value, name: &str, value: impl Into<Value>) -> Value {
        jwk[name] = value.into();
        jwk
    }

    fn bytes(length: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![0xff; length])
    }

    /// The key of RFC 7515, appendix A.3.
    fn p256() -> Value {
        json!({
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        })
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
            (with(p256(), "x", bytes(32)), UnusableKey::Invalid),
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
