//! Issuers of JWTs, and the keys that they publish.

use std::ptr;
use std::sync::Arc;

use super::algorithm::Algorithm;
use super::audience;
use super::claims::{self, Claims, InvalidToken, Policy};
use super::clock::Clock;
use super::config_error::ConfigError;
use super::discovery;
use super::fetch::{self, FetchError};
use super::introspection::{self, IntrospectionIssuer};
use super::jwk::KeySet;
use super::jws::UnverifiedToken;
use super::refresh::{Load, Refreshed};
use super::rejection::Refusal;
use crate::Issuer;
use crate::fetch::Fetcher;

/// An issuer of tokens: a [`JwtIssuer`] or an [`IntrospectionIssuer`].
#[derive(Debug, Clone)]
pub struct TokenIssuer(pub(super) Kind);

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Jwt(JwtIssuer),
    Introspection(IntrospectionIssuer),
}

impl From<JwtIssuer> for TokenIssuer {
    fn from(issuer: JwtIssuer) -> Self {
        Self(Kind::Jwt(issuer))
    }
}

impl From<IntrospectionIssuer> for TokenIssuer {
    fn from(issuer: IntrospectionIssuer) -> Self {
        Self(Kind::Introspection(issuer))
    }
}

/// An authorization server whose access tokens are signed JWTs (RFC 9068).
///
/// The keys come from the `jwks_uri` of its metadata (RFC 8414, or OpenID Connect Discovery). They
/// are fetched when the first token arrives, and again after one hour, or after the time in
/// `Cache-Control`, which counts within 5 minutes and 24 hours. A token with an unknown key ID
/// leads to a fetch at once, but at most every 30 seconds. So does a token with a wrong signature
/// if it or the keys have no ID. While the issuer is unreachable, the old keys are used for another
/// 24 hours. A set has at most 64 keys and 256 KiB.
///
/// ```
/// use mrtr_auth::resource::{Algorithm, JwtIssuer};
///
/// let issuer = JwtIssuer::new("https://login.example")
///     .with_algorithms([Algorithm::Es256])
///     .with_client_as_subject();
/// ```
#[derive(Debug, Clone)]
pub struct JwtIssuer {
    url: String,
    jwks: Option<String>,
    algorithms: Vec<Algorithm>,
    any_typ: bool,
    client_as_subject: bool,
    audiences: Option<Vec<String>>,
}

impl JwtIssuer {
    /// Creates an issuer. `url` must be the `iss` of the tokens, byte by byte. It is `https`, or
    /// `http` on the loopback interface.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            jwks: None,
            algorithms: Algorithm::DEFAULT.to_vec(),
            any_typ: false,
            client_as_subject: false,
            audiences: None,
        }
    }

    /// Sets the keys: the JSON of a JWK set (RFC 7517, section 5). Nothing is fetched then.
    /// Default: the keys are fetched from the issuer.
    #[must_use]
    pub fn with_jwks(mut self, jwks: impl Into<String>) -> Self {
        self.jwks = Some(jwks.into());
        self
    }

    /// Sets the accepted algorithms. Default: ES256, ES384, EdDSA, RS256 and PS256.
    #[must_use]
    pub fn with_algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// Accepts tokens of any type (`typ`). Default: only `at+jwt` (RFC 9068, section 2.1).
    ///
    /// Entra ID, Keycloak and Okta send another type, and so does Auth0 without its RFC 9068 token
    /// profile. Without the check, an ID token passes for an access token if it has the audience of
    /// the resource.
    #[must_use]
    pub fn with_any_typ(mut self) -> Self {
        self.any_typ = true;
        self
    }

    /// Takes the client for the subject of tokens that have no `sub`. Default: such tokens are
    /// rejected.
    ///
    /// Some authorization servers issue them for client credentials. Use it only if no user can
    /// have the ID of a client for subject (RFC 9068, section 5).
    #[must_use]
    pub fn with_client_as_subject(mut self) -> Self {
        self.client_as_subject = true;
        self
    }

    /// Sets the accepted audiences (`aud`) of the tokens of this issuer, instead of the URL of the
    /// resource. A token needs one of them.
    ///
    /// This is for authorization servers that cannot issue tokens for a URL: version 2 tokens of
    /// Entra ID have the ID of the application there. Use only audiences that stand for this
    /// resource alone. If another server has the same audience, then it can use the tokens of its
    /// clients here, and this server accepts tokens that were meant for the other one
    /// (specification: security considerations, token passthrough).
    ///
    /// ```
    /// use mrtr_auth::resource::JwtIssuer;
    ///
    /// const CLIENT_ID: &str = "1c0c5a0f-26f6-4d5c-9d5a-5f3a3f0e7a11";
    /// let issuer = JwtIssuer::new("https://login.microsoftonline.com/TENANT/v2.0")
    ///     .with_audiences([CLIENT_ID])
    ///     .with_any_typ();
    /// ```
    #[must_use]
    pub fn with_audiences<S: Into<String>>(
        mut self,
        audiences: impl IntoIterator<Item = S>,
    ) -> Self {
        self.audiences = Some(audiences.into_iter().map(Into::into).collect());
        self
    }
}

/// An issuer at work.
pub(super) enum IssuerState {
    Jwt(JwtState),
    Introspection(introspection::IntrospectionState),
}

impl IssuerState {
    /// Checks the settings of an issuer.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub(super) fn new(
        issuer: TokenIssuer,
        fetcher: &Fetcher,
        clock: &Clock,
    ) -> Result<Self, ConfigError> {
        match issuer.0 {
            Kind::Jwt(issuer) => JwtState::new(issuer, fetcher, clock).map(Self::Jwt),
            Kind::Introspection(issuer) => {
                issuer.into_state(fetcher, clock).map(Self::Introspection)
            }
        }
    }

    pub(super) fn issuer(&self) -> &Issuer {
        match self {
            Self::Jwt(state) => &state.issuer,
            Self::Introspection(state) => state.issuer(),
        }
    }
}

/// A [`JwtIssuer`] at work.
pub(super) struct JwtState {
    issuer: Issuer,
    algorithms: Vec<Algorithm>,
    any_typ: bool,
    client_as_subject: bool,
    audiences: Vec<String>,
    keys: Keys,
}

enum Keys {
    Fixed(Arc<KeySet>),
    Fetched(Arc<Refreshed<KeyLoader>>),
}

impl JwtState {
    fn new(config: JwtIssuer, fetcher: &Fetcher, clock: &Clock) -> Result<Self, ConfigError> {
        let JwtIssuer { url, jwks, algorithms, any_typ, client_as_subject, audiences } = config;
        let issuer = Issuer::new(url)?;
        if algorithms.is_empty() {
            return Err(ConfigError::new(format!("issuer {issuer} has no algorithms")));
        }
        let audiences = audience::check(&issuer, audiences)?;
        let keys = match jwks {
            Some(jwks) => {
                Keys::Fixed(Arc::new(KeySet::parse(jwks.as_bytes()).map_err(|error| {
                    ConfigError::new(format!("invalid keys of issuer {issuer}: {error}"))
                })?))
            }
            None => {
                fetch::check(&issuer)?;
                let loader = KeyLoader { issuer: issuer.clone(), fetcher: fetcher.clone() };
                Keys::Fetched(Refreshed::new(loader, clock.clone()))
            }
        };
        Ok(Self { issuer, algorithms, any_typ, client_as_subject, audiences, keys })
    }

    /// Verifies a token for the resource `audience`.
    pub(super) async fn verify(
        &self,
        token: &UnverifiedToken<'_>,
        audience: &str,
        clock: &Clock,
    ) -> Result<Claims, Refusal> {
        let policy = Policy {
            issuer: self.issuer.as_str(),
            audience,
            audiences: &self.audiences,
            algorithms: &self.algorithms,
            any_typ: self.any_typ,
            client_as_subject: self.client_as_subject,
        };
        // Before keys are fetched: a token that no key can make valid must not cause a fetch.
        let algorithm = claims::check_header(token, &policy)?;
        let kid = token.header.kid.as_deref();
        let verify = |keys: &KeySet| claims::verify(token, keys, &policy, clock.now());
        let keys = match &self.keys {
            Keys::Fixed(keys) => return Ok(verify(keys)?),
            Keys::Fetched(keys) => keys,
        };
        // The issuer has had the key when it issued the token, by clocks that may differ.
        let since = claims::time(&token.payload, "iat").ok().flatten();
        let since = since.map(|issued| issued.saturating_add(claims::LEEWAY));
        let found =
            keys.get(since, |keys| keys.candidates(kid, algorithm).next().is_some()).await?;
        match verify(&found) {
            // Where IDs do not tell keys apart, only the signature shows that a key is new.
            Err(InvalidToken::Signature)
                if !kid.is_some_and(|kid| found.has_id(kid, algorithm)) =>
            {
                let newer = keys.get(since, |keys| !ptr::eq(keys, Arc::as_ptr(&found))).await?;
                Ok(verify(&newer)?)
            }
            outcome => Ok(outcome?),
        }
    }
}

/// Fetches the keys of an issuer.
struct KeyLoader {
    issuer: Issuer,
    fetcher: Fetcher,
}

impl Load for KeyLoader {
    type Value = KeySet;

    async fn load(&self) -> Result<(KeySet, Option<u64>), FetchError> {
        let metadata = discovery::discover(&self.issuer, &self.fetcher).await?;
        let url = discovery::endpoint(&self.issuer, "jwks_uri", metadata.jwks_uri.as_deref())?;
        let document = fetch::get(&self.fetcher, url).await?;
        Ok((KeySet::parse(&document.bytes)?, document.max_age))
    }

    fn issuer(&self) -> &str {
        self.issuer.as_str()
    }
}
