//! Accounts, and the store that keeps them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_codec::Principal;
use serde::{Deserialize, Serialize};

use crate::client::token::Granted;
use crate::client::{DriverFuture, Secret};

/// The time before the end of a token from which it is not used any more, in seconds.
const EXPIRY_MARGIN: u64 = 60;

/// The caller's account at a third party. It cannot be serialized, so that it does not become the
/// result of a step by mistake.
#[derive(Debug, Clone)]
pub struct Account(pub(super) Secret);

impl Account {
    /// Returns the access token for requests to the third party. Take care not to log it, and not
    /// to return it: credentials of third parties must not reach the client.
    pub fn access_token(&self) -> &str {
        self.0.expose()
    }
}

/// The tokens of an account, as a store keeps them. The [`Debug`](fmt::Debug) form does not show
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAccount {
    pub(super) access_token: Secret,
    pub(super) refresh_token: Option<Secret>,
    /// Seconds since 1970.
    pub(super) expires_at: Option<u64>,
}

impl StoredAccount {
    pub(super) fn new(granted: Granted, now: u64) -> Self {
        let expires_at = granted.expires_in.map(|seconds| now.saturating_add(seconds));
        let Granted { access_token, refresh_token, .. } = granted;
        Self { access_token, refresh_token, expires_at }
    }

    pub(super) fn is_usable(&self, now: u64) -> bool {
        self.expires_at.is_none_or(|at| now.saturating_add(EXPIRY_MARGIN) < at)
    }
}

/// Keeps the accounts of principals at third parties. All replicas need the same one.
///
/// What it keeps are secrets: encrypt it, and protect it from other users. An account belongs to
/// the whole principal. If it names an OAuth client, another client of the same user is asked anew.
pub trait AccountStore: Send + Sync + 'static {
    /// Returns the account of `owner` at the third party with the ID `provider`.
    ///
    /// # Errors
    ///
    /// If the store cannot be read. The handler gets an internal error.
    fn load<'a>(
        &'a self,
        owner: &'a Principal,
        provider: &'a str,
    ) -> DriverFuture<'a, Option<StoredAccount>>;

    /// Replaces the account of `owner`.
    ///
    /// # Errors
    ///
    /// If the store cannot be written. The account is not connected.
    fn save<'a>(
        &'a self,
        owner: &'a Principal,
        provider: &'a str,
        account: &'a StoredAccount,
    ) -> DriverFuture<'a, ()>;

    /// Deletes the account of `owner`, as after the third party has revoked it. Returns without
    /// error if there is none.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    fn delete<'a>(&'a self, owner: &'a Principal, provider: &'a str) -> DriverFuture<'a, ()>;
}

/// Keeps accounts in memory, until the process ends. Clones share them. For tests, and for a single
/// replica.
#[derive(Clone, Default)]
pub struct MemoryAccounts(Arc<Mutex<HashMap<(Principal, String), StoredAccount>>>);

impl MemoryAccounts {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(
        &self,
        change: impl FnOnce(&mut HashMap<(Principal, String), StoredAccount>) -> T,
    ) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for MemoryAccounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryAccounts").finish_non_exhaustive()
    }
}

impl AccountStore for MemoryAccounts {
    fn load<'a>(
        &'a self,
        owner: &'a Principal,
        provider: &'a str,
    ) -> DriverFuture<'a, Option<StoredAccount>> {
        let key = (owner.clone(), provider.to_owned());
        Box::pin(async move { Ok(self.with(|all| all.get(&key).cloned())) })
    }

    fn save<'a>(
        &'a self,
        owner: &'a Principal,
        provider: &'a str,
        account: &'a StoredAccount,
    ) -> DriverFuture<'a, ()> {
        let key = (owner.clone(), provider.to_owned());
        Box::pin(async move {
            self.with(|all| all.insert(key, account.clone()));
            Ok(())
        })
    }

    fn delete<'a>(&'a self, owner: &'a Principal, provider: &'a str) -> DriverFuture<'a, ()> {
        let key = (owner.clone(), provider.to_owned());
        Box::pin(async move {
            self.with(|all| all.remove(&key));
            Ok(())
        })
    }
}
