//! Tokens that are bound to a key (RFC 9449; the extension `io.modelcontextprotocol/auth/dpop`).

use http::HeaderValue;
use http::request::Parts;
use url::Url;

use super::algorithm::Algorithm;
use super::claims::InvalidToken;
use super::config_error::ConfigError;
use super::jws::MalformedToken;
use super::nonce::Nonces;
use super::proof::{self, Expected, InvalidProof};
use super::rejection::Refusal;
use super::replay::ReplayCache;
use crate::ResourceId;

/// The use of `DPoP`: access tokens that are bound to a key of the client (RFC 9449). Experimental,
/// as is the extension of the protocol.
///
/// The `iat` of a proof may differ from the server's clock by up to 5 minutes, so a proof is usable
/// for up to 10 minutes. Each replica accepts it once. The proofs that were used are kept in
/// memory, at most 200,000 of them; after that, the oldest are forgotten first.
/// [Nonces](Self::with_nonces) shorten the time in which another replica accepts a proof again to
/// about 2 minutes.
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
        token: &[u8],
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
        let proof = proof::verify(proof.map_err(InvalidProof::from)?, &expected)?;
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
