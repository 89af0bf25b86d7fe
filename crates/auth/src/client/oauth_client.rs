//! The client: credentials that log in when the server asks for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, StatusCode};
use mrtr_transport::BoxError;
use mrtr_transport::http::{Attempt, AttemptResponse, CredentialFuture, Credentials};
use url::Url;

use super::drivers::Drivers;
use super::error::LoginError;
use super::login::Reason;
use super::logins::{EndLogins, Inner, Obtain};
use super::options::Options;
use super::proof_header::{sent_nonce, sent_token};
use super::random::Seed;
use super::secret::Secret;
use super::server::{Expiring, Server};
use super::session::StoredSession;
use crate::identifier::secure_url;
use crate::scope::Scopes;
use crate::www_authenticate::Challenge;

/// The number of attempts of a request after which a 401 is returned to the caller: after a refresh
/// and a login.
const MAX_LOGINS: u32 = 2;

/// An OAuth client: logs in when an MCP server asks for it, and authorizes the requests of an
/// [`HttpClient`](mrtr_transport::http::HttpClient) (specification: Authorization).
///
/// - The first request is sent without a token. The server's refusal says where tokens come from.
/// - Tokens are refreshed at 80 % of their lifetime, and when the server refuses them.
/// - If the server asks for further scopes, the user logs in for them, and the request is sent
///   again.
/// - Requests that wait for the same token share one login. It continues if they are dropped, and
///   ends with the last clone of the client. A token that was requested by then is still stored, in
///   a task of the runtime.
/// - It must be used in a tokio runtime with time and I/O enabled.
///
/// A client holds the tokens of one user, for any number of MCP servers. An application with
/// several users needs a client and a store for each. Clones share their tokens.
///
/// ```no_run
/// use mrtr_auth::client::{FileStore, Loopback, OAuthClient};
/// use mrtr_transport::http::HttpClient;
///
/// # fn open_browser(_: &str) -> std::io::Result<()> { Ok(()) }
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let oauth = OAuthClient::builder("Desk app")
///     .client_metadata_url("https://desk.example/client.json")
///     .user_agent(Loopback::new(|page| open_browser(page.url().as_str())))
///     .store(FileStore::for_application("desk").ok_or("no home directory")?)
///     .build()?;
/// let http = HttpClient::builder("https://booking.example/mcp").credentials(oauth).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OAuthClient(
    pub(super) Arc<Inner>,
    #[expect(dead_code, reason = "for its drop")] Arc<EndLogins>,
);

impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient").finish_non_exhaustive()
    }
}

impl Credentials for OAuthClient {
    fn headers<'a>(&'a self, attempt: Attempt<'a>) -> CredentialFuture<'a, HeaderMap> {
        Box::pin(self.headers_for(attempt))
    }

    fn should_repeat<'a>(
        &'a self,
        attempt: Attempt<'a>,
        response: AttemptResponse<'a>,
    ) -> CredentialFuture<'a, bool> {
        Box::pin(self.examine(attempt, response))
    }
}

impl OAuthClient {
    pub(super) fn new(options: Options, drivers: Drivers) -> Self {
        let (options, servers) = (Arc::new(options), Mutex::new(HashMap::new()));
        let inner = Arc::new(Inner { options, drivers, servers, bound_issuer: Arc::default() });
        Self(Arc::clone(&inner), Arc::new(EndLogins(inner)))
    }

    /// Logs in at the authorization server of the MCP server at `url`, and replaces the current
    /// tokens. Calling it is optional: the first request that the server refuses logs in, too.
    ///
    /// After the login of another user, clear the caches of clients
    /// (`Client::clear_cache` of `mrtr-client`).
    ///
    /// # Errors
    ///
    /// If the login fails, or during a [logout](Self::log_out). The present tokens are kept.
    pub async fn log_in(&self, url: &str) -> Result<(), Arc<LoginError>> {
        let url = &*normalized(url)?;
        self.0.load(url).await?;
        let refused = self.0.with(url, |server| {
            server.session.tokens.as_ref().map(|tokens| tokens.access_token.clone())
        });
        let obtain = Obtain {
            refused,
            may_refresh: false,
            is_explicit: true,
            ..Obtain::new(Reason::Challenged(vec![]))
        };
        self.0.obtain(url, obtain, |_| Ok(())).await
    }

    /// Returns what the client keeps about the MCP server at `url`.
    ///
    /// # Errors
    ///
    /// If `url` is not one of an MCP server, or the store cannot be read.
    pub async fn session(&self, url: &str) -> Result<StoredSession, LoginError> {
        let url = &*normalized(url)?;
        self.0.load(url).await?;
        Ok(self.0.with(url, |server| server.session.clone()))
    }

    async fn headers_for(&self, attempt: Attempt<'_>) -> Result<HeaderMap, BoxError> {
        let inner = &self.0;
        inner.load(attempt.url).await?;
        let now = inner.drivers.now();
        let expiring = inner.with(attempt.url, |server| server.expiring(now));
        if let Some(expiring) = expiring {
            let obtain = Obtain::new(Reason::Expiring);
            match inner.obtain(attempt.url, obtain, |_| Ok(())).await {
                Ok(()) => {}
                Err(error) if expiring == Expiring::Soon => {
                    tracing::warn!(target: "mrtr::auth", %error, "cannot refresh the access token");
                    inner.with(attempt.url, |server| server.refresh_failed(now));
                }
                // The request is sent without a token: the server's refusal starts a login.
                Err(error) if matches!(*error, LoginError::Expired) => {
                    inner.with(attempt.url, |server| server.session.tokens = None);
                }
                Err(error) if matches!(*error, LoginError::LoggingOut(_)) => {
                    return Err(error.into());
                }
                // The server may have another authorization server by now. Its refusal tells.
                Err(error) => {
                    tracing::warn!(target: "mrtr::auth", %error, "cannot renew the access token");
                }
            }
        }
        let seed = Seed::random()?;
        inner.with(attempt.url, |server| server.headers(&attempt, &seed, now))
    }

    async fn examine(
        &self,
        attempt: Attempt<'_>,
        response: AttemptResponse<'_>,
    ) -> Result<bool, BoxError> {
        let inner = &self.0;
        let nonce = response.headers.get("dpop-nonce").and_then(|value| value.to_str().ok());
        inner.with(attempt.url, |server| server.take_nonce(nonce));
        if !matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(false);
        }
        let header = response.www_authenticate().unwrap_or_default();
        let challenges = match Challenge::parse(&header) {
            Ok(challenges) => challenges,
            // Another token would not help.
            Err(_) if response.status == StatusCode::FORBIDDEN => return Ok(false),
            // The metadata is at a well-known address, too.
            Err(error) => {
                tracing::warn!(target: "mrtr::auth", %error, "ignoring a malformed challenge");
                Vec::new()
            }
        };
        let has_error =
            |code| challenges.iter().any(|challenge| challenge.param("error") == Some(code));
        let sent = sent_token(attempt.headers);
        let is_replaced = inner.with(attempt.url, |server| {
            server.session.tokens.as_ref().map(|tokens| tokens.access_token.expose()) != sent
        });
        if response.status == StatusCode::FORBIDDEN {
            if !has_error("insufficient_scope") {
                return Ok(false);
            }
            if !is_replaced {
                self.upgrade(&attempt, challenges, sent).await?;
            }
            return Ok(true);
        }
        if has_error("use_dpop_nonce") {
            // The token is good. Another request may have got the same nonce.
            return Ok(nonce.is_some() && sent_nonce(attempt.headers).as_deref() != nonce);
        }
        if is_replaced {
            return Ok(true);
        }
        if attempt.number > MAX_LOGINS {
            return Ok(false);
        }
        let obtain = Obtain {
            refused: sent.map(Secret::from),
            // In the second attempt, the token is as new as a refresh can make it.
            may_refresh: attempt.number == 1,
            ..Obtain::new(Reason::Challenged(challenges))
        };
        inner.obtain(attempt.url, obtain, |_| Ok(())).await?;
        Ok(true)
    }

    /// Logs in for further scopes (specification: step-up authorization flow).
    async fn upgrade(
        &self,
        attempt: &Attempt<'_>,
        challenges: Vec<Challenge>,
        sent: Option<&str>,
    ) -> Result<(), BoxError> {
        let named = challenges.iter().find_map(|challenge| challenge.param("scope"));
        let asked = Scopes::parse(named.unwrap_or_default()).map_err(LoginError::from)?;
        let now = self.0.drivers.now();
        let refused = sent.map(Secret::from);
        let obtain = Obtain { refused, ..Obtain::new(Reason::MoreScopes(challenges)) };
        // Only the request that begins the login counts.
        let count = |server: &mut Server| {
            let granted = server.session.scopes().unwrap_or_default();
            let granted = Scopes::parse(granted).unwrap_or_default();
            if !asked.is_empty() && granted.contains_all(&asked) {
                return Err(LoginError::StillRefused(asked));
            }
            server.upgrades.count(attempt.headers, now)
        };
        Ok(self.0.obtain(attempt.url, obtain, count).await?)
    }
}

/// Returns the URL of a server in the form in which requests have it.
///
/// # Errors
///
/// If it is not the URL of an MCP server that tokens may be sent to.
pub(super) fn normalized(url: &str) -> Result<String, LoginError> {
    secure_url("server URL", url)?;
    Ok(Url::parse(url).map_or_else(|_| url.to_owned(), Into::into))
}
