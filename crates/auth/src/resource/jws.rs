//! Signed tokens in the compact serialization (RFC 7515, section 7.1).

use std::borrow::Cow;

use base64_simd::URL_SAFE_NO_PAD;

use super::algorithm::Algorithm;
use super::jwk::PublicKey;
use super::strict_json::{self, Json, Object};

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
    #[error("the first part is not a header")]
    NoHeader,
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
pub(super) struct Header<'a> {
    pub(super) alg: Cow<'a, str>,
    pub(super) kid: Option<Cow<'a, str>>,
    pub(super) typ: Option<Cow<'a, str>>,
    /// The key of a proof. Absent in access tokens, where it is rejected.
    pub(super) jwk: Option<Object<'a>>,
}

/// A token whose three parts are decoded, but not parsed.
pub(super) struct DecodedToken<'a> {
    signed: &'a [u8],
    header: Vec<u8>,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

/// A token that was parsed. Nothing in it is verified.
pub(super) struct UnverifiedToken<'a> {
    pub(super) header: Header<'a>,
    pub(super) payload: Object<'a>,
    signed: &'a [u8],
    signature: &'a [u8],
}

/// The kinds of tokens, which differ in the header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    AccessToken,
    /// A proof carries the key that signs it (RFC 9449, section 4.2).
    Proof,
}

impl MalformedToken {
    /// Returns true if the token is not a JWT at all: it has not three parts, of which the first
    /// may be an object.
    pub(super) fn is_opaque(self) -> bool {
        matches!(self, Self::Parts | Self::NoHeader)
    }
}

impl<'a> DecodedToken<'a> {
    /// Decodes the parts of a token. So all of its characters are known to be base64url or dots.
    ///
    /// # Errors
    ///
    /// If it has not three parts of base64url, or the first does not begin like an object.
    pub(super) fn decode(token: &'a str) -> Result<Self, MalformedToken> {
        if token.len() > MAX_TOKEN {
            return Err(MalformedToken::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(MalformedToken::Parts)?;
        let (header, payload) = signed.split_once('.').ok_or(MalformedToken::Parts)?;
        if payload.contains('.') {
            return Err(MalformedToken::Parts);
        }
        let header = URL_SAFE_NO_PAD.decode_to_vec(header).map_err(|_| MalformedToken::NoHeader)?;
        if !header.trim_ascii_start().starts_with(b"{") {
            return Err(MalformedToken::NoHeader);
        }
        let decode = |part| URL_SAFE_NO_PAD.decode_to_vec(part).map_err(|_| MalformedToken::Base64);
        let (payload, signature) = (decode(payload)?, decode(signature)?);
        Ok(Self { signed: signed.as_bytes(), header, payload, signature })
    }

    /// Parses the token.
    ///
    /// # Errors
    ///
    /// If it is malformed, or has a header parameter that is rejected.
    pub(super) fn parse(&self, kind: Kind) -> Result<UnverifiedToken<'_>, MalformedToken> {
        let header = strict_json::object(&self.header).map_err(|_| MalformedToken::Header)?;
        let header = parse_header(header, kind)?;
        let payload = strict_json::object(&self.payload).map_err(|_| MalformedToken::Payload)?;
        Ok(UnverifiedToken { header, payload, signed: self.signed, signature: &self.signature })
    }
}

impl UnverifiedToken<'_> {
    /// Returns true if the signature is one of `key` by `algorithm`.
    pub(super) fn is_signed_by(&self, key: &PublicKey, algorithm: Algorithm) -> bool {
        key.verifies(algorithm, self.signed, self.signature)
    }
}

fn parse_header(header: Object<'_>, token: Kind) -> Result<Header<'_>, MalformedToken> {
    let (mut alg, mut kid, mut typ, mut jwk) = (None, None, None, None);
    for (name, value) in header {
        let parameter = match &*name {
            "alg" => &mut alg,
            "kid" => &mut kid,
            "typ" => &mut typ,
            "jwk" if token == Kind::Proof => {
                let Json::Object(object) = value else { return Err(MalformedToken::Type) };
                jwk = Some(object);
                continue;
            }
            name => match REJECTED.into_iter().find(|rejected| *rejected == name) {
                Some(name) => return Err(MalformedToken::Parameter(name)),
                None => continue,
            },
        };
        let Json::String(text) = value else { return Err(MalformedToken::Type) };
        *parameter = Some(text);
    }
    Ok(Header { alg: alg.ok_or(MalformedToken::Type)?, kid, typ, jwk })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, payload: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode_to_string(text);
        format!("{}.{}.AA", encode(header), encode(payload))
    }

    fn parse(token: &str) -> Result<(), MalformedToken> {
        DecodedToken::decode(token)?.parse(Kind::AccessToken).map(drop)
    }

    #[track_caller]
    fn error(token: &str) -> MalformedToken {
        parse(token).err().unwrap()
    }

    #[test]
    fn token_has_three_parts_of_strict_base64url() {
        let good = token(r#"{"alg":"ES256"}"#, "{}");
        assert_eq!(parse(&good), Ok(()));
        for (bad, expected) in [
            (String::new(), MalformedToken::Parts),
            ("a.b".to_owned(), MalformedToken::Parts),
            (format!("{good}."), MalformedToken::Parts),
            (format!("{good}.AA.AA"), MalformedToken::Parts),
            (format!("{good}=="), MalformedToken::Base64),
            (good.replace(".AA", ".AB"), MalformedToken::Base64),
            (good.replace(".AA", ".+/"), MalformedToken::Base64),
            (good.replace(".AA", ".A\nA"), MalformedToken::Base64),
            (format!(" {good}"), MalformedToken::NoHeader),
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
            ("[]", MalformedToken::NoHeader),
            ("{", MalformedToken::Header),
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
            assert!(error(opaque).is_opaque(), "{opaque}");
        }
        for jwt in ["e30.e30.", "IHt9.e30.", "e30.a.", "e30.e30.!"] {
            assert!(!error(jwt).is_opaque(), "{jwt}");
        }
    }
}
