//! Logins in progress: one for each server at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use tokio::sync::Notify;

use super::bound_issuer::BoundIssuer;
use super::drivers::Drivers;
use super::error::{LoginError, driver};
use super::fetch::fetch;
use super::key::{key_of, new_key};
use super::login::{Action, Event, Login, Moment, Reason, Settings, Subject};
use super::options::{Grant, Options};
use super::random::Seed;
use super::redirect_uri;
use super::secret::Secret;
use super::server::{LoginFuture, Pending, Server, Stored};
use super::session::StoredSession;
use super::user_agent::{CallbackReceiver, UserAgent};
use crate::fetch::Fetcher;
use crate::identifier::{ResourceId, shown};

/// The parts that clones of a client share.
pub(super) struct Inner {
    pub(super) options: Arc<Options>,
    pub(super) drivers: Drivers,
    pub(super) servers: Mutex<HashMap<String, Server>>,
    pub(super) bound_issuer: Arc<BoundIssuer>,
}

/// Ends the logins in progress when the last clone of a client is dropped.
pub(super) struct EndLogins(pub(super) Arc<Inner>);

impl Drop for EndLogins {
    fn drop(&mut self) {
        for pending in self.0.lock().values().filter_map(|server| server.pending.as_ref()) {
            pending.cancel.notify_one();
        }
    }
}

/// Why a token is needed.
pub(super) struct Obtain {
    pub(super) reason: Reason,
    /// The token that is to be replaced.
    pub(super) refused: Option<Secret>,
    /// False if the user is to log in, although there is a refresh token.
    pub(super) may_refresh: bool,
    /// True if the application asks for the login: no other token will do.
    pub(super) is_explicit: bool,
}

impl Obtain {
    pub(super) fn new(reason: Reason) -> Self {
        Self { reason, refused: None, may_refresh: true, is_explicit: false }
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

    /// Forgets a server, and ends its login in progress.
    pub(super) fn forget(&self, url: &str) {
        if let Some(Server { pending: Some(pending), .. }) = self.lock().remove(url) {
            pending.cancel.notify_one();
        }
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
                server.stored = if stored.is_some() { Stored::Session } else { Stored::Nothing };
                server.adopt(stored.unwrap_or_default());
            }
        });
        Ok(())
    }

    /// Obtains a token, or waits for the login in progress. `begin` is called if there is none.
    ///
    /// The login continues in a task of its own if this future is dropped.
    pub(super) async fn obtain(
        self: &Arc<Self>,
        url: &str,
        obtain: Obtain,
        begin: impl FnOnce(&mut Server) -> Result<(), LoginError>,
    ) -> Result<(), Arc<LoginError>> {
        let is_refresh = matches!(obtain.reason, Reason::Expiring);
        let is_explicit = obtain.is_explicit;
        let mut own = Some((obtain, begin));
        loop {
            while let Some(pending) = self.with(url, |server| server.pending.clone()) {
                let outcome = pending.login.await;
                // After a failed refresh, a caller that needs a login still begins one. An explicit
                // login does not accept the outcome of another login.
                let is_enough = is_refresh || !pending.is_refresh || outcome.is_ok();
                if is_enough && !is_explicit {
                    return outcome;
                }
            }
            let spawned = self.with(url, |server| {
                // Another request may have begun one meanwhile.
                let Some((obtain, begin)) = own.take_if(|_| server.pending.is_none()) else {
                    return Ok(None);
                };
                if server.is_logging_out {
                    return Err(LoginError::LoggingOut(shown(url)));
                }
                begin(server)?;
                let cancel = Arc::<Notify>::default();
                let run =
                    Arc::clone(self).run_and_settle(url.to_owned(), obtain, Arc::clone(&cancel));
                let login = tokio::spawn(run).map(|ended| {
                    let failed = |error: &_| Arc::new(driver("the login", error));
                    ended.unwrap_or_else(|error| Err(failed(&error)))
                });
                let login = (Box::pin(login) as LoginFuture).shared();
                server.pending = Some(Pending { login: login.clone(), cancel, is_refresh });
                Ok::<_, LoginError>(Some(login))
            })?;
            if let Some(login) = spawned {
                return login.await;
            }
        }
    }

    async fn run_and_settle(
        self: Arc<Self>,
        url: String,
        obtain: Obtain,
        cancel: Arc<Notify>,
    ) -> Result<(), Arc<LoginError>> {
        /// Makes room for the next login, also if a driver panics.
        struct Settle<'a>(&'a Inner, &'a str, &'a Arc<Notify>);
        impl Drop for Settle<'_> {
            fn drop(&mut self) {
                let is_own = |pending: &mut Pending| Arc::ptr_eq(&pending.cancel, self.2);
                self.0.with(self.1, |server| drop(server.pending.take_if(is_own)));
            }
        }
        let _settle = Settle(&self, &url, &cancel);
        self.run(&url, obtain, &cancel).await.map_err(Arc::new)
    }

    /// Obtains a token for a server, and stores it.
    async fn run(&self, url: &str, obtain: Obtain, cancel: &Notify) -> Result<(), LoginError> {
        let store = &self.drivers.store;
        let store_failed = |error| driver("the token store", &error);
        let lock = unless_cancelled(url, cancel, store.lock(url)).await?.map_err(store_failed)?;
        let stored = store.load(url).await.map_err(store_failed)?;
        let (in_use, before) = self.with(url, |server| (server.session.clone(), server.stored));
        let session = match (stored, before) {
            // The refresh token of the older one may be used up.
            (_, Stored::Outdated) | (None, Stored::Nothing) => in_use.clone(),
            (Some(stored), _) => stored,
            // Another process has logged out.
            (None, Stored::Session) => StoredSession::default(),
        };
        // Another process may have obtained a token meanwhile.
        if let Some(tokens) = &session.tokens
            && session != in_use
            && !obtain.is_explicit
            && Some(&tokens.access_token) != obtain.refused.as_ref()
            && tokens.expires_at.is_none_or(|expires_at| self.drivers.now() < expires_at)
        {
            self.with(url, |server| server.adopt(session));
            return Ok(());
        }
        self.bound_issuer.load(&**store, &self.options).await.map_err(store_failed)?;
        let before = session.clone();
        let (session, outcome) = match self.drive(url, obtain, session, cancel).await {
            Ok(session) => (session, Ok(())),
            Err((session, error)) if *session == before => {
                if let Err(error) = self.bound_issuer.save(&**store, &self.options).await {
                    tracing::warn!(target: "mrtr::auth", %error, "the issuer is not stored");
                }
                return Err(error);
            }
            // What was learned is kept: registered clients, and a refused refresh token.
            Err((session, error)) => (*session, Err(error)),
        };
        self.with(url, |server| server.adopt(session.clone()));
        self.save(url, session).await;
        // Held until now: a logout, which waits for it, must not be followed by this session.
        drop(lock);
        outcome
    }

    /// Stores a session. A token that cannot be stored can be used.
    async fn save(&self, url: &str, session: StoredSession) {
        let store = &self.drivers.store;
        let saved = async {
            self.bound_issuer.save(&**store, &self.options).await?;
            store.save(url, &session).await
        };
        let saved = saved.await;
        let stored = if saved.is_ok() { Stored::Session } else { Stored::Outdated };
        self.with(url, |server| server.stored = stored);
        if let Err(error) = saved {
            tracing::warn!(target: "mrtr::auth", %error, "the session is not stored");
        }
    }

    /// Carries out the actions of a login.
    async fn drive(
        &self,
        url: &str,
        obtain: Obtain,
        session: StoredSession,
        cancel: &Notify,
    ) -> Result<StoredSession, (Box<StoredSession>, LoginError)> {
        let begun = unless_cancelled(url, cancel, self.begin(url, obtain, session.clone())).await;
        let (mut login, mut receiver, fetcher) =
            begun.flatten().map_err(|error| (Box::new(session), error))?;
        let carried_out = self.carry_out(url, &mut login, &mut receiver, &fetcher, cancel).await;
        let mut session = login.into_session();
        if !session.tokens.as_ref().is_some_and(|tokens| tokens.is_bound) {
            session.dpop_key = None;
        }
        match carried_out {
            Ok(()) => {
                let issuer = session.issuer();
                tracing::info!(target: "mrtr::auth", issuer, "obtained an access token");
                Ok(session)
            }
            Err(error) => Err((Box::new(session), error)),
        }
    }

    async fn begin(
        &self,
        url: &str,
        Obtain { reason, may_refresh, .. }: Obtain,
        session: StoredSession,
    ) -> Result<(Login, Option<Box<dyn CallbackReceiver>>, Arc<Fetcher>), LoginError> {
        let server = ResourceId::new(url).map_err(|error| LoginError::NoResourceMetadata {
            server: shown(url),
            reason: error.to_string(),
        })?;
        let asks_user = matches!(self.options.grant, Grant::AuthorizationCode)
            && !matches!(reason, Reason::Expiring);
        // Without a user agent, there may be a refresh token.
        let receiver = match &self.drivers.user_agent {
            Some(user_agent) if asks_user => Some(prepare(&**user_agent, &session).await?),
            _ => None,
        };
        let redirect_uri = receiver.as_ref().map_or("", |receiver| receiver.redirect_uri());
        let key = key_of(&session);
        let policy = self.drivers.address_policy(&server);
        let fetcher = self.drivers.fetcher(policy)?;
        let login = Login::new(Settings {
            options: Arc::clone(&self.options),
            bound_issuer: Arc::clone(&self.bound_issuer),
            server,
            redirect_uri: redirect_uri.to_owned(),
            reason,
            may_refresh,
            session,
            key,
        });
        Ok((login, receiver, fetcher))
    }

    async fn carry_out(
        &self,
        url: &str,
        login: &mut Login,
        receiver: &mut Option<Box<dyn CallbackReceiver>>,
        fetcher: &Fetcher,
        cancel: &Notify,
    ) -> Result<(), LoginError> {
        let mut action = login.start(&self.moment()?)?;
        loop {
            let event = self.event(action, receiver, fetcher);
            // A refresh token that was sent is perhaps used up: the response brings the next one.
            let event = if login.requests_token() {
                event.await?
            } else {
                unless_cancelled(url, cancel, event).await??
            };
            let Some(event) = event else { return Ok(()) };
            action = login.handle(event, &self.moment()?)?;
        }
    }

    /// Carries out an action. Returns `None` if the login is complete.
    async fn event(
        &self,
        action: Action,
        receiver: &mut Option<Box<dyn CallbackReceiver>>,
        fetcher: &Fetcher,
    ) -> Result<Option<Event>, LoginError> {
        Ok(Some(match action {
            Action::Fetch(request) => {
                tracing::debug!(target: "mrtr::auth", ?request, "login");
                match fetch(fetcher, request).await {
                    Ok(response) => Event::Response(response),
                    Err(reason) => Event::NoResponse(reason),
                }
            }
            Action::CreateKey => {
                let (key, stored) = new_key()?;
                Event::Key(key, stored)
            }
            Action::Assertion { subject, issuer, resource } => {
                let source = match subject {
                    Subject::Identity => &self.drivers.assertion,
                    Subject::RefreshToken => &self.drivers.identity_refresh_token,
                };
                match source {
                    None => Event::NoAssertion("none".to_owned()),
                    Some(source) => match source.assertion(issuer.as_str(), &resource).await {
                        Ok(assertion) => Event::Assertion(assertion),
                        Err(error) => Event::NoAssertion(error.to_string()),
                    },
                }
            }
            Action::Authorize(page) => {
                let receiver = receiver.take();
                let receiver = receiver.ok_or_else(|| driver("the user agent", "used twice"))?;
                match receiver.authorize(page).await {
                    Ok(callback) => Event::Callback(callback),
                    Err(error) => Event::NoCallback(error.to_string()),
                }
            }
            Action::Finish => return Ok(None),
        }))
    }

    fn moment(&self) -> Result<Moment, LoginError> {
        let seed = Seed::random().map_err(|error| driver("the operating system", &error))?;
        Ok(Moment { now: self.drivers.now(), seed })
    }
}

async fn prepare(
    user_agent: &dyn UserAgent,
    session: &StoredSession,
) -> Result<Box<dyn CallbackReceiver>, LoginError> {
    let current = session.issuer().and_then(|issuer| session.clients.get(issuer));
    let registered = current.or_else(|| session.clients.values().next());
    let preferred = registered.map(|client| client.redirect_uri.as_str());
    let receiver = user_agent.prepare(preferred).await;
    let receiver = receiver.map_err(|error| driver("the user agent", &error))?;
    redirect_uri::check(receiver.redirect_uri())?;
    Ok(receiver)
}

/// Waits for `work`, unless the login is cancelled by a logout.
async fn unless_cancelled<T>(
    url: &str,
    cancel: &Notify,
    work: impl Future<Output = T>,
) -> Result<T, LoginError> {
    tokio::select! {
        biased;
        () = cancel.notified() => Err(LoginError::LoggingOut(shown(url))),
        done = work => Ok(done),
    }
}
