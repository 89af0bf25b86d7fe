//! What a client keeps about a server: its tokens, and the clients that it has registered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::registration::DynamicClient;
use super::secret::Secret;

/// The format of stored sessions. Others are ignored.
const FORMAT: u32 = 1;

/// The tokens for one MCP server, and the clients that were registered at its authorization
/// servers, for a [`TokenStore`](super::TokenStore) to keep.
///
/// It serializes as JSON, which contains secrets. Its [`Debug`] form does not show them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSession {
    pub(crate) format: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<Tokens>,
    /// By issuer: a client that one authorization server knows is unknown to others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) clients: BTreeMap<String, DynamicClient>,
    /// The authorization server that a client is bound to. Not of a server, but stored like one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound_issuer: Option<String>,
    /// The private key that tokens are bound to, as PKCS #8 in base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dpop_key: Option<Secret>,
}

impl Default for StoredSession {
    fn default() -> Self {
        Self {
            format: FORMAT,
            tokens: None,
            clients: BTreeMap::new(),
            bound_issuer: None,
            dpop_key: None,
        }
    }
}

impl StoredSession {
    /// Returns true if the session has a format that this version can read.
    pub fn is_readable(&self) -> bool {
        self.format == FORMAT
    }

    /// Returns true if the user is logged in: there is a token, which may have expired.
    pub fn is_logged_in(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns true if only the user can obtain a token: there is none, or it has expired at `now`
    /// and cannot be replaced. `now` is in seconds since 1970.
    pub fn needs_login(&self, now: u64) -> bool {
        let has_expired = self.expires_at().is_some_and(|expires_at| expires_at <= now);
        !self.is_logged_in() || (has_expired && !self.has_refresh_token())
    }

    /// Returns the issuer of the tokens.
    pub fn issuer(&self) -> Option<&str> {
        self.tokens.as_ref().map(|tokens| tokens.issuer.as_str())
    }

    /// Returns the ID of the client that the tokens were issued to.
    pub fn client_id(&self) -> Option<&str> {
        self.tokens.as_ref().map(|tokens| tokens.client_id.as_str())
    }

    /// Returns the scopes of the access token, separated by spaces.
    pub fn scopes(&self) -> Option<&str> {
        self.tokens.as_ref().map(|tokens| tokens.granted.as_str())
    }

    /// Returns the time in seconds since 1970 at which the access token expires; `None` if that is
    /// not known.
    pub fn expires_at(&self) -> Option<u64> {
        self.tokens.as_ref()?.expires_at
    }

    /// Returns true if the access token can be replaced without the user.
    pub fn has_refresh_token(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.refresh_token.is_some())
    }
}

/// The tokens of a client for a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) client_id: String,
    pub(crate) access_token: Secret,
    /// True if the token is sent with a proof (`DPoP`).
    #[serde(default)]
    pub(crate) is_bound: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<Secret>,
    /// The time from which the token should be refreshed: at 80 % of its lifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<u64>,
    /// The scopes that were asked for.
    #[serde(default)]
    pub(crate) requested: String,
    #[serde(default)]
    pub(crate) granted: String,
}
