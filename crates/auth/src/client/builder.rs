//! The builder of the client.

use std::fmt;

use url::Url;

use super::drivers::Drivers;
use super::oauth_client::OAuthClient;
use super::options::{DpopMode, Grant, IdentityProvider, Options};
use super::registration::ClientRegistration;
use super::store::TokenStore;
use super::user_agent::{AssertionSource, UserAgent};
use crate::identifier::{InvalidUrl, Issuer, secure_url};
use crate::scope::{InvalidScope, Scopes};

/// Builds an [`OAuthClient`].
#[must_use = "call `build`"]
pub struct OAuthClientBuilder {
    options: Options,
    scopes: Vec<String>,
    issuers_for_pkce: Vec<String>,
    registered: Vec<(Option<String>, ClientRegistration)>,
    token_endpoint: Option<(String, ClientRegistration)>,
    pub(super) drivers: Drivers,
}

/// A setting of a client that is not acceptable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A URL is not `https`, or not a URL.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// A scope is malformed.
    #[error(transparent)]
    Scope(#[from] InvalidScope),
    /// The URL of the client's metadata has no path (specification: client ID metadata documents).
    #[error("invalid client metadata URL {0:?}: it must be https and have a path")]
    ClientMetadataUrl(String),
    /// The URL of the proxy is malformed. It may have a password, so it is not named.
    #[error("invalid proxy URL")]
    Proxy,
    /// The text is not PEM, or has no certificate.
    #[error("invalid root certificates")]
    RootCertificates,
}

impl OAuthClient {
    /// Creates a builder of a client whose user logs in (authorization code grant).
    ///
    /// `client_name` is shown to the user by authorization servers at which the client registers.
    pub fn builder(client_name: impl Into<String>) -> OAuthClientBuilder {
        Self::with_grant(client_name.into(), Grant::AuthorizationCode)
    }

    /// Creates a builder of a client that acts for itself (client credentials grant; extension
    /// `io.modelcontextprotocol/oauth-client-credentials`). No user takes part.
    ///
    /// The secret is sent to the authorization server that the first MCP server names
    /// ([`registered_anywhere`](OAuthClientBuilder::registered_anywhere)). To fix the authorization
    /// server, call [`registered`](OAuthClientBuilder::registered) with the same client, too.
    pub fn client_credentials(client: ClientRegistration) -> OAuthClientBuilder {
        Self::with_grant(String::new(), Grant::ClientCredentials).registered_anywhere(client)
    }

    /// Creates a builder of a client that exchanges a token of the platform on which it runs, such
    /// as a Kubernetes service account token (workload identity federation; JWT bearer grant,
    /// RFC 7523). No user takes part.
    pub fn workload_identity(token: impl AssertionSource) -> OAuthClientBuilder {
        let mut builder = Self::with_grant(String::new(), Grant::JwtBearer);
        builder.drivers.assertion = Some(Box::new(token));
        builder
    }

    /// Creates a builder of a client whose user has logged in at an identity provider that grants
    /// access to MCP servers (extension
    /// `io.modelcontextprotocol/enterprise-managed-authorization`).
    ///
    /// `id_token` returns the ID token of the user. `client` is the client at the identity
    /// provider, with whose `token_endpoint` the ID token is exchanged. Name the client at the
    /// authorization server of the MCP server with [`registered`](OAuthClientBuilder::registered).
    /// An ID token expires soon:
    /// [`identity_refresh_token`](OAuthClientBuilder::identity_refresh_token) can stand in for it.
    pub fn enterprise_managed(
        token_endpoint: impl Into<String>,
        client: ClientRegistration,
        id_token: impl AssertionSource,
    ) -> OAuthClientBuilder {
        // The endpoint is checked in `build`.
        let mut builder = Self::with_grant(String::new(), Grant::JwtBearer);
        builder.token_endpoint = Some((token_endpoint.into(), client));
        builder.drivers.assertion = Some(Box::new(id_token));
        builder
    }

    fn with_grant(client_name: String, grant: Grant) -> OAuthClientBuilder {
        OAuthClientBuilder {
            options: Options {
                client_name,
                grant,
                client_metadata_url: None,
                registered: Vec::new(),
                scopes: Scopes::default(),
                trusted_for_pkce: Vec::new(),
                origin_as_issuer: false,
                dpop: DpopMode::default(),
                prompts_consent: true,
            },
            scopes: Vec::new(),
            issuers_for_pkce: Vec::new(),
            registered: Vec::new(),
            token_endpoint: None,
            drivers: Drivers::new(),
        }
    }
}

impl fmt::Debug for OAuthClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClientBuilder").finish_non_exhaustive()
    }
}

impl OAuthClientBuilder {
    /// Sets the browser of the user. Default: the client has none, and fails if the user has to log
    /// in.
    pub fn user_agent(mut self, user_agent: impl UserAgent) -> Self {
        self.drivers.user_agent = Some(Box::new(user_agent));
        self
    }

    /// Sets a source of refresh tokens of the identity provider, for a client that is
    /// [enterprise-managed](OAuthClient::enterprise_managed). Other clients ignore it. Default:
    /// none.
    ///
    /// It is asked if there is no ID token, if the ID token has expired by its `exp`, or if the
    /// identity provider refuses it with `invalid_grant` or `invalid_request`. The refresh token
    /// is then the `subject_token` of the exchange (ID-JAG, section 4.3), which identity providers
    /// need not support. The user is not asked.
    pub fn identity_refresh_token(mut self, source: impl AssertionSource) -> Self {
        self.drivers.identity_refresh_token = Some(Box::new(source));
        self
    }

    /// Sets the store of tokens. Default: [`MemoryStore`](super::MemoryStore).
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.drivers.store = Box::new(store);
        self
    }

    /// Sets the URL at which the client publishes its metadata
    /// ([`ClientMetadata::document`](super::ClientMetadata::document)). It is the ID of the client
    /// at authorization servers that support client ID metadata documents. Default: none.
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.options.client_metadata_url = Some(url.into());
        self
    }

    /// Adds a client that was registered at an authorization server beforehand. It takes
    /// precedence over the other ways, and is not used at other authorization servers.
    pub fn registered(mut self, issuer: impl Into<String>, client: ClientRegistration) -> Self {
        self.registered.push((Some(issuer.into()), client));
        self
    }

    /// Adds a client that was registered beforehand at an authorization server that is not known
    /// here. It is bound to the one at which it is first used, for all MCP servers. The
    /// [store](Self::store) keeps this binding. Its secret goes to the authorization server that
    /// the first MCP server names: prefer [`registered`](Self::registered).
    pub fn registered_anywhere(mut self, client: ClientRegistration) -> Self {
        self.registered.push((None, client));
        self
    }

    /// Sets scopes to ask for in addition to those that the server names. Default: none.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Logs in at an authorization server whose metadata does not say that it supports PKCE.
    ///
    /// The specification says to refuse (authorization code protection). Only use this for an
    /// authorization server that you know to support `S256`.
    pub fn trust_for_pkce(mut self, issuer: impl Into<String>) -> Self {
        self.issuers_for_pkce.push(issuer.into());
        self
    }

    /// Sets when tokens are bound to a key of the client (extension
    /// `io.modelcontextprotocol/auth/dpop`). Default: [`DpopMode::IfAsked`].
    pub fn dpop(mut self, mode: DpopMode) -> Self {
        self.options.dpop = mode;
        self
    }

    /// Sets whether requests for refresh tokens (`offline_access`) ask the user for consent each
    /// time (`prompt=consent`). Default: true. OpenID Connect requires it: without it, some
    /// authorization servers ignore the scope and issue no refresh token. Set it to false for Entra
    /// ID if only administrators may consent.
    pub fn prompt_consent(mut self, prompt: bool) -> Self {
        self.options.prompts_consent = prompt;
        self
    }

    /// Accepts servers of revision 2025-03-26, which have no metadata: their origin is the
    /// authorization server. If that has no metadata either, its endpoints are `/authorize`,
    /// `/token` and `/register`. Default: false, since nothing proves then that it supports PKCE.
    pub fn allow_origin_as_issuer(mut self, allow: bool) -> Self {
        self.options.origin_as_issuer = allow;
        self
    }

    /// Allows connections to private addresses for metadata, registration and tokens. Default: only
    /// if the host in the URL of the MCP server is a private IPv4 address.
    ///
    /// Loopback addresses are asked on behalf of servers with loopback URLs only. Link-local
    /// addresses are never asked. With an HTTP proxy, the proxy chooses the addresses.
    pub fn allow_private_networks(mut self, allow: bool) -> Self {
        self.drivers.allows_private = allow;
        self
    }

    /// Sends the requests of logins through the proxy at `url`, which may contain a user and a
    /// password. Default: the proxies in `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    ///
    /// Requests to the MCP server have their own:
    /// [`HttpClientBuilder::proxy`](mrtr_transport::http::HttpClientBuilder::proxy). Loopback
    /// addresses are asked without a proxy.
    ///
    /// # Errors
    ///
    /// If `url` is not a URL.
    pub fn proxy(mut self, url: &str) -> Result<Self, BuildError> {
        self.drivers.http.set_proxy(url).map_err(|_| BuildError::Proxy)?;
        Ok(self)
    }

    /// Replaces the clock, which returns seconds since 1970.
    #[doc(hidden)]
    pub fn clock(mut self, clock: fn() -> u64) -> Self {
        self.drivers.clock = clock;
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// If a URL or a scope is malformed.
    pub fn build(self) -> Result<OAuthClient, BuildError> {
        let Self { mut options, drivers, .. } = self;
        if let Some(url) = &options.client_metadata_url {
            let parsed = Url::parse(url).ok();
            let is_valid = |url: &Url| url.scheme() == "https" && url.path() != "/";
            if !parsed.as_ref().is_some_and(is_valid) {
                return Err(BuildError::ClientMetadataUrl(url.clone()));
            }
        }
        if let Some((url, client)) = self.token_endpoint {
            let token_endpoint = secure_url("token endpoint", &url)?;
            options.grant = Grant::IdentityAssertion(IdentityProvider {
                token_endpoint,
                client,
                has_refresh_token: drivers.identity_refresh_token.is_some(),
            });
        }
        options.scopes = Scopes::new(self.scopes)?;
        let issuers: Result<_, _> = self.issuers_for_pkce.into_iter().map(Issuer::new).collect();
        options.trusted_for_pkce = issuers?;
        for (issuer, client) in self.registered {
            options.registered.push((issuer.map(Issuer::new).transpose()?, client));
        }
        Ok(OAuthClient::new(options, drivers))
    }
}
