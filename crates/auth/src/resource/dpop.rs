//! Proofs of possession (RFC 9449, section 4.3; the extension `io.modelcontextprotocol/auth/dpop`).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use http::request::Parts;
use serde_json::{Map, Value};
use url::Url;

use super::algorithm::Algorithm;
use super::builder::ConfigError;
use super::claims::{self, InvalidToken};
use super::jwk::{PublicKey, UnusableKey};
use super::jws::{Kind, MalformedToken, UnverifiedToken};
use super::nonce::Nonces;
use super::rejection::Refusal;
use super::replay::ReplayCache;
use crate::ResourceId;

/// The largest difference between the time of a proof and that of this server, in seconds.
pub(super) const MAX_AGE: u64 = 5 * 60;

/// The use of `DPoP`: access tokens that are bound to a key of the client (RFC 9449). Experimental,
/// as is the extension of the protocol.
///
/// A proof is accepted within 5 minutes of its time, and once. The proofs that were used are kept in
/// memory, at most 200,000 of them; after that, the oldest are forgotten first. Replicas do not
/// share them, so another replica accepts a proof once more. [Nonces](Self::with_nonces) shorten
/// the time in which that is possible to 2 minutes.
///
/// The URL in a proof is compared with the origin of the resource and the path of the request. So
/// the path that the service sees must be the one that clients see.
///
/// ```
/// use mrtr_auth::resource::{Dpop, JwtIssuer, ProtectedResource};
///
/// # fn key() -> [u8; 32] { [7; 32] }
/// let resource = ProtectedResource::builder("https://booking.example/mcp")
///     .issuer(JwtIssuer::new("https://login.example"))
///     .dpop(Dpop::offered().with_nonces(key()))
///     .build()?;
/// # Ok::<_, mrtr_auth::resource::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dpop {
    required: bool,
    algorithms: Vec<Algorithm>,
    nonces: Option<Nonces>,
}

impl Dpop {
    /// Accepts bound tokens with a proof, and unbound tokens without.
    pub fn offered() -> Self {
        Self { required: false, algorithms: Algorithm::DEFAULT.to_vec(), nonces: None }
    }

    /// Accepts bound tokens with a proof only.
    pub fn required() -> Self {
        Self { required: true, ..Self::offered() }
    }

    /// Sets the accepted algorithms of proofs. Default: ES256, ES384, EdDSA, RS256 and PS256.
    #[must_use]
    pub fn with_algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// Requires proofs to have a nonce of this server (RFC 9449, section 9). Default: no nonces.
    ///
    /// A nonce is a time, authenticated with `key`: replicas with the same key accept each other's,
    /// without a store. It is valid for 2 minutes. A response has the next one after 1 minute.
    #[must_use]
    pub fn with_nonces(mut self, key: [u8; 32]) -> Self {
        self.nonces = Some(Nonces::new(&key));
        self
    }

    pub(super) fn is_required(&self) -> bool {
        self.required
    }

    /// Returns the names of the algorithms.
    pub(super) fn algorithms(&self) -> Vec<String> {
        self.algorithms.iter().map(ToString::to_string).collect()
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// If there are no algorithms.
    pub(super) fn into_state(self, resource: &ResourceId) -> Result<DpopState, ConfigError> {
        if self.algorithms.is_empty() {
            return Err(ConfigError::new("DPoP has no algorithms"));
        }
        let origin = Url::parse(resource.as_str())
            .map_err(|error| ConfigError::new(format!("invalid resource {resource}: {error}")))?;
        let replay = ReplayCache::new();
        Ok(DpopState { config: self, origin, resource: resource.as_str().to_owned(), replay })
    }
}

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
struct Expected<'a> {
    method: &'a str,
    url: &'a Url,
    token: &'a str,
    algorithms: &'a [Algorithm],
    now: u64,
}

/// A verified proof.
#[derive(Debug)]
struct Proof {
    thumbprint: String,
    jti: String,
    nonce: Option<String>,
}

/// The use of [`Dpop`] at work.
pub(super) struct DpopState {
    config: Dpop,
    /// The URL of the resource, whose path is replaced by that of a request.
    origin: Url,
    resource: String,
    replay: ReplayCache,
}

impl DpopState {
    pub(super) fn is_required(&self) -> bool {
        self.config.required
    }

    /// Checks the proof of a request with a token that is bound to the key with `thumbprint`, and
    /// returns the next nonce if it is time for it.
    ///
    /// # Errors
    ///
    /// If the proof is not accepted.
    pub(super) fn check(
        &self,
        head: &Parts,
        token: &str,
        thumbprint: &str,
        now: u64,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let mut headers = head.headers.get_all("dpop").iter();
        let (Some(proof), None) = (headers.next(), headers.next()) else {
            return Err(InvalidProof::Headers.into());
        };
        let proof = proof.to_str().map_err(|_| MalformedToken::Base64);
        let mut url = self.origin.clone();
        url.set_path(head.uri.path());
        let algorithms = &self.config.algorithms;
        let method = head.method.as_str();
        let expected = Expected { method, url: &url, token, algorithms, now };
        let proof = verify(proof.map_err(InvalidProof::from)?, &expected)?;
        if proof.thumbprint != thumbprint {
            return Err(InvalidToken::OtherKey.into());
        }
        let mut next = None;
        if let Some(nonces) = &self.config.nonces {
            let age = proof.nonce.and_then(|nonce| nonces.age(&nonce, &self.resource, now));
            let age = age.ok_or(Refusal::NonceRequired)?;
            next = Nonces::is_old(age).then(|| nonces.issue(&self.resource, now));
        }
        // Last, so that only clients with a good token and a good proof fill the cache.
        if !self.replay.insert(&proof.thumbprint, &proof.jti, now) {
            return Err(InvalidProof::Replayed.into());
        }
        Ok(next)
    }

    /// Returns a nonce, if nonces are required.
    pub(super) fn nonce(&self, now: u64) -> Option<HeaderValue> {
        self.config.nonces.as_ref().map(|nonces| nonces.issue(&self.resource, now))
    }
}

/// Verifies a proof, apart from its nonce and from replays.
fn verify(proof: &str, expected: &Expected<'_>) -> Result<Proof, InvalidProof> {
    let proof = UnverifiedToken::parse(proof, Kind::Proof)?;
    if !proof.header.typ.as_deref().is_some_and(|typ| typ.eq_ignore_ascii_case("dpop+jwt")) {
        return Err(InvalidProof::Type);
    }
    let algorithm = Algorithm::parse(&proof.header.alg)
        .filter(|algorithm| expected.algorithms.contains(algorithm))
        .ok_or(InvalidProof::Algorithm)?;
    let key = PublicKey::from_jwk(proof.header.jwk.as_ref().ok_or(InvalidProof::NoKey)?)?;
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
fn text<'a>(claims: &'a Map<String, Value>, name: &'static str) -> Result<&'a str, InvalidProof> {
    let text = claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
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
fn token_hash(token: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, token.as_bytes()))
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
        let token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU";
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
            token: "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU",
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
