//! Private keys that sign: assertions of clients, and `DPoP` proofs.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _,
};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Serialize;
use zeroize::Zeroizing;

use super::random::sha256_base64url;

/// A private key. Its [`Debug`](fmt::Debug) form does not show it.
#[derive(Clone)]
pub struct SigningKey {
    pair: Arc<Pair>,
    id: Option<String>,
}

enum Pair {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

/// A private key that cannot be read, or cannot sign.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the private key: {0}")]
pub struct InvalidKey(&'static str);

/// The header of a signed token (RFC 7515, section 4.1).
#[derive(Serialize)]
struct Header<'a> {
    typ: &'a str,
    alg: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwk: Option<PublicKey>,
}

/// A public key on the curve P-256 (RFC 7518, section 6.2). Its members are in the order of the
/// thumbprint (RFC 7638, section 3.2).
#[derive(Serialize)]
struct PublicKey {
    crv: &'static str,
    kty: &'static str,
    x: String,
    y: String,
}

impl SigningKey {
    /// Creates a key from a PEM file of PKCS #8: `-----BEGIN PRIVATE KEY-----`. `algorithm` is
    /// `ES256`, `ES384` or `EdDSA`.
    ///
    /// # Errors
    ///
    /// If the file is malformed, or the key is not one of the algorithm.
    pub fn from_pkcs8_pem(pem: &str, algorithm: &str) -> Result<Self, InvalidKey> {
        use rustls_pki_types::pem::PemObject as _;
        let der = rustls_pki_types::PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| InvalidKey("it is not a PEM file of PKCS #8"))?;
        Self::from_pkcs8(der.secret_pkcs8_der(), algorithm)
    }

    /// Creates a key from the bytes of PKCS #8.
    ///
    /// # Errors
    ///
    /// The errors of [`from_pkcs8_pem`](Self::from_pkcs8_pem).
    pub fn from_pkcs8(der: &[u8], algorithm: &str) -> Result<Self, InvalidKey> {
        let ecdsa = |curve| EcdsaKeyPair::from_pkcs8(curve, der);
        let pair = match algorithm {
            "ES256" => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING).map(Pair::Es256),
            "ES384" => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING).map(Pair::Es384),
            // Other programs write keys without the public key.
            "EdDSA" => Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Pair::EdDsa),
            _ => return Err(InvalidKey("the algorithm must be ES256, ES384 or EdDSA")),
        };
        let pair = pair.map_err(|_| InvalidKey("it is not a PKCS #8 key of the algorithm"))?;
        Ok(Self { pair: Arc::new(pair), id: None })
    }

    /// Generates a key for `ES256`, as bytes of PKCS #8.
    pub(crate) fn generate() -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
        let curve = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(curve, &SystemRandom::new())
            .map_err(|_| InvalidKey("the operating system has no random numbers"))?;
        Ok(Zeroizing::new(der.as_ref().to_vec()))
    }

    /// Sets the ID of the key (`kid`), by which the authorization server finds the public key.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Signs claims as a JSON Web Token.
    pub(crate) fn sign(&self, claims: &impl Serialize) -> Result<String, InvalidKey> {
        let (alg, kid) = (self.algorithm(), self.id.as_deref());
        self.encode(&Header { typ: "JWT", alg, kid, jwk: None }, claims)
    }

    /// Signs claims as a JSON Web Token that carries the public key. The key must be one for
    /// `ES256`.
    pub(crate) fn sign_with_public_key(
        &self,
        typ: &str,
        claims: &impl Serialize,
    ) -> Result<String, InvalidKey> {
        let jwk = Some(self.public_key()?);
        self.encode(&Header { typ, alg: self.algorithm(), kid: None, jwk }, claims)
    }

    /// Returns the thumbprint of the public key (RFC 7638), in base64url. The key must be one for
    /// `ES256`.
    pub(crate) fn thumbprint(&self) -> Result<String, InvalidKey> {
        Ok(sha256_base64url(&json(&self.public_key()?)?))
    }

    fn algorithm(&self) -> &'static str {
        match &*self.pair {
            Pair::Es256(_) => "ES256",
            Pair::Es384(_) => "ES384",
            Pair::EdDsa(_) => "EdDSA",
        }
    }

    fn public_key(&self) -> Result<PublicKey, InvalidKey> {
        let Pair::Es256(pair) = &*self.pair else {
            return Err(InvalidKey("it is not a key for ES256"));
        };
        // An uncompressed point: 4, and two coordinates of 32 bytes.
        let [4, point @ ..] = pair.public_key().as_ref() else {
            return Err(InvalidKey("it has no public key"));
        };
        let (x, y) = point.split_at_checked(32).ok_or(InvalidKey("it has no public key"))?;
        let encode = |coordinate| BASE64_URL_SAFE_NO_PAD.encode(coordinate);
        Ok(PublicKey { crv: "P-256", kty: "EC", x: encode(x), y: encode(y) })
    }

    fn encode(&self, header: &Header<'_>, claims: &impl Serialize) -> Result<String, InvalidKey> {
        let encode = |text: String| BASE64_URL_SAFE_NO_PAD.encode(text);
        let message = format!("{}.{}", encode(json(header)?), encode(json(claims)?));
        let signature = match &*self.pair {
            Pair::Es256(pair) | Pair::Es384(pair) => {
                pair.sign(&SystemRandom::new(), message.as_bytes())
            }
            Pair::EdDsa(pair) => Ok(pair.sign(message.as_bytes())),
        };
        let signature = signature.map_err(|_| InvalidKey("it cannot sign"))?;
        Ok(format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }
}

fn json(value: &impl Serialize) -> Result<String, InvalidKey> {
    serde_json::to_string(value).map_err(|_| InvalidKey("the claims are not JSON"))
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An independent library verifies the signature with the public key in the header.
    #[test]
    fn generated_key_signs_with_its_public_key() {
        use jsonwebtoken::jwk::ThumbprintHash;
        let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap(), "ES256").unwrap();
        let token = key.sign_with_public_key("dpop+jwt", &serde_json::json!({ "a": 1 })).unwrap();
        let header = jsonwebtoken::decode_header(&token).unwrap();
        assert_eq!(header.typ.as_deref(), Some("dpop+jwt"));
        let public = header.jwk.unwrap();
        assert_eq!(public.thumbprint(ThumbprintHash::SHA256).unwrap(), key.thumbprint().unwrap());
        let public = jsonwebtoken::DecodingKey::from_jwk(&public).unwrap();
        assert!(is_valid(&token, &public));
    }

    #[test]
    fn keys_of_all_algorithms_sign() {
        for (algorithm, der) in [
            ("ES256", SigningKey::generate().unwrap().to_vec()),
            (
                "ES384",
                EcdsaKeyPair::generate_pkcs8(
                    &ECDSA_P384_SHA384_FIXED_SIGNING,
                    &SystemRandom::new(),
                )
                .unwrap()
                .as_ref()
                .to_vec(),
            ),
            (
                "EdDSA",
                Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref().to_vec(),
            ),
        ] {
            let key = SigningKey::from_pkcs8(&der, algorithm).unwrap().with_id("k1");
            let token = key.sign(&serde_json::json!({ "a": 1 })).unwrap();
            let header = jsonwebtoken::decode_header(&token).unwrap();
            assert_eq!(header.kid.as_deref(), Some("k1"));
            let public = match &*key.pair {
                Pair::Es256(pair) | Pair::Es384(pair) => {
                    jsonwebtoken::DecodingKey::from_ec_der(pair.public_key().as_ref())
                }
                Pair::EdDsa(pair) => {
                    jsonwebtoken::DecodingKey::from_ed_der(pair.public_key().as_ref())
                }
            };
            assert!(is_valid(&token, &public), "{algorithm}");
        }
    }

    fn is_valid(token: &str, key: &jsonwebtoken::DecodingKey) -> bool {
        let algorithm = jsonwebtoken::decode_header(token).unwrap().alg;
        let (message, signature) = token.rsplit_once('.').unwrap();
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, algorithm).unwrap()
    }

    #[test]
    fn other_files_are_rejected() {
        assert!(SigningKey::from_pkcs8_pem("x", "ES256").is_err());
        assert!(SigningKey::from_pkcs8(b"x", "ES256").is_err());
        let key = SigningKey::generate().unwrap();
        assert!(SigningKey::from_pkcs8(&key, "EdDSA").is_err());
        assert!(SigningKey::from_pkcs8(&key, "ES384").is_err());
        assert!(SigningKey::from_pkcs8(&key, "none").is_err());
        let key = SigningKey::from_pkcs8(&key, "ES256").unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey { algorithm: \"ES256\", .. }");
    }
}
