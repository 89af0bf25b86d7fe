//! Failures of logins.

use crate::client::authorization::CallbackError;
use crate::client::signing_key::InvalidKey;
use crate::identifier::{InvalidUrl, Issuer};
use crate::metadata::MetadataError;
use crate::quote::quote;
use crate::scope::{InvalidScope, Scopes};

/// The error of a login. No message contains a token, a code or a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// The challenge of the server names an invalid scope.
    #[error("the server asked for an {0}")]
    Scope(#[from] InvalidScope),
    /// The server, which must tell where its tokens come from, has no usable metadata.
    #[error("no usable protected resource metadata for {server}: {reason}")]
    NoResourceMetadata {
        /// The URL of the server.
        server: String,
        /// The last attempt.
        reason: String,
    },
    /// The metadata is that of another resource: a token for it would not be one for this server.
    #[error("the metadata of {server} names another resource, {}", quote(resource))]
    OtherResource {
        /// The URL of the server.
        server: String,
        /// The resource in the metadata.
        resource: String,
    },
    /// The metadata of the server is not usable.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// None of the authorization servers has usable metadata.
    #[error("no usable metadata of the authorization server {issuer}: {reason}")]
    NoServerMetadata {
        /// The authorization server.
        issuer: Issuer,
        /// The most informative failure.
        reason: String,
    },
    /// The authorization server does not say that it supports PKCE (specification: authorization
    /// code protection).
    #[error(
        "{0} does not say that it supports PKCE with S256, so the login is refused; if you know that \
         it does, allow it with `trust_for_pkce`"
    )]
    NoPkce(Issuer),
    /// The client is not registered, and there is no way to register it.
    #[error(
        "no client for {0}: it supports neither client ID metadata documents nor dynamic \
         registration, or the client has no metadata URL; register a client there and pass it with \
         `registered`"
    )]
    NoClient(Issuer),
    /// A client that was registered beforehand is bound to another authorization server.
    #[error(
        "the MCP server names the authorization server {found}, but the client is registered at {expected}"
    )]
    ClientOfOtherIssuer {
        /// The authorization server that knows the client.
        expected: String,
        /// The authorization server that the MCP server names.
        found: Issuer,
    },
    /// The authorization server refused to register the client.
    #[error("{issuer} refused to register the client: {error}")]
    RegistrationRefused {
        /// The authorization server.
        issuer: Issuer,
        /// The error code (RFC 7591, section 3.2.2), or the status.
        error: String,
    },
    /// The authorization server lacks something that the login needs.
    #[error("cannot log in at {issuer}: {reason}")]
    Unsupported {
        /// The authorization server.
        issuer: Issuer,
        /// The rule.
        reason: String,
    },
    /// The response to the authorization request was refused.
    #[error(transparent)]
    Callback(#[from] CallbackError),
    /// An assertion is not meant for the authorization server that the MCP server names. It is not
    /// sent.
    #[error(
        "the `aud` of the assertion is not {0}, the authorization server that the MCP server names"
    )]
    AssertionForOther(Issuer),
    /// The URL of the server is not one that tokens may be sent to.
    #[error(transparent)]
    Url(#[from] InvalidUrl),
    /// The authorization server refused the grant.
    #[error("{issuer} refused to issue a token: {error}")]
    TokenRefused {
        /// The authorization server.
        issuer: Issuer,
        /// The error code (RFC 6749, section 5.2).
        error: String,
    },
    /// The authorization server failed. Another attempt may succeed.
    #[error("{issuer} issued no token: {reason}")]
    TokenFailed {
        /// The authorization server.
        issuer: Issuer,
        /// The reason.
        reason: String,
    },
    /// The token is not bound to the key of the client, though it must be.
    #[error("{0} issued a token that is not bound to the key of the client (DPoP)")]
    NotBound(Issuer),
    /// The redirect URI of the user agent is not one that a code may be sent to (RFC 8252, section
    /// 7).
    #[error("the user agent has the redirect URI {}, but {reason}", quote(redirect_uri))]
    RedirectUri {
        /// The redirect URI.
        redirect_uri: String,
        /// The rule.
        reason: &'static str,
    },
    /// The client is being logged out.
    #[error("cannot log in to {0}: a logout is in progress; try again when it has ended")]
    LoggingOut(String),
    /// The user has to log in, and the client cannot ask: it has no user agent.
    #[error("the server demands a login, and the client has no user agent for it")]
    NoUserAgent,
    /// The user has to log in again.
    #[error("the login has expired")]
    Expired,
    /// The server refused a token that has all the scopes that it asks for.
    #[error("the MCP server asked for the scopes {0}, and refused a token that has them")]
    StillRefused(Scopes),
    /// The server asked for further scopes too often.
    #[error("the server asked for further scopes {0} times for the same operation")]
    TooManyUpgrades(u32),
    /// A private key is not usable.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// A replaceable part of the client failed: the user agent, the store, or the source of
    /// assertions.
    #[error("{what} failed: {reason}")]
    Driver {
        /// The driver.
        what: &'static str,
        /// Its error.
        reason: String,
    },
}

pub(super) fn driver(what: &'static str, error: &(impl ToString + ?Sized)) -> LoginError {
    LoginError::Driver { what, reason: error.to_string() }
}
