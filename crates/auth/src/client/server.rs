//! What a client knows about one MCP server.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::Shared;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use mrtr_transport::BoxError;
use mrtr_transport::http::Attempt;
use tokio::sync::Notify;
use url::Url;

use super::dpop::Proof;
use super::error::LoginError;
use super::key::key_of;
use super::random::Seed;
use super::session::{StoredSession, Tokens};
use super::signing_key::SigningKey;
use super::upgrades::Upgrades;

/// The future of a login in progress.
pub(super) type LoginFuture = Pin<Box<dyn Future<Output = Result<(), Arc<LoginError>>> + Send>>;

/// How long a refresh is not tried again after it has failed, in seconds.
const REFRESH_PAUSE: u64 = 60;

/// What is known about one MCP server.
#[derive(Default)]
pub(super) struct Server {
    pub(super) is_loaded: bool,
    pub(super) stored: Stored,
    pub(super) session: StoredSession,
    key: Option<SigningKey>,
    /// The nonce that the server wants in the next proof.
    nonce: Option<String>,
    /// The time before which no refresh is tried.
    refresh_after: u64,
    pub(super) upgrades: Upgrades,
    /// The login in progress. All requests that need a token share it.
    pub(super) pending: Option<Pending>,
    /// True while the tokens are being revoked and deleted.
    pub(super) is_logging_out: bool,
}

/// What the store has, unless another process has changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stored {
    #[default]
    Nothing,
    /// The session in use.
    Session,
    /// The session in use could not be stored. There may be an older one.
    Outdated,
}

/// A login in progress.
#[derive(Clone)]
pub(super) struct Pending {
    pub(super) login: Shared<LoginFuture>,
    /// Ends the login, unless it has requested a token: the response must be stored.
    pub(super) cancel: Arc<Notify>,
    /// True if it refreshes a token that expires, and does not ask the user.
    pub(super) is_refresh: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiring {
    Soon,
    Expired,
}

impl Server {
    pub(super) fn adopt(&mut self, session: StoredSession) {
        let is_bound = session.tokens.as_ref().is_some_and(|tokens| tokens.is_bound);
        // A key that cannot be read costs a login.
        self.key = if is_bound { key_of(&session) } else { None };
        self.session = session;
        self.is_loaded = true;
    }

    pub(super) fn expiring(&self, now: u64) -> Option<Expiring> {
        let tokens = self.session.tokens.as_ref()?;
        if tokens.expires_at.is_some_and(|at| at <= now) {
            return Some(Expiring::Expired);
        }
        // A login may take as long as the user does, and brings another token anyway.
        let logs_in = self.pending.as_ref().is_some_and(|pending| !pending.is_refresh);
        let is_due = tokens.refresh_at.is_some_and(|at| at <= now && self.refresh_after <= now);
        (is_due && !logs_in).then_some(Expiring::Soon)
    }

    /// Pauses refreshes for a while.
    pub(super) fn refresh_failed(&mut self, now: u64) {
        self.refresh_after = now.saturating_add(REFRESH_PAUSE);
    }

    /// Remembers the nonce of a response.
    pub(super) fn take_nonce(&mut self, nonce: Option<&str>) {
        if let Some(nonce) = nonce.filter(|nonce| nonce.len() <= 1024) {
            self.nonce = Some(nonce.to_owned());
        }
    }

    pub(super) fn headers(
        &self,
        attempt: &Attempt<'_>,
        seed: &Seed,
        now: u64,
    ) -> Result<HeaderMap, BoxError> {
        let mut headers = HeaderMap::new();
        let Some(tokens) = &self.session.tokens else { return Ok(headers) };
        let Tokens { access_token, is_bound, .. } = tokens;
        let scheme = if *is_bound { "DPoP" } else { "Bearer" };
        let value = format!("{scheme} {}", access_token.expose());
        headers.insert(header::AUTHORIZATION, secret_value(&value)?);
        if let (true, Some(key)) = (*is_bound, &self.key) {
            let (url, jti) = (Url::parse(attempt.url)?, seed.derive("request proof"));
            let proof = Proof::new(attempt.method.as_str(), &url, &jti, now)
                .with_token(access_token.expose())
                .with_nonce(self.nonce.as_deref());
            headers.insert(HeaderName::from_static("dpop"), secret_value(&proof.sign(key)?)?);
        }
        Ok(headers)
    }
}

fn secret_value(text: &str) -> Result<HeaderValue, BoxError> {
    let mut value = HeaderValue::from_str(text)?;
    value.set_sensitive(true);
    Ok(value)
}
