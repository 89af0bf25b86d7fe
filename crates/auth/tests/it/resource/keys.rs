//! Keys that sign tokens.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeys, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A key of an issuer or a client.
pub(super) struct Key {
    pub(super) alg: &'static str,
    pub(super) kid: &'static str,
    pair: Pair,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeys, &'static dyn RsaEncoding),
}

pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    pub(super) fn generate(alg: &'static str, kid: &'static str) -> Self {
        let ecdsa = |algorithm| Pair::Ecdsa(EcdsaKeyPair::generate(algorithm).unwrap());
        let rsa = |encoding| Pair::Rsa(RsaKeys::generate(KeySize::Rsa2048).unwrap(), encoding);
        let pair = match alg {
            "ES256" => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            "ES384" => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            "EdDSA" => Pair::Ed25519(Ed25519KeyPair::generate().unwrap()),
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "PS256" => rsa(&RSA_PSS_SHA256),
            _ => panic!("{alg}"),
        };
        Self { alg, kid, pair }
    }

    pub(super) fn jwk(&self) -> Value {
        match &self.pair {
            Pair::Ecdsa(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let crv = if x.len() == 32 { "P-256" } else { "P-384" };
                let (x, y) = (base64(x), base64(y));
                json!({ "kty": "EC", "crv": crv, "x": x, "y": y, "kid": self.kid })
            }
            Pair::Ed25519(pair) => {
                let x = base64(pair.public_key());
                json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.kid })
            }
            Pair::Rsa(pair, _) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                let (n, e) = (base64(&public.n), base64(&public.e));
                json!({ "kty": "RSA", "n": n, "e": e, "kid": self.kid })
            }
        }
    }

    pub(super) fn sign(&self, header: &Value, payload: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(payload.to_string()));
        format!("{signed}.{}", base64(self.signature(signed.as_bytes())))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        match &self.pair {
            Pair::Ecdsa(pair) => {
                pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
        }
    }
}
