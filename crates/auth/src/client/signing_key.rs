//! Private keys that sign: assertions of clients, and `DPoP` proofs.

use std::fmt;

use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;
use zeroize::Zeroizing;

/// A private key. Its [`Debug`](fmt::Debug) form does not show it.
#[derive(Clone)]
pub struct SigningKey {
    key: EncodingKey,
    algorithm: Algorithm,
    id: Option<String>,
}

/// A private key that cannot be read, or cannot sign.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the private key: {0}")]
pub struct InvalidKey(&'static str);

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
        let (algorithm, key) = match algorithm {
            "ES256" => (Algorithm::ES256, EncodingKey::from_ec_der(der)),
            "ES384" => (Algorithm::ES384, EncodingKey::from_ec_der(der)),
            "EdDSA" => (Algorithm::EdDSA, EncodingKey::from_ed_der(der)),
            _ => return Err(InvalidKey("the algorithm must be ES256, ES384 or EdDSA")),
        };
        let key = Self { key, algorithm, id: None };
        key.sign(None, &())?;
        Ok(key)
    }

    /// Generates a key for `ES256`, as bytes of PKCS #8.
    pub(crate) fn generate() -> Result<Zeroizing<Vec<u8>>, InvalidKey> {
        use aws_lc_rs::{rand::SystemRandom, signature};
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = signature::EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new())
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
    pub(crate) fn sign(
        &self,
        typ: Option<&str>,
        claims: &impl Serialize,
    ) -> Result<String, InvalidKey> {
        let mut header = Header::new(self.algorithm);
        header.kid.clone_from(&self.id);
        if let Some(typ) = typ {
            header.typ = Some(typ.to_owned());
        }
        self.encode(&header, claims)
    }

    /// Signs claims as a JSON Web Token that carries the public key.
    pub(crate) fn sign_with_public_key(
        &self,
        typ: &str,
        claims: &impl Serialize,
    ) -> Result<String, InvalidKey> {
        let mut header = Header::new(self.algorithm);
        header.typ = Some(typ.to_owned());
        header.jwk = Some(self.public_key()?);
        self.encode(&header, claims)
    }

    /// Returns the thumbprint of the public key (RFC 7638), in base64url.
    pub(crate) fn thumbprint(&self) -> Result<String, InvalidKey> {
        let thumbprint = self.public_key()?.thumbprint(ThumbprintHash::SHA256);
        thumbprint.map_err(|_| InvalidKey("it has no thumbprint"))
    }

    fn public_key(&self) -> Result<Jwk, InvalidKey> {
        let key = Jwk::from_encoding_key(&self.key, self.algorithm);
        key.map_err(|_| InvalidKey("it has no public key"))
    }

    fn encode(&self, header: &Header, claims: &impl Serialize) -> Result<String, InvalidKey> {
        jsonwebtoken::encode(header, claims, &self.key)
            .map_err(|_| InvalidKey("it is not a key of the algorithm"))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_key_signs_with_its_public_key() {
        let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap(), "ES256").unwrap();
        let token = key.sign_with_public_key("dpop+jwt", &serde_json::json!({ "a": 1 })).unwrap();
        let header = jsonwebtoken::decode_header(&token).unwrap();
        assert_eq!(header.typ.as_deref(), Some("dpop+jwt"));
        let public = header.jwk.unwrap();
        assert_eq!(public.thumbprint(ThumbprintHash::SHA256).unwrap(), key.thumbprint().unwrap());
        let decoding = jsonwebtoken::DecodingKey::from_jwk(&public).unwrap();
        let (message, signature) = token.rsplit_once('.').unwrap();
        let verified = jsonwebtoken::crypto::verify(
            signature,
            message.as_bytes(),
            &decoding,
            Algorithm::ES256,
        );
        assert!(verified.unwrap());
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
        assert_eq!(format!("{key:?}"), "SigningKey { algorithm: ES256, .. }");
    }
}
