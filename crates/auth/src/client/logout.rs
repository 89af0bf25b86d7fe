//! Logging out (RFC 7009).

use mrtr_transport::BoxError;

use super::error::{LoginError, driver};
use super::fetch::fetch;
use super::login::{Discovery, Found};
use super::logins::Inner;
use super::message::HttpRequest;
use super::oauth_client::{OAuthClient, normalized};
use super::random::Seed;
use super::server::Stored;
use super::session::{StoredSession, Tokens};
use super::token::TokenRequest;
use super::token_client::client_of_tokens;
use crate::fetch::Fetcher;
use crate::identifier::{Issuer, ResourceId};
use crate::metadata::ServerMetadata;
use crate::scope::Scopes;

/// What became of the tokens of a session that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Logout {
    /// The client was not logged in.
    NotLoggedIn,
    /// The authorization server has revoked them.
    Revoked,
    /// They stay valid until they expire, for this reason.
    NotRevoked(String),
}

/// Allows logins again.
struct EndLogout<'a>(&'a Inner, &'a str);

impl Drop for EndLogout<'_> {
    fn drop(&mut self) {
        self.0.with(self.1, |server| server.is_logging_out = false);
    }
}

impl OAuthClient {
    /// Deletes the session with the MCP server at `url`, with its registered clients, and asks the
    /// authorization server to revoke the tokens.
    ///
    /// Before another user logs in, clear the caches of clients (`Client::clear_cache` of
    /// `mrtr-client`).
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written. If the authorization server cannot revoke the
    /// tokens, they are deleted nonetheless.
    pub async fn log_out(&self, url: &str) -> Result<Logout, LoginError> {
        let url = &*normalized(url)?;
        let store_failed = |error| driver("the token store", &error);
        // A login in progress would store its tokens after this, and so would one that begins.
        let pending = self.0.with(url, |server| {
            server.is_logging_out = true;
            server.pending.clone()
        });
        let _end = EndLogout(&self.0, url);
        if let Some(pending) = pending {
            pending.cancel.notify_one();
            let _ = pending.login.await;
        }
        let store = &self.0.drivers.store;
        let _lock = store.lock(url).await.map_err(store_failed)?;
        // Another process may have newer tokens.
        let stored = store.load(url).await.map_err(store_failed)?;
        let (in_use, before) = self.0.with(url, |server| (server.session.clone(), server.stored));
        let session = stored.filter(|_| before != Stored::Outdated).unwrap_or(in_use);
        let outcome = match &session.tokens {
            None => Logout::NotLoggedIn,
            Some(tokens) => match self.revoke(url, &session, tokens).await {
                Ok(()) => Logout::Revoked,
                Err(reason) => Logout::NotRevoked(reason),
            },
        };
        store.delete(url).await.map_err(store_failed)?;
        self.0.forget(url);
        Ok(outcome)
    }

    async fn revoke(
        &self,
        url: &str,
        session: &StoredSession,
        tokens: &Tokens,
    ) -> Result<(), String> {
        let text = |error: BoxError| error.to_string();
        let server = ResourceId::new(url).map_err(|error| error.to_string())?;
        let issuer = Issuer::new(tokens.issuer.clone()).map_err(|error| error.to_string())?;
        let fetcher = self.0.drivers.fetcher(self.0.drivers.address_policy(&server));
        let fetcher = fetcher.map_err(|error| error.to_string())?;
        let metadata = self.metadata(&fetcher, &server, &issuer, tokens).await?;
        // A secret goes to the authorization server that it is for.
        self.0.bound_issuer.load(&*self.0.drivers.store, &self.0.options).await.map_err(text)?;
        let client = client_of_tokens(&self.0.options, session, &issuer, &self.0.bound_issuer);
        // A revoked refresh token takes its access tokens with it (RFC 7009, section 2.1).
        let (token, hint) = match &tokens.refresh_token {
            Some(token) => (token.clone(), "refresh_token"),
            None => (tokens.access_token.clone(), "access_token"),
        };
        let form = vec![("token", token), ("token_type_hint", hint.into())];
        let request = TokenRequest::revocation(&issuer, &metadata, client, form)
            .map_err(|error| error.to_string())?;
        let seed = Seed::random().map_err(|error| error.to_string())?;
        let request = request.write(None, &seed, self.0.drivers.now());
        let response = fetch(&fetcher, request.map_err(|error| error.to_string())?).await?;
        if response.status().is_success() {
            return Ok(());
        }
        Err(format!("{issuer} answered {}", response.status()))
    }

    /// Returns the metadata of the authorization server.
    async fn metadata(
        &self,
        fetcher: &Fetcher,
        server: &ResourceId,
        issuer: &Issuer,
        tokens: &Tokens,
    ) -> Result<ServerMetadata, String> {
        let text = |error: LoginError| error.to_string();
        let (resource, scopes) = (tokens.resource.clone(), Scopes::default());
        let mut found = Discovery::of_issuer(resource, issuer.clone(), scopes);
        loop {
            match found.map_err(text)? {
                Found::Fetch(discovery, url) => {
                    let response = fetch(fetcher, HttpRequest::get(url)).await;
                    let reason = response.as_ref().err().map_or("", String::as_str);
                    let options = &self.0.options;
                    found = discovery.response(response.as_ref().ok(), reason, server, options);
                }
                Found::Server { metadata, .. } => return Ok(metadata),
                Found::Resource(..) => return Err(format!("no metadata of {issuer}")),
            }
        }
    }
}
