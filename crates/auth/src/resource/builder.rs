//! Describes a protected resource.

use std::time::SystemTime;

use super::challenge::{Challenges, DpopChallenge};
use super::clock::Clock;
use super::config_error::ConfigError;
use super::dpop::Dpop;
use super::flights::Flights;
use super::issuer::{IssuerState, TokenIssuer};
use super::protected_resource::{ProtectedResource, State, metadata_service};
use super::scope_hierarchy::ScopeHierarchy;
use super::token_cache::{self, DigestKey, TokenCache};
use crate::fetch::{Fetcher, HttpSettings};
use crate::metadata::ResourceMetadata;
use crate::{ResourceId, Scopes};

/// Describes a [`ProtectedResource`]. All settings are checked by [`build`](Self::build).
#[derive(Debug)]
#[must_use]
pub struct ProtectedResourceBuilder {
    url: String,
    name: Option<String>,
    issuers: Vec<TokenIssuer>,
    scopes: Vec<String>,
    scopes_supported: Vec<String>,
    implications: Vec<(String, String)>,
    dpop: Option<Dpop>,
    clock: Clock,
}

impl ProtectedResource {
    /// Starts to describe the resource at `url`, its identifier (RFC 9728, section 1.2). Tokens
    /// must have exactly this text in `aud`, unless their issuer has
    /// [audiences](super::JwtIssuer::with_audiences) of its own. It is `https`, or `http` on the
    /// loopback interface.
    pub fn builder(url: impl Into<String>) -> ProtectedResourceBuilder {
        ProtectedResourceBuilder::new(url.into())
    }
}

impl ProtectedResourceBuilder {
    fn new(url: String) -> Self {
        Self {
            url,
            name: None,
            issuers: Vec::new(),
            scopes: Vec::new(),
            scopes_supported: Vec::new(),
            implications: Vec::new(),
            dpop: None,
            clock: Clock::new(SystemTime::now),
        }
    }

    /// Adds an issuer of tokens. At least one is required.
    ///
    /// The unverified `iss` of a JWT chooses the issuer, under which everything is verified. Opaque
    /// tokens go to the [`IntrospectionIssuer`](super::IntrospectionIssuer)s, in their order.
    pub fn issuer(mut self, issuer: impl Into<TokenIssuer>) -> Self {
        self.issuers.push(issuer.into());
        self
    }

    /// Adds scopes that all requests need. Default: none. Clients learn them from the challenge of
    /// a 401, so they should be few (specification: authorization, scope minimization).
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Adds scopes that some operations need. They are in the metadata, with those that all
    /// requests need. Default: none.
    pub fn scopes_supported<S: Into<String>>(
        mut self,
        scopes: impl IntoIterator<Item = S>,
    ) -> Self {
        self.scopes_supported.extend(scopes.into_iter().map(Into::into));
        self
    }

    /// Grants `narrower` to tokens with `broader` (specification: authorization, scope
    /// hierarchies). Implications are transitive.
    pub fn implies(mut self, broader: impl Into<String>, narrower: impl Into<String>) -> Self {
        self.implications.push((broader.into(), narrower.into()));
        self
    }

    /// Sets a name for users (`resource_name` of the metadata). Default: none.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Accepts tokens that are bound to a key (RFC 9449). Default: only bearer tokens. A token that
    /// is bound to a key is never accepted without proof.
    pub fn dpop(mut self, dpop: Dpop) -> Self {
        self.dpop = Some(dpop);
        self
    }

    /// Sets the clock, for tests. Default: [`SystemTime::now`].
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::new(clock);
        self
    }

    /// Checks the settings.
    ///
    /// Nothing is fetched yet: the server starts while an issuer is unreachable.
    ///
    /// # Errors
    ///
    /// If a URL, a scope or a key set is invalid, there is no issuer, an issuer occurs twice, a
    /// scope is `offline_access`, TLS cannot be initialized, or the system has no random numbers.
    /// Without the feature `tls`: if an issuer is `https`, except one with fixed keys.
    pub fn build(self) -> Result<ProtectedResource, ConfigError> {
        let id = ResourceId::new(self.url)?;
        let fetcher = Fetcher::new(&HttpSettings::default())
            .map_err(|error| ConfigError::new(format!("cannot create an HTTP client: {error}")))?;
        let issuers: Result<Vec<_>, _> = self
            .issuers
            .into_iter()
            .map(|issuer| IssuerState::new(issuer, &fetcher, &self.clock))
            .collect();
        let issuers = issuers?;
        let identifiers: Vec<_> = issuers.iter().map(|one| one.issuer().clone()).collect();
        if identifiers.is_empty() {
            return Err(ConfigError::new(format!("resource {id} has no issuer")));
        }
        for (i, issuer) in identifiers.iter().enumerate() {
            if identifiers.iter().skip(i + 1).any(|other| other == issuer) {
                return Err(ConfigError::new(format!("issuer {issuer} occurs twice")));
            }
        }
        let scopes = Scopes::new(self.scopes)?;
        let supported = scopes.clone().union(&Scopes::new(self.scopes_supported)?);
        // It asks for a refresh token, which is no concern of a resource.
        if supported.contains("offline_access") {
            return Err(ConfigError::new("resources do not support the scope \"offline_access\""));
        }
        let mut hierarchy = ScopeHierarchy::default();
        for (broader, narrower) in self.implications {
            hierarchy.insert(Scopes::new([broader])?, Scopes::new([narrower])?);
        }
        let mut metadata = ResourceMetadata::new(&id, identifiers);
        metadata.scopes_supported =
            (!supported.is_empty()).then(|| supported.iter().map(str::to_owned).collect());
        metadata.resource_name = self.name;
        metadata.dpop_signing_alg_values_supported = self.dpop.as_ref().map(Dpop::algorithms);
        let required = self.dpop.as_ref().map(Dpop::is_required);
        metadata.dpop_bound_access_tokens_required = required;
        let dpop_challenge = self.dpop.as_ref().map(|dpop| DpopChallenge {
            algorithms: dpop.algorithms().join(" "),
            required: dpop.is_required(),
        });
        let metadata = metadata_service(&metadata)
            .map_err(|error| ConfigError::new(format!("cannot write the metadata: {error}")))?;
        let metadata_url = id.metadata_url();
        let query = metadata_url.query().map(|query| format!("?{query}")).unwrap_or_default();
        Ok(ProtectedResource::new(State {
            metadata_path: format!("{}{query}", metadata_url.path()),
            challenges: Challenges {
                metadata_url: metadata_url.into(),
                scopes,
                dpop: dpop_challenge,
            },
            dpop: self.dpop.map(|dpop| dpop.into_state(&id)).transpose()?,
            id,
            issuers,
            hierarchy,
            metadata,
            clock: self.clock,
            digest_key: DigestKey::random().map_err(|error| {
                ConfigError::new(format!("cannot create a random key: {error}"))
            })?,
            verified: TokenCache::new(token_cache::CAPACITY),
            refused: TokenCache::new(token_cache::CAPACITY),
            introspections: Flights::new(),
        }))
    }
}
