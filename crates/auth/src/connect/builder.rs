//! The builder of a connector.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::request::Parts;
use mrtr_codec::{Principal, Seal};
use url::Url;

use super::account::AccountStore;
use super::connector::{AccountConnector, Identify, Inner};
use crate::client::ClientRegistration;
use crate::fetch::{AddressPolicy, Fetcher, HttpSettings};
use crate::identifier::{Issuer, is_loopback, secure_url};
use crate::in_use::InUse;
use crate::metadata::ServerMetadata;
use crate::scope::Scopes;

/// The setting of a connector that is missing or not acceptable.
#[derive(Debug, thiserror::Error)]
#[error("invalid account connector: {0}")]
pub struct BuildError(String);

/// Builds an [`AccountConnector`].
#[must_use = "call `build`"]
pub struct AccountConnectorBuilder {
    id: String,
    name: String,
    base: String,
    issuer: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    names_issuer: bool,
    client: Option<ClientRegistration>,
    scopes: Vec<String>,
    sealer: Option<Arc<dyn Seal>>,
    store: Option<Arc<dyn AccountStore>>,
    identify: Option<Arc<Identify>>,
    allows_private: bool,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl AccountConnector {
    /// Starts to build the connector of a third party.
    ///
    /// `id` is part of URLs and of the keys of questions, such as `github`. `name` is for users.
    /// `base` is the URL of this server as browsers see it, under which the pages are mounted:
    /// `https`, or `http` on the loopback interface for development.
    pub fn builder(
        id: impl Into<String>,
        name: impl Into<String>,
        base: impl Into<String>,
    ) -> AccountConnectorBuilder {
        AccountConnectorBuilder::new(id.into(), name.into(), base.into())
    }
}

impl AccountConnectorBuilder {
    fn new(id: String, name: String, base: String) -> Self {
        Self {
            id,
            name,
            base,
            issuer: String::new(),
            authorization_endpoint: None,
            token_endpoint: None,
            names_issuer: false,
            client: None,
            scopes: Vec::new(),
            sealer: None,
            store: None,
            identify: None,
            allows_private: false,
            clock: Arc::new(SystemTime::now),
        }
    }

    /// Sets the issuer of the third party. If a callback names one, it has to be this. Required.
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = issuer.into();
        self
    }

    /// Sets the page at which the user logs in and consents. Required.
    pub fn authorization_endpoint(mut self, url: impl Into<String>) -> Self {
        self.authorization_endpoint = Some(url.into());
        self
    }

    /// Sets the endpoint that issues tokens. Required.
    pub fn token_endpoint(mut self, url: impl Into<String>) -> Self {
        self.token_endpoint = Some(url.into());
        self
    }

    /// Sets issuer and endpoints from the metadata of the third party (RFC 8414). If it announces
    /// that callbacks name the issuer (RFC 9207), then others are refused.
    pub fn metadata(mut self, metadata: &ServerMetadata) -> Self {
        self.issuer.clone_from(&metadata.issuer);
        self.authorization_endpoint.clone_from(&metadata.authorization_endpoint);
        self.token_endpoint.clone_from(&metadata.token_endpoint);
        self.names_issuer = metadata.authorization_response_iss_parameter_supported;
        self
    }

    /// Sets the client as which this server is registered at the third party. A secret is sent in
    /// the form of the token request. Required.
    pub fn client(mut self, client: ClientRegistration) -> Self {
        self.client = Some(client);
        self
    }

    /// Sets the scopes to ask for. Default: none.
    pub fn scopes<S: Into<String>>(mut self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the keys that seal links and cookies: those of the server, so that all replicas have
    /// them. Required.
    pub fn sealer(mut self, sealer: impl Seal + 'static) -> Self {
        self.sealer = Some(Arc::new(sealer));
        self
    }

    /// Sets the store of accounts. Required.
    pub fn store(mut self, store: impl AccountStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Sets how the user of the browser is identified, such as by the session of a web page or by a
    /// layer in front. Required.
    ///
    /// It has to return the issuer and the subject that the user has as a caller of the MCP server:
    /// let the user sign in to your pages at the same authorization server. A client is ignored.
    /// Who is not identified gets a page with status 401: let a layer in front redirect to the
    /// sign-in.
    pub fn identify(
        mut self,
        identify: impl Fn(&Parts) -> Option<Principal> + Send + Sync + 'static,
    ) -> Self {
        self.identify = Some(Arc::new(identify));
        self
    }

    /// Allows the token endpoint to have addresses of private networks. Default: no.
    pub fn allow_private_networks(mut self, allow: bool) -> Self {
        self.allows_private = allow;
        self
    }

    /// Sets the clock, for tests. Default: [`SystemTime::now`].
    pub fn clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the connector.
    ///
    /// # Errors
    ///
    /// If a required setting is missing, the ID has other characters than `a` to `z`, `0` to `9`
    /// and `-`, or a URL is neither `https` nor on the loopback interface.
    pub fn build(self) -> Result<AccountConnector, BuildError> {
        let missing = |what: &str| BuildError(format!("no {what}"));
        let is_id = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if self.id.is_empty() || !self.id.bytes().all(is_id) {
            return Err(BuildError(format!("invalid ID {:?}", self.id)));
        }
        let invalid = |error: &dyn fmt::Display| BuildError(error.to_string());
        let base = secure_url("base URL", &self.base).map_err(|error| invalid(&error))?;
        let issuer = Issuer::new(self.issuer).map_err(|error| invalid(&error))?;
        let endpoint = |what: &'static str, url: Option<String>| {
            secure_url(what, &url.ok_or_else(|| missing(what))?).map_err(|error| invalid(&error))
        };
        let authorization = endpoint("authorization endpoint", self.authorization_endpoint)?;
        let token = endpoint("token endpoint", self.token_endpoint)?;
        let mut metadata = ServerMetadata::without_document(&issuer);
        metadata.authorization_endpoint = Some(authorization.into());
        metadata.authorization_response_iss_parameter_supported = self.names_issuer;
        let method = "client_secret_post".to_owned();
        metadata.token_endpoint_auth_methods_supported = Some(vec![method]);
        let policy = AddressPolicy { loopback: is_loopback(&token), private: self.allows_private };
        metadata.token_endpoint = Some(token.into());
        let path = format!("{}/connect/{}", base.path().trim_end_matches('/'), self.id);
        let page = |path: &str| {
            let mut url: Url = base.clone();
            url.set_path(path);
            url.set_query(None);
            url.set_fragment(None);
            url
        };
        let start = page(&path);
        let redirect_path = format!("{path}/callback");
        let inner = Inner {
            redirect_uri: page(&redirect_path).into(),
            redirect_path,
            path,
            start,
            id: self.id,
            name: self.name,
            issuer,
            metadata,
            client: self.client.ok_or_else(|| missing("client"))?,
            scopes: Scopes::new(self.scopes).map_err(|error| invalid(&error))?,
            sealer: self.sealer.ok_or_else(|| missing("sealer"))?,
            store: self.store.ok_or_else(|| missing("store"))?,
            identify: self.identify.ok_or_else(|| missing("way to identify users"))?,
            clock: self.clock,
            fetcher: Fetcher::restricted(&HttpSettings::default(), policy)
                .map_err(|error| invalid(&error))?,
            locks: InUse::new(),
        };
        Ok(AccountConnector { inner: Arc::new(inner) })
    }
}

impl fmt::Debug for AccountConnectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountConnectorBuilder").field("id", &self.id).finish_non_exhaustive()
    }
}
