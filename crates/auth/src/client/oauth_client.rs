//! The client: credentials that log in when the server asks for it.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use futures_util::future::Shared;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use mrtr_transport::BoxError;
use mrtr_transport::http::{Attempt, AttemptResponse, CredentialFuture, Credentials};
use url::Url;

use super::dpop::Proof;
use super::drivers::Drivers;
use super::error::{LoginError, driver};
use super::login::{Action, Event, Login, Moment, Reason};
use super::options::{Grant, Options};
use super::random::Seed;
use super::secret::Secret;
use super::session::{StoredSession, Tokens};
use super::signing_key::SigningKey;
use super::upgrades::Upgrades;
use super::user_agent::CallbackReceiver;
use crate::identifier::ResourceId;
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
/// - Requests that wait for the same token share one login. It continues if one of them is dropped.
///
/// One client serves any number of MCP servers. Clones share their tokens.
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
pub struct OAuthClient(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) options: Arc<Options>,
    pub(super) drivers: Drivers,
    pub(super) servers: Mutex<HashMap<String, Server>>,
}

/// What is known about one MCP server.
#[derive(Default)]
pub(super) struct Server {
    is_loaded: bool,
    session: StoredSession,
    key: Option<SigningKey>,
    /// The nonce that the server wants in the next proof.
    nonce: Option<String>,
    upgrades: Upgrades,
    /// The login in progress. All requests that need a token share it.
    pending: Option<Shared<LoginFuture>>,
}

type LoginFuture = Pin<Box<dyn Future<Output = Result<(), Arc<LoginError>>> + Send>>;

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
    /// Logs in at the authorization server of the MCP server at `url`, with other tokens than the
    /// present ones. Without a call, requests log in when the server asks for it.
    ///
    /// # Errors
    ///
    /// If the login fails. The present tokens are kept.
    pub async fn log_in(&self, url: &str) -> Result<(), Arc<LoginError>> {
        self.0.load(url).await.map_err(Arc::new)?;
        let refused = self.0.with(url, |server| {
            let tokens = server.session.tokens.as_mut()?;
            // With a refresh token, the user would not be asked.
            tokens.refresh_token = None;
            Some(tokens.access_token.clone())
        });
        let refused = refused.as_ref().map(Secret::expose);
        self.obtain(url, Reason::Challenged(Vec::new()), refused).await
    }

    /// Returns what the client keeps about the MCP server at `url`.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn session(&self, url: &str) -> Result<StoredSession, LoginError> {
        self.0.load(url).await?;
        Ok(self.0.with(url, |server| server.session.clone()))
    }

    async fn headers_for(&self, attempt: Attempt<'_>) -> Result<HeaderMap, BoxError> {
        let inner = &self.0;
        inner.load(attempt.url).await?;
        let now = inner.drivers.now();
        let expiring = inner.with(attempt.url, |server| server.expiring(now));
        if expiring == Some(Expiring::Soon) || expiring == Some(Expiring::Expired) {
            match self.obtain(attempt.url, Reason::Expiring, None).await {
                Ok(()) => {}
                Err(error) if expiring == Some(Expiring::Soon) => {
                    tracing::warn!(target: "mrtr::auth", %error, "cannot refresh the access token");
                }
                // The request is sent without a token: the server's refusal starts a login.
                Err(error) if matches!(*error, LoginError::Expired) => {
                    inner.with(attempt.url, |server| server.session.tokens = None);
                }
                Err(error) => return Err(error.into()),
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
        let is_new_nonce = inner.with(attempt.url, |server| server.take_nonce(nonce));
        if !matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Ok(false);
        }
        let challenges = response.www_authenticate().unwrap_or_default();
        let challenges = Challenge::parse(&challenges).map_err(LoginError::from)?;
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
            return if is_replaced {
                Ok(true)
            } else {
                self.upgrade(&attempt, challenges, sent).await.map(|()| true)
            };
        }
        if has_error("use_dpop_nonce") && is_new_nonce || is_replaced {
            return Ok(true);
        }
        if attempt.number > MAX_LOGINS {
            return Ok(false);
        }
        if attempt.number > 1 {
            // The token is as new as a refresh can make it.
            inner.with(attempt.url, |server| {
                if let Some(tokens) = &mut server.session.tokens {
                    tokens.refresh_token = None;
                }
            });
        }
        self.obtain(attempt.url, Reason::Challenged(challenges), sent).await?;
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
        self.0.with(attempt.url, |server| {
            let granted = server.session.scopes().unwrap_or_default();
            let granted = Scopes::parse(granted).unwrap_or_default();
            if granted.contains_all(&asked) {
                return Err(LoginError::StillRefused(asked));
            }
            server.upgrades.count(attempt.headers, now)
        })?;
        self.obtain(attempt.url, Reason::MoreScopes(challenges), sent).await?;
        Ok(())
    }

    /// Obtains a token, or waits for the login in progress. `refused` is the token that is to be
    /// replaced.
    async fn obtain(
        &self,
        url: &str,
        reason: Reason,
        refused: Option<&str>,
    ) -> Result<(), Arc<LoginError>> {
        let pending = self.0.with(url, |server| {
            let (inner, url) = (Arc::clone(&self.0), url.to_owned());
            let refused = refused.map(Secret::from);
            server
                .pending
                .get_or_insert_with(|| {
                    let login = inner.run(url, reason, refused);
                    // A shared future that panics would panic in every request that waits for it.
                    let login = AssertUnwindSafe(login).catch_unwind().map(|result| {
                        let panicked = || driver("a driver of the login", "it panicked");
                        result.unwrap_or_else(|_| Err(panicked())).map_err(Arc::new)
                    });
                    (Box::pin(login) as LoginFuture).shared()
                })
                .clone()
        });
        let result = pending.clone().await;
        self.0.with(url, |server| {
            if server.pending.as_ref().is_some_and(|other| other.ptr_eq(&pending)) {
                server.pending = None;
            }
        });
        result
    }
}

impl Inner {
    pub(super) fn with<T>(&self, url: &str, change: impl FnOnce(&mut Server) -> T) -> T {
        let mut servers = self.lock();
        match servers.get_mut(url) {
            Some(server) => change(server),
            None => change(servers.entry(url.to_owned()).or_default()),
        }
    }

    /// Forgets a server.
    pub(super) fn forget(&self, url: &str) {
        self.lock().remove(url);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the stored session, once.
    pub(super) async fn load(&self, url: &str) -> Result<(), LoginError> {
        if self.with(url, |server| server.is_loaded) {
            return Ok(());
        }
        let stored = self.drivers.store.load(url).await;
        let stored = stored.map_err(|error| driver("the token store", &error))?;
        self.with(url, |server| {
            // Another request may have loaded it, and logged in since.
            if !server.is_loaded {
                server.adopt(stored.unwrap_or_default());
            }
        });
        Ok(())
    }

    /// Obtains a token for a server, and stores it.
    async fn run(
        self: Arc<Self>,
        url: String,
        reason: Reason,
        refused: Option<Secret>,
    ) -> Result<(), LoginError> {
        let store = &self.drivers.store;
        let lock = store.lock(&url).await.map_err(|error| driver("the token store", &error))?;
        let stored = store.load(&url).await.map_err(|error| driver("the token store", &error))?;
        let in_use = self.with(&url, |server| server.session.clone());
        let session = stored.unwrap_or_else(|| in_use.clone());
        // Another process may have obtained a token meanwhile.
        if let Some(tokens) = &session.tokens
            && session != in_use
            && Some(&tokens.access_token) != refused.as_ref()
            && tokens.expires_at.is_none_or(|expires_at| self.drivers.now() < expires_at)
        {
            self.with(&url, |server| server.adopt(session));
            return Ok(());
        }
        // A refused refresh token may have been taken out of the session in use.
        let session = if session.tokens.as_ref().map(|tokens| &tokens.access_token)
            == in_use.tokens.as_ref().map(|tokens| &tokens.access_token)
        {
            in_use
        } else {
            session
        };
        let session = self.drive(&url, reason, session).await?;
        store.save(&url, &session).await.map_err(|error| driver("the token store", &error))?;
        drop(lock);
        self.with(&url, |server| server.adopt(session));
        Ok(())
    }

    /// Carries out the actions of a login.
    async fn drive(
        &self,
        url: &str,
        reason: Reason,
        mut session: StoredSession,
    ) -> Result<StoredSession, LoginError> {
        let server = ResourceId::new(url).map_err(|error| LoginError::NoResourceMetadata {
            server: url.to_owned(),
            reason: error.to_string(),
        })?;
        let asks_user = matches!(self.options.grant, Grant::AuthorizationCode)
            && !matches!(reason, Reason::Expiring);
        let mut receiver = if asks_user { Some(self.prepare(&session).await?) } else { None };
        let redirect_uri = receiver.as_ref().map_or("", |receiver| receiver.redirect_uri());
        let (key, stored_key) = key_of(&session)?;
        let policy = self.drivers.address_policy(&server);
        let fetcher = self.drivers.fetcher(policy)?;
        // A login for tokens that are not bound leaves the key out again.
        session.dpop_key = Some(stored_key);
        let mut login = Login::new(
            Arc::clone(&self.options),
            server,
            redirect_uri.to_owned(),
            reason,
            session,
            key,
        );
        let mut action = login.start(&self.moment()?)?;
        loop {
            let event = match action {
                Action::Fetch(request) => {
                    tracing::debug!(target: "mrtr::auth", ?request, "login");
                    match fetcher.fetch(request).await {
                        Ok(response) => Event::Response(response),
                        Err(reason) => Event::NoResponse(reason),
                    }
                }
                Action::Assertion { issuer, resource } => {
                    let source = self.drivers.assertion.as_ref();
                    let source = source.ok_or_else(|| driver("the assertion source", "none"))?;
                    let assertion = source.assertion(issuer.as_str(), &resource).await;
                    Event::Assertion(
                        assertion.map_err(|error| driver("the assertion source", &error))?,
                    )
                }
                Action::Authorize(page) => {
                    let receiver = receiver.take();
                    let receiver =
                        receiver.ok_or_else(|| driver("the user agent", "used twice"))?;
                    let callback = receiver.authorize(page).await;
                    Event::Callback(callback.map_err(|error| driver("the user agent", &error))?)
                }
                Action::Finish(mut session) => {
                    if !session.tokens.as_ref().is_some_and(|tokens| tokens.is_bound) {
                        session.dpop_key = None;
                    }
                    let issuer = session.issuer();
                    tracing::info!(target: "mrtr::auth", issuer, "obtained an access token");
                    return Ok(*session);
                }
            };
            action = login.handle(event, &self.moment()?)?;
        }
    }

    async fn prepare(
        &self,
        session: &StoredSession,
    ) -> Result<Box<dyn CallbackReceiver>, LoginError> {
        let user_agent = self.drivers.user_agent.as_ref();
        let user_agent = user_agent.ok_or(LoginError::NoUserAgent)?;
        let current = session.issuer().and_then(|issuer| session.clients.get(issuer));
        let registered = current.or_else(|| session.clients.values().next());
        let preferred = registered.map(|client| client.redirect_uri.as_str());
        user_agent.prepare(preferred).await.map_err(|error| driver("the user agent", &error))
    }

    fn moment(&self) -> Result<Moment, LoginError> {
        let seed = Seed::random().map_err(|error| driver("the operating system", &error))?;
        Ok(Moment { now: self.drivers.now(), seed })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiring {
    Soon,
    Expired,
}

impl Server {
    fn adopt(&mut self, session: StoredSession) {
        let is_bound = session.tokens.as_ref().is_some_and(|tokens| tokens.is_bound);
        // A key that cannot be read costs a login.
        self.key = key_of(&session).ok().filter(|_| is_bound).map(|(key, _)| key);
        self.session = session;
        self.is_loaded = true;
    }

    fn expiring(&self, now: u64) -> Option<Expiring> {
        let tokens = self.session.tokens.as_ref()?;
        if tokens.expires_at.is_some_and(|at| at <= now) {
            Some(Expiring::Expired)
        } else if tokens.refresh_at.is_some_and(|at| at <= now) {
            Some(Expiring::Soon)
        } else {
            None
        }
    }

    /// Remembers the nonce of a response. Returns true if it is another one than before.
    fn take_nonce(&mut self, nonce: Option<&str>) -> bool {
        match nonce {
            Some(nonce) if nonce.len() <= 1024 && self.nonce.as_deref() != Some(nonce) => {
                self.nonce = Some(nonce.to_owned());
                true
            }
            _ => false,
        }
    }

    fn headers(&self, attempt: &Attempt<'_>, seed: &Seed, now: u64) -> Result<HeaderMap, BoxError> {
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

/// Returns the token that was sent with a request.
fn sent_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value.split_once(' ').map(|(_, token)| token)
}

/// Returns the key of a session, or a new one, and its stored form.
fn key_of(session: &StoredSession) -> Result<(SigningKey, Secret), LoginError> {
    let stored = session.dpop_key.as_ref().and_then(|stored| {
        let der = zeroize::Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(stored.expose()).ok()?);
        Some((SigningKey::from_pkcs8(&der, "ES256").ok()?, stored.clone()))
    });
    if let Some(stored) = stored {
        return Ok(stored);
    }
    let der = SigningKey::generate()?;
    let stored = Secret::new(BASE64_URL_SAFE_NO_PAD.encode(&*der));
    Ok((SigningKey::from_pkcs8(&der, "ES256")?, stored))
}
