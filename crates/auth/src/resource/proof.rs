//! Proofs of possession: pure checks (RFC 9449, section 4.3).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::Url;

use super::algorithm::Algorithm;
use super::claims;
use super::jwk::{PublicKey, UnusableKey};
use super::jws::{DecodedToken, Kind, MalformedToken};
use super::replay::MAX_AGE;
use super::strict_json::{Json, Object};

/// The reason for which a proof is not accepted. It is logged, and not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidProof {
    #[error("there is not exactly one DPoP header")]
    Headers,
    #[error("malformed proof: {0}")]
    Malformed(#[from] MalformedToken),
    #[error("the type (typ) is not dpop+jwt")]
    Type,
    #[error("the algorithm (alg) is not accepted")]
    Algorithm,
    #[error("the header has no key (jwk)")]
    NoKey,
    #[error("unusable key (jwk): {0}")]
    Key(#[from] UnusableKey),
    #[error("the signature is wrong")]
    Signature,
    #[error("the claim {0} is missing or malformed")]
    Claim(&'static str),
    #[error("the proof is for another method (htm)")]
    Method,
    #[error("the proof is for another URL (htu)")]
    Url,
    #[error("the time (iat) is not within five minutes of now")]
    Time,
    #[error("the proof is for another token (ath)")]
    Token,
    #[error("the proof was used before")]
    Replayed,
}

/// The request that a proof must be for.
pub(super) struct Expected<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a Url,
    pub(super) token: &'a [u8],
    pub(super) algorithms: &'a [Algorithm],
    pub(super) now: u64,
}

/// A verified proof.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) thumbprint: String,
    pub(super) jti: String,
    pub(super) nonce: Option<String>,
}

/// Verifies a proof, apart from its nonce and from replays.
///
/// # Errors
///
/// With the rule that the proof breaks.
pub(super) fn verify(proof: &str, expected: &Expected<'_>) -> Result<Proof, InvalidProof> {
    let proof = DecodedToken::decode(proof)?;
    let proof = proof.parse(Kind::Proof)?;
    if !proof.header.typ.as_deref().is_some_and(|typ| typ.eq_ignore_ascii_case("dpop+jwt")) {
        return Err(InvalidProof::Type);
    }
    let algorithm = Algorithm::parse(&proof.header.alg)
        .filter(|algorithm| expected.algorithms.contains(algorithm))
        .ok_or(InvalidProof::Algorithm)?;
    let jwk = proof.header.jwk.as_ref().ok_or(InvalidProof::NoKey)?;
    let key = PublicKey::from_jwk(jwk, &[algorithm])?;
    if !proof.is_signed_by(&key, algorithm) {
        return Err(InvalidProof::Signature);
    }
    let claims = &proof.payload;
    let jti = text(claims, "jti")?;
    if text(claims, "htm")? != expected.method {
        return Err(InvalidProof::Method);
    }
    if !is_same_url(text(claims, "htu")?, expected.url) {
        return Err(InvalidProof::Url);
    }
    let time = claims::time(claims, "iat").ok().flatten().ok_or(InvalidProof::Claim("iat"))?;
    if time.abs_diff(expected.now) > MAX_AGE {
        return Err(InvalidProof::Time);
    }
    if text(claims, "ath")? != token_hash(expected.token) {
        return Err(InvalidProof::Token);
    }
    let nonce = match claims.get("nonce") {
        None => None,
        Some(_) => Some(text(claims, "nonce")?.to_owned()),
    };
    Ok(Proof { thumbprint: key.thumbprint().to_owned(), jti: jti.to_owned(), nonce })
}

/// Returns a claim that is a text, which must not be empty.
fn text<'a>(claims: &'a Object<'_>, name: &'static str) -> Result<&'a str, InvalidProof> {
    let text = claims.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
    text.ok_or(InvalidProof::Claim(name))
}

/// Compares URLs without query and fragment, after normalization (RFC 9449, section 4.3: scheme and
/// host in lower case, no default port).
fn is_same_url(text: &str, expected: &Url) -> bool {
    Url::parse(text).is_ok_and(|url| {
        url.scheme() == expected.scheme()
            && url.host() == expected.host()
            && url.port() == expected.port()
            && url.path() == expected.path()
            && url.username().is_empty()
            && url.password().is_none()
    })
}

/// Returns the hash of a token: `ath` (RFC 9449, section 4.2).
fn token_hash(token: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_without_query_and_fragment() {
        let expected = Url::parse("https://a.example/mcp").unwrap();
        for same in [
            "https://a.example/mcp",
            "HTTPS://A.Example:443/mcp",
            "https://a.example/mcp?x=1#y",
            "https://a.example/x/../mcp",
        ] {
            assert!(is_same_url(same, &expected), "{same}");
        }
        for other in [
            "http://a.example/mcp",
            "https://a.example:8443/mcp",
            "https://a.example/mcp/",
            "https://a.example/MCP",
            "https://a.example",
            "https://b.example/mcp",
            "https://a.example.b/mcp",
            "https://u@a.example/mcp",
            "https://:p@a.example/mcp",
            "/mcp",
            "",
        ] {
            assert!(!is_same_url(other, &expected), "{other}");
        }
    }

    /// The token and the hash of RFC 9449, section 7.1.
    #[test]
    fn token_hash_is_that_of_the_rfc() {
        let token = b"Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";
        assert_eq!(token_hash(token), "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo");
    }

    /// The proof of RFC 9449, section 7.1.
    #[test]
    fn proof_of_the_rfc_is_verified() {
        let proof = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6Ik\
            VDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCR\
            nMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JE\
            QSIsImNydiI6IlAtMjU2In19.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIj\
            oiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0Z\
            WRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNF\
            c05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71E\
            OptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA";
        let url = Url::parse("https://resource.example.org/protectedresource").unwrap();
        let expected = Expected {
            method: "GET",
            url: &url,
            token: b"Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU",
            algorithms: &[Algorithm::Es256],
            now: 1_562_262_618 + MAX_AGE,
        };
        let verified = verify(proof, &expected).unwrap();
        assert_eq!(verified.thumbprint, "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I");
        assert_eq!((verified.jti.as_str(), verified.nonce), ("e1j3V_bKic8-LAEB", None));
        let late = Expected { now: expected.now + 1, ..expected };
        assert_eq!(verify(proof, &late).unwrap_err(), InvalidProof::Time);
        let early = Expected { now: 1_562_262_618 - MAX_AGE - 1, ..late };
        assert_eq!(verify(proof, &early).unwrap_err(), InvalidProof::Time);
    }
}
