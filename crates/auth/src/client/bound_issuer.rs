//! The authorization server that a client without an issuer is bound to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mrtr_transport::BoxError;

use super::error::LoginError;
use super::options::Options;
use super::session::StoredSession;
use super::store::TokenStore;
use crate::identifier::Issuer;

/// The authorization server that has first got the credentials of a client that was registered
/// somewhere. It is the same for all MCP servers: the client's secret is sent to no other.
#[derive(Debug, Default)]
pub(super) struct BoundIssuer(Mutex<Option<String>>);

impl BoundIssuer {
    /// Checks that the client may be used at `issuer`.
    ///
    /// # Errors
    ///
    /// If it is bound to another one.
    pub(super) fn check(&self, issuer: &Issuer) -> Result<(), LoginError> {
        match &*self.lock() {
            Some(expected) if expected != issuer.as_str() => {
                let (expected, found) = (expected.clone(), issuer.clone());
                Err(LoginError::ClientOfOtherIssuer { expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Binds the client to `issuer`, before its credentials are sent there.
    ///
    /// # Errors
    ///
    /// If it is bound to another one.
    pub(super) fn bind(&self, issuer: &Issuer) -> Result<(), LoginError> {
        self.lock().get_or_insert_with(|| issuer.to_string());
        self.check(issuer)
    }

    /// Returns true if the client is bound to `issuer`.
    pub(super) fn is(&self, issuer: &Issuer) -> bool {
        self.lock().as_deref() == Some(issuer.as_str())
    }

    /// Loads what an earlier process has stored.
    pub(super) async fn load(
        &self,
        store: &dyn TokenStore,
        options: &Options,
    ) -> Result<(), BoxError> {
        let Some(key) = key(options).filter(|_| self.lock().is_none()) else { return Ok(()) };
        let stored = store.load(&key).await?.and_then(|session| session.bound_issuer);
        let mut bound = self.lock();
        *bound = bound.take().or(stored);
        Ok(())
    }

    /// Stores the issuer. It is not deleted by a logout.
    pub(super) async fn save(
        &self,
        store: &dyn TokenStore,
        options: &Options,
    ) -> Result<(), BoxError> {
        let bound_issuer = self.lock().clone();
        let (Some(key), Some(_)) = (key(options), &bound_issuer) else { return Ok(()) };
        // The first one wins, also if another process has stored it meanwhile.
        if store.load(&key).await?.is_some_and(|stored| stored.bound_issuer.is_some()) {
            return Ok(());
        }
        let stored = StoredSession { bound_issuer, ..StoredSession::default() };
        store.save(&key, &stored).await
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name under which the issuer is stored. It is not a URL, as those of servers are.
fn key(options: &Options) -> Option<String> {
    let unbound = options.registered.iter().find(|(issuer, _)| issuer.is_none());
    unbound.map(|(_, client)| format!("client {}", client.id()))
}
