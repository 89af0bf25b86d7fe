//! Stores of tokens.

mod file;
#[cfg(feature = "keyring")]
mod keyring;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::session::StoredSession;
use super::user_agent::DriverFuture;

pub use file::FileStore;
#[cfg(feature = "keyring")]
pub use keyring::KeyringStore;

/// Keeps sessions by key: the URL of an MCP server, or another text for what is not of one server.
/// Treat the key as opaque, and do not use it as a file name.
///
/// What it keeps contains secrets: protect it from other users (specification: token storage).
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the session under a key; `None` if there is none, or it is not
    /// [readable](StoredSession::is_readable).
    ///
    /// # Errors
    ///
    /// If the store cannot be read. The request that needs the token fails.
    fn load<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Option<StoredSession>>;

    /// Replaces the session of a server.
    ///
    /// # Errors
    ///
    /// If the store cannot be written. The client logs a warning and uses the token, which is lost
    /// when the process ends.
    fn save<'a>(&'a self, server: &'a str, session: &'a StoredSession) -> DriverFuture<'a, ()>;

    /// Deletes the session of a server. Returns without error if there is none.
    ///
    /// # Errors
    ///
    /// If the store cannot be written.
    fn delete<'a>(&'a self, server: &'a str) -> DriverFuture<'a, ()>;

    /// Waits until no other process obtains tokens for the server, and keeps others from it until
    /// the returned guard is dropped. Of two processes that use the same refresh token, the
    /// authorization server may log out both. Default: there are no other processes.
    ///
    /// # Errors
    ///
    /// If the lock cannot be had. The request that needs the token fails.
    fn lock<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Box<dyn Send>> {
        let _ = server;
        Box::pin(async { Ok(Box::new(()) as Box<dyn Send>) })
    }
}

/// Keeps sessions in memory, until the process ends.
#[derive(Default)]
pub struct MemoryStore(Mutex<HashMap<String, StoredSession>>);

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, StoredSession>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl TokenStore for MemoryStore {
    fn load<'a>(&'a self, server: &'a str) -> DriverFuture<'a, Option<StoredSession>> {
        Box::pin(async move { Ok(self.with(|sessions| sessions.get(server).cloned())) })
    }

    fn save<'a>(&'a self, server: &'a str, session: &'a StoredSession) -> DriverFuture<'a, ()> {
        Box::pin(async move {
            self.with(|sessions| sessions.insert(server.to_owned(), session.clone()));
            Ok(())
        })
    }

    fn delete<'a>(&'a self, server: &'a str) -> DriverFuture<'a, ()> {
        Box::pin(async move {
            self.with(|sessions| sessions.remove(server));
            Ok(())
        })
    }
}
