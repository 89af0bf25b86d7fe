//! Signed tokens in the compact serialization (RFC 7515, section 7.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::aws_lc;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::jwk::PublicKey;
use super::strict_json;

/// The longest token, in bytes.
pub(super) const MAX_TOKEN: usize = 16 << 10;

/// The header parameters that are rejected.
///
/// `crit` and `b64` change the meaning of the token. `jku`, `x5u`, `x5c` and `jwk` name a key that
/// the sender chose. `zip` and `enc` belong to encryption.
const REJECTED: [&str; 8] = ["crit", "b64", "jku", "x5u", "x5c", "jwk", "zip", "enc"];

/// A token that is not well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum MalformedToken {
    #[error("longer than 16 KiB")]
    TooLong,
    #[error("not three parts")]
    Parts,
    #[error("a part is not base64url without padding")]
    Base64,
    #[error("the header is not a JSON object with distinct members")]
    Header,
    #[error("the payload is not a JSON object with distinct members")]
    Payload,
    #[error("the header parameter {0} is rejected")]
    Parameter(&'static str),
    #[error("the header has no alg, or a parameter of the wrong type")]
    Type,
}

/// The header of a token.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) alg: String,
    pub(super) kid: Option<String>,
    pub(super) typ: Option<String>,
    /// The key of a proof. Absent in access tokens, where it is rejected.
    pub(super) jwk: Option<Map<String, Value>>,
}

/// A token that was parsed. Nothing in it is verified.
pub(super) struct UnverifiedToken<'a> {
    pub(super) header: Header,
    pub(super) payload: Map<String, Value>,
    signed: &'a [u8],
    signature: Vec<u8>,
}

/// The kinds of tokens, which differ in the header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    AccessToken,
    /// A proof carries the key that signs it (RFC 9449, section 4.2).
    Proof,
}

/// Returns true if `token` looks like a JWT: three parts, of which the first is an object.
pub(super) fn is_jwt(token: &str) -> bool {
    let mut parts = token.split('.');
    let header = parts.next().and_then(|header| URL_SAFE_NO_PAD.decode(header).ok());
    parts.count() == 2 && header.is_some_and(|header| header.trim_ascii_start().starts_with(b"{"))
}

impl<'a> UnverifiedToken<'a> {
    /// Parses a token.
    ///
    /// # Errors
    ///
    /// If it is malformed, or has a header parameter that is rejected.
    pub(super) fn parse(token: &'a str, kind: Kind) -> Result<Self, MalformedToken> {
        if token.len() > MAX_TOKEN {
            return Err(MalformedToken::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(MalformedToken::Parts)?;
        let (header, payload) = signed.split_once('.').ok_or(MalformedToken::Parts)?;
        if payload.contains('.') {
            return Err(MalformedToken::Parts);
        }
        let decode = |part| URL_SAFE_NO_PAD.decode(part).map_err(|_| MalformedToken::Base64);
        let (header, payload, signature) = (decode(header)?, decode(payload)?, decode(signature)?);
        let header = strict_json::object(&header).map_err(|_| MalformedToken::Header)?;
        let header = parse_header(header, kind)?;
        let payload = strict_json::object(&payload).map_err(|_| MalformedToken::Payload)?;
        Ok(Self { header, payload, signed: signed.as_bytes(), signature })
    }

    /// Returns true if the signature is one of `key` by `algorithm`.
    pub(super) fn is_signed_by(&self, key: &PublicKey, algorithm: Algorithm) -> bool {
        // The provider of the process is not used: if another crate enables the second backend of
        // `jsonwebtoken`, then it panics.
        let verifier =
            (aws_lc::DEFAULT_PROVIDER.verifier_factory)(&algorithm.backend(), key.backend());
        key.fits(algorithm)
            && verifier.is_ok_and(|verifier| verifier.verify(self.signed, &self.signature).is_ok())
    }
}

fn parse_header(mut header: Map<String, Value>, kind: Kind) -> Result<Header, MalformedToken> {
    let jwk = match kind {
        Kind::AccessToken => None,
        Kind::Proof => header.remove("jwk"),
    };
    if let Some(name) = REJECTED.into_iter().find(|name| header.contains_key(*name)) {
        return Err(MalformedToken::Parameter(name));
    }
    let jwk = match jwk {
        None => None,
        Some(Value::Object(jwk)) => Some(jwk),
        Some(_) => return Err(MalformedToken::Type),
    };
    let mut text = |name| match header.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(MalformedToken::Type),
    };
    let alg = text("alg")?.ok_or(MalformedToken::Type)?;
    Ok(Header { alg, kid: text("kid")?, typ: text("typ")?, jwk })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, payload: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.AA", encode(header), encode(payload))
    }

    #[track_caller]
    fn error(token: &str) -> MalformedToken {
        UnverifiedToken::parse(token, Kind::AccessToken).err().unwrap()
    }

    #[test]
    fn token_has_three_parts_of_strict_base64url() {
        let good = token(r#"{"alg":"ES256"}"#, "{}");
        assert!(UnverifiedToken::parse(&good, Kind::AccessToken).is_ok());
        assert!(is_jwt(&good));
        for (bad, expected) in [
            (String::new(), MalformedToken::Parts),
            ("a.b".to_owned(), MalformedToken::Parts),
            (format!("{good}."), MalformedToken::Parts),
            (format!("{good}.AA.AA"), MalformedToken::Parts),
            (format!("{good}=="), MalformedToken::Base64),
            (good.replace(".AA", ".AB"), MalformedToken::Base64),
            (good.replace(".AA", ".+/"), MalformedToken::Base64),
            (good.replace(".AA", ".A\nA"), MalformedToken::Base64),
            (format!(" {good}"), MalformedToken::Base64),
            ("a".repeat(MAX_TOKEN + 1), MalformedToken::TooLong),
        ] {
            assert_eq!(error(&bad), expected, "{bad:.40}");
        }
    }

    #[test]
    fn header_parameters_of_the_sender_are_rejected() {
        for name in REJECTED {
            let header = format!(r#"{{"alg":"ES256","{name}":["exp"]}}"#);
            assert_eq!(error(&token(&header, "{}")), MalformedToken::Parameter(name));
        }
    }

    #[test]
    fn malformed_headers_are_rejected() {
        for (header, expected) in [
            (r#"{"alg":"ES256","alg":"none"}"#, MalformedToken::Header),
            (r#"{"alg":"ES256","x":1,"x":2}"#, MalformedToken::Header),
            ("[]", MalformedToken::Header),
            ("{}", MalformedToken::Type),
            (r#"{"alg":1}"#, MalformedToken::Type),
            (r#"{"alg":"ES256","kid":1}"#, MalformedToken::Type),
            (r#"{"alg":"ES256","typ":null}"#, MalformedToken::Type),
        ] {
            assert_eq!(error(&token(header, "{}")), expected, "{header}");
        }
        assert_eq!(error(&token(r#"{"alg":"a"}"#, "[]")), MalformedToken::Payload);
        let twice = token(r#"{"alg":"a"}"#, r#"{"aud":"a","aud":"b"}"#);
        assert_eq!(error(&twice), MalformedToken::Payload);
    }

    #[test]
    fn opaque_tokens_are_told_from_jwts() {
        for opaque in ["", "abc", "a.b.c", "e30.e30", "e30.e30.e30.e30", "e30..x.y"] {
            assert!(!is_jwt(opaque), "{opaque}");
        }
        assert!(is_jwt("e30.e30."));
    }
}
