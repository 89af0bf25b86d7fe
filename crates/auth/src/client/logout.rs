//! Logging out (RFC 7009).

use std::sync::Arc;

use super::error::{LoginError, driver};
use super::fetch::Fetcher;
use super::message::HttpRequest;
use super::oauth_client::OAuthClient;
use super::random::Seed;
use super::registration::{ClientRegistration, DynamicClient};
use super::session::{StoredSession, Tokens};
use super::token::TokenRequest;
use crate::identifier::{Issuer, ResourceId};
use crate::metadata::ServerMetadata;

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

impl OAuthClient {
    /// Deletes the session with the MCP server at `url`, with its registered clients, and asks the
    /// authorization server to revoke the tokens.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or written. If the authorization server cannot revoke the
    /// tokens, they are deleted nonetheless.
    pub async fn log_out(&self, url: &str) -> Result<Logout, LoginError> {
        let session = self.session(url).await?;
        let outcome = match &session.tokens {
            None => Logout::NotLoggedIn,
            Some(tokens) => match self.revoke(url, &session, tokens).await {
                Ok(()) => Logout::Revoked,
                Err(reason) => Logout::NotRevoked(reason),
            },
        };
        let deleted = self.0.drivers.store.delete(url).await;
        deleted.map_err(|error| driver("the token store", &error))?;
        self.0.forget(url);
        Ok(outcome)
    }

    async fn revoke(
        &self,
        url: &str,
        session: &StoredSession,
        tokens: &Tokens,
    ) -> Result<(), String> {
        let server = ResourceId::new(url).map_err(|error| error.to_string())?;
        let issuer = Issuer::new(tokens.issuer.clone()).map_err(|error| error.to_string())?;
        let fetcher = self.0.drivers.fetcher(self.0.drivers.address_policy(&server));
        let fetcher = fetcher.map_err(|error| error.to_string())?;
        let metadata = metadata(&fetcher, &issuer).await?;
        let registered = self.0.options.registered.iter().map(|(_, client)| client.clone());
        let known = session.clients.get(issuer.as_str()).map(DynamicClient::registration);
        let client = registered.chain(known).find(|client| client.id() == tokens.client_id);
        let client = client.unwrap_or_else(|| ClientRegistration::public(&tokens.client_id));
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
        let response = fetcher.fetch(request.map_err(|error| error.to_string())?).await?;
        if response.status().is_success() {
            return Ok(());
        }
        Err(format!("{issuer} answered {}", response.status()))
    }
}

async fn metadata(fetcher: &Arc<Fetcher>, issuer: &Issuer) -> Result<ServerMetadata, String> {
    let mut failure = format!("no metadata of {issuer}");
    for url in issuer.metadata_urls() {
        match fetcher.fetch(HttpRequest::get(url)).await {
            Ok(response) if response.status().is_success() => {
                return ServerMetadata::parse(response.body(), issuer)
                    .map_err(|error| error.to_string());
            }
            Ok(response) => failure = format!("{issuer} answered {}", response.status()),
            Err(reason) => failure = reason,
        }
    }
    Err(failure)
}
