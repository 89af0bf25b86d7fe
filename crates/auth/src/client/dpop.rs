//! Proofs of possession of a key (RFC 9449).

use serde::Serialize;
use url::Url;

use super::random::sha256_base64url;
use super::signing_key::{InvalidKey, SigningKey};

/// A proof for one request (RFC 9449, section 4.2).
#[derive(Serialize)]
pub(crate) struct Proof<'a> {
    jti: &'a str,
    htm: &'a str,
    htu: String,
    iat: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ath: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
}

impl<'a> Proof<'a> {
    /// Creates a proof for a request with `method` to `url`. `jti` must be used once.
    pub(crate) fn new(method: &'a str, url: &Url, jti: &'a str, now: u64) -> Self {
        let mut url = url.clone();
        url.set_query(None);
        url.set_fragment(None);
        Self { jti, htm: method, htu: url.into(), iat: now, ath: None, nonce: None }
    }

    /// Binds the proof to an access token.
    pub(crate) fn with_token(mut self, access_token: &str) -> Self {
        self.ath = Some(sha256_base64url(access_token));
        self
    }

    /// Adds the nonce that the receiver has asked for.
    pub(crate) fn with_nonce(mut self, nonce: Option<&'a str>) -> Self {
        self.nonce = nonce;
        self
    }

    /// Signs the proof. The result is the value of the header `DPoP`.
    pub(crate) fn sign(&self, key: &SigningKey) -> Result<String, InvalidKey> {
        key.sign_with_public_key("dpop+jwt", self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_names_the_request_without_query() {
        let url = Url::parse("https://a.example/mcp?x=1#y").unwrap();
        let proof = Proof::new("POST", &url, "id", 7).with_token("token").with_nonce(Some("n"));
        let json = serde_json::to_string(&proof).unwrap();
        let expected = r#"{"jti":"id","htm":"POST","htu":"https://a.example/mcp","iat":7,"ath":"PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A","nonce":"n"}"#;
        assert_eq!(json, expected);
    }
}
