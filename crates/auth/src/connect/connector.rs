//! The connector: the handler's side.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use mrtr_codec::{Principal, Seal};
use mrtr_server::{Context, Error, Result};
use mrtr_transport::BoxError;
use tokio::sync::Mutex;
use url::Url;

use super::account::{Account, AccountStore, StoredAccount};
use crate::client::ClientRegistration;
use crate::client::Secret;
use crate::client::fetch::fetch;
use crate::client::random::Seed;
use crate::client::token::{INVALID_CLIENT, INVALID_GRANT, TokenRequest, TokenResponse};
use crate::fetch::Fetcher;
use crate::identifier::Issuer;
use crate::in_use::InUse;
use crate::metadata::ServerMetadata;
use crate::scope::Scopes;

/// The number of times that a call asks the user to connect an account.
const MAX_QUESTIONS: usize = 3;

/// How long a round waits for the user, who has just agreed to visit the page. It is shorter than
/// the timeout of a request (1 min).
const WAIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);

/// The pauses in milliseconds before a refreshed account is saved again, if the store fails: the
/// old refresh token is used up.
const SAVE_PAUSES: [u64; 5] = [100, 200, 400, 800, 1600];

/// Connects accounts of users at one third party. Cheap to clone. See the [module](super).
#[derive(Clone)]
pub struct AccountConnector {
    pub(super) inner: Arc<Inner>,
}

/// Returns the user of a browser.
pub(super) type Identify = dyn Fn(&Parts) -> Option<Principal> + Send + Sync;

pub(super) struct Inner {
    pub(super) id: String,
    /// The name of the third party for users.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) redirect_path: String,
    pub(super) start: Url,
    pub(super) redirect_uri: String,
    pub(super) issuer: Issuer,
    pub(super) metadata: ServerMetadata,
    pub(super) client: ClientRegistration,
    pub(super) scopes: Scopes,
    pub(super) sealer: Arc<dyn Seal>,
    pub(super) store: Arc<dyn AccountStore>,
    pub(super) identify: Arc<Identify>,
    pub(super) clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    pub(super) fetcher: Fetcher,
    /// Locks by owner. They are held during a refresh, since a refresh token may work only once,
    /// and while a new account is being saved, which a refresh must not replace.
    pub(super) locks: InUse<Principal, Mutex<()>>,
}

impl AccountConnector {
    /// Returns the path of the page that questions link to.
    pub fn start_path(&self) -> &str {
        &self.inner.path
    }

    /// Returns the path of the redirect URI.
    pub fn redirect_path(&self) -> &str {
        &self.inner.redirect_path
    }

    /// Returns the redirect URI, which is to be registered at the third party.
    pub fn redirect_uri(&self) -> &str {
        &self.inner.redirect_uri
    }

    /// Returns the caller's account. If it is not connected, asks the user to visit the page, and
    /// waits for the result: at most 30 seconds in a round, and for 3 questions in a call.
    ///
    /// A token that has expired is refreshed. Each round takes the token from the store, and only
    /// the fact that there was one is recorded. Call it once in a handler.
    ///
    /// A client without URL elicitation gets -32021 (missing client capability).
    ///
    /// # Errors
    ///
    /// If the user declines or cancels, does not connect the account, or has disconnected it later
    /// in the call. An internal error, if the caller is not authenticated, or if the store or the
    /// third party fails.
    pub async fn connect(&self, cx: &Context) -> Result<Account> {
        let Inner { id, name, .. } = &*self.inner;
        let caller = cx.principal().ok_or_else(|| {
            Error::internal("accounts can be connected for authenticated callers only")
        })?;
        for asked in 0..=MAX_QUESTIONS {
            let wait = if asked == 0 { Duration::ZERO } else { WAIT };
            let connected = cx.step(format!("connect-{id}-{asked}"), async |_| {
                self.inner.wait_for(caller, wait).await
            });
            if connected.await? {
                let account = self.inner.usable(caller).await?;
                let lost =
                    || Error::new(format!("The account at {name} is not connected any more."));
                return account.ok_or_else(lost);
            }
            if asked < MAX_QUESTIONS {
                let message = match asked {
                    0 => format!("Please connect your account at {name}."),
                    _ => {
                        format!("The account at {name} is not connected yet. Please finish there.")
                    }
                };
                let url = self.inner.link(caller)?;
                cx.elicit_url(format!("connect-{id}-page-{asked}"), message, url).await?;
            }
        }
        Err(Error::new(format!("The account at {name} was not connected.")))
    }
}

impl Inner {
    pub(super) fn now(&self) -> u64 {
        let since = (self.clock)().duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs()
    }

    fn link(&self, caller: &Principal) -> Result<String> {
        let ticket = self.seal_link(caller);
        let ticket = ticket.ok_or_else(|| Error::internal("the link cannot be sealed"))?;
        let mut url = self.start.clone();
        url.query_pairs_mut().append_pair("ticket", &ticket);
        Ok(url.into())
    }

    /// Waits until the caller has an account.
    async fn wait_for(self: &Arc<Self>, caller: &Principal, wait: Duration) -> Result<bool> {
        let end = tokio::time::Instant::now() + wait;
        let load = || self.store.load(caller, &self.id);
        let mut seen = load().await.map_err(Error::internal)?;
        let mut is_usable = self.usable(caller).await?.is_some();
        while !is_usable && tokio::time::Instant::now() < end {
            tokio::time::sleep(PAUSE).await;
            let stored = load().await.map_err(Error::internal)?;
            // An account that is not usable is not refreshed again and again.
            if stored != seen {
                is_usable = self.usable(caller).await?.is_some();
                seen = stored;
            }
        }
        Ok(is_usable)
    }

    /// Returns the account with a token that has not expired.
    async fn usable(self: &Arc<Self>, owner: &Principal) -> Result<Option<Account>> {
        let found = self.store.load(owner, &self.id).await.map_err(Error::internal)?;
        let Some(found) = found else { return Ok(None) };
        if found.is_usable(self.now()) {
            return Ok(Some(Account(found.access_token)));
        }
        // A task of its own: the refresh token may be used up, so the new one must be stored, also
        // if the client disconnects.
        let refresh = tokio::spawn(Arc::clone(self).refresh(owner.clone()));
        refresh.await.map_err(Error::internal)?
    }

    /// Refreshes the account, unless another call has done so.
    async fn refresh(self: Arc<Self>, owner: Principal) -> Result<Option<Account>> {
        let lock = self.locks.get(owner.clone());
        let _guard = lock.lock().await;
        let load = || self.store.load(&owner, &self.id);
        let Some(found) = load().await.map_err(Error::internal)? else { return Ok(None) };
        if found.is_usable(self.now()) {
            return Ok(Some(Account(found.access_token)));
        }
        let Some(refresh_token) = found.refresh_token.clone() else { return Ok(None) };
        let form =
            vec![("grant_type", "refresh_token".into()), ("refresh_token", refresh_token.clone())];
        match self.request_token(form).await {
            Ok(mut account) => {
                account.refresh_token.get_or_insert(refresh_token);
                let mut pauses = SAVE_PAUSES.iter();
                loop {
                    let error = match self.save_refreshed(&owner, &found, &account).await {
                        Ok(account) => break Ok(account),
                        Err(error) => error,
                    };
                    tracing::warn!(
                        target: "mrtr::auth",
                        provider = self.id,
                        error = &*error as &dyn std::error::Error,
                        "refreshed account not stored"
                    );
                    let Some(pause) = pauses.next() else { break Err(Error::internal(error)) };
                    tokio::time::sleep(Duration::from_millis(*pause)).await;
                }
            }
            Err(TokenError::Refused(code)) if !is_about_client(&code) => {
                tracing::info!(target: "mrtr::auth", provider = self.id, code, "account lost");
                // Another replica may have used the refresh token.
                let newer = load().await.map_err(Error::internal)?;
                if newer.as_ref().is_some_and(|newer| *newer != found) {
                    return Ok(self.account_of(newer));
                }
                // Others may not come from the third party at all: the user is asked to authorize
                // again, but the refresh token may still be good.
                if MEANS_LOST.contains(&code.as_str()) {
                    self.store.delete(&owner, &self.id).await.map_err(Error::internal)?;
                }
                Ok(None)
            }
            Err(TokenError::Refused(why) | TokenError::Failed(why)) => {
                Err(Error::internal(format!("refreshing the account at {} failed: {why}", self.id)))
            }
        }
    }

    /// Saves a refreshed account and returns it.
    ///
    /// If the account `before` the refresh is not in the store any more, it was disconnected, or
    /// another replica has replaced it. Then what is stored stays, and is returned if it is usable.
    async fn save_refreshed(
        &self,
        owner: &Principal,
        before: &StoredAccount,
        refreshed: &StoredAccount,
    ) -> std::result::Result<Option<Account>, BoxError> {
        let stored = self.store.load(owner, &self.id).await?;
        if stored.as_ref() == Some(before) {
            self.store.save(owner, &self.id, refreshed).await?;
            return Ok(Some(Account(refreshed.access_token.clone())));
        }
        Ok(self.account_of(stored))
    }

    /// Returns a stored account if its token has not expired.
    fn account_of(&self, stored: Option<StoredAccount>) -> Option<Account> {
        let usable = stored.filter(|stored| stored.is_usable(self.now()))?;
        Some(Account(usable.access_token))
    }

    /// Requests a token from the third party.
    pub(super) async fn request_token(
        &self,
        form: Vec<(&'static str, Secret)>,
    ) -> std::result::Result<StoredAccount, TokenError> {
        let failed = |error: &dyn fmt::Display| TokenError::Failed(error.to_string());
        let request = TokenRequest::new(&self.issuer, &self.metadata, self.client.clone(), form);
        let request = request.map_err(|error| failed(&error))?;
        let seed = Seed::random().map_err(|error| failed(&error))?;
        let request = request.write(None, &seed, self.now()).map_err(|error| failed(&error))?;
        let response = fetch(&self.fetcher, request).await.map_err(TokenError::Failed)?;
        match TokenResponse::parse(&response) {
            TokenResponse::Granted(granted) if granted.is_of_type("bearer") => {
                Ok(StoredAccount::new(granted, self.now()))
            }
            TokenResponse::Granted(_) => Err(failed(&"the token is not a bearer token")),
            TokenResponse::Refused(code) => Err(TokenError::Refused(code)),
            TokenResponse::Nonce(_) => Err(failed(&"the third party demands a nonce")),
            TokenResponse::Failed(why) => Err(failed(&why)),
        }
    }
}

/// The error codes that say that a refresh token is of no use any more.
const MEANS_LOST: [&str; 4] =
    [INVALID_GRANT, "interaction_required", "login_required", "consent_required"];

/// Returns true if a refusal is about the client or its request, and says nothing about the
/// account.
pub(super) fn is_about_client(code: &str) -> bool {
    let codes = [
        INVALID_CLIENT,
        "invalid_request",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
    ];
    codes.contains(&code)
}

/// No token was issued.
pub(super) enum TokenError {
    /// With an error code of RFC 6749, section 5.2.
    Refused(String),
    Failed(String),
}

impl fmt::Debug for AccountConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountConnector").field("id", &self.inner.id).finish_non_exhaustive()
    }
}
