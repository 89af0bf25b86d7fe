//! The settings of a login.

use url::Url;

use super::registration::ClientRegistration;
use crate::identifier::Issuer;
use crate::scope::Scopes;

/// What a client is allowed and able to do, without its drivers.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) client_name: String,
    pub(crate) grant: Grant,
    /// The URL of the client's metadata, which serves as its ID.
    pub(crate) client_metadata_url: Option<String>,
    /// Clients that were registered beforehand. Without an issuer, the client is bound to the first
    /// one to which its credentials are sent.
    pub(crate) registered: Vec<(Option<Issuer>, ClientRegistration)>,
    /// Scopes to ask for in addition to those that the server names.
    pub(crate) scopes: Scopes,
    /// Authorization servers that support PKCE, though their metadata does not say so.
    pub(crate) trusted_for_pkce: Vec<Issuer>,
    /// The origin of the MCP server is the issuer if the server has no metadata, as in revision
    /// 2025-03-26.
    pub(crate) origin_as_issuer: bool,
    pub(crate) dpop: DpopMode,
    /// Requests for refresh tokens ask the user for consent each time.
    pub(crate) prompts_consent: bool,
}

impl Options {
    /// Returns the client that was registered beforehand at an issuer, or else the one that was
    /// registered without one.
    pub(crate) fn registered_at(
        &self,
        issuer: &Issuer,
    ) -> Option<&(Option<Issuer>, ClientRegistration)> {
        let bound = self.registered.iter().find(|(known, _)| known.as_ref() == Some(issuer));
        bound.or_else(|| self.registered.iter().find(|(known, _)| known.is_none()))
    }
}

/// How the client obtains tokens.
#[derive(Debug, Clone)]
pub(crate) enum Grant {
    /// The user logs in.
    AuthorizationCode,
    /// The client acts for itself.
    ClientCredentials,
    /// A token of the platform on which the client runs is exchanged (RFC 7523).
    JwtBearer,
    /// A login at an identity provider is exchanged (enterprise-managed authorization).
    IdentityAssertion(IdentityProvider),
}

/// An identity provider that issues assertions for other authorization servers.
#[derive(Debug, Clone)]
pub(crate) struct IdentityProvider {
    pub(crate) token_endpoint: Url,
    pub(crate) client: ClientRegistration,
    /// A refresh token of the identity provider can stand in for the ID token.
    pub(crate) has_refresh_token: bool,
}

/// When tokens are bound to a key of the client (RFC 9449).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DpopMode {
    /// If the server asks for it.
    #[default]
    IfAsked,
    /// Always. A token that is not bound is not accepted.
    Required,
}
