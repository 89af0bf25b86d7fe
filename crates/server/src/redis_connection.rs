//! A connection to Redis that is replaced when it has become useless.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, RedisResult, ServerErrorKind};

/// A connection to Redis, which all operations share.
///
/// A [`ConnectionManager`] restores a connection that was closed. It keeps one that leads nowhere,
/// or to a server that has become a replica, and it keeps the error of a login that was refused. So
/// it is replaced after such an error.
///
/// For the workspace's own crates. Not covered by semantic versioning.
#[derive(Debug)]
pub struct RedisConnection {
    client: Client,
    timeout: Duration,
    current: Mutex<Current>,
}

struct Current {
    manager: ConnectionManager,
    /// The number of those before it.
    replaced: u64,
}

impl RedisConnection {
    /// Connects to a server. `timeout` is that of a connection attempt, and of a reply.
    ///
    /// # Errors
    ///
    /// If the URL is invalid or the server does not reply. The error does not contain the password.
    pub async fn connect(url: &str, timeout: Duration) -> RedisResult<Self> {
        let client = Client::open(url)?;
        let manager = client.get_connection_manager_with_config(config(timeout)).await?;
        let current = Mutex::new(Current { manager, replaced: 0 });
        Ok(Self { client, timeout, current })
    }

    /// Returns the client, for connections of other kinds.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the connection in use, and its number.
    pub fn get(&self) -> (ConnectionManager, u64) {
        let current = self.lock();
        (current.manager.clone(), current.replaced)
    }

    /// Replaces a connection after an operation on it, by its number, if the error shows that it is
    /// useless. The next operation connects. Returns true if it was replaced.
    pub fn settle<T>(&self, number: u64, result: &RedisResult<T>) -> bool {
        let Err(error) = result else { return false };
        let is_useless = error.is_timeout()
            || [ErrorKind::AuthenticationFailed, ErrorKind::Server(ServerErrorKind::ReadOnly)]
                .contains(&error.kind());
        let mut current = self.lock();
        // Operations at the same time fail on the same connection.
        if !is_useless || current.replaced != number {
            return false;
        }
        match self.client.get_connection_manager_lazy(config(self.timeout)) {
            Ok(manager) => {
                tracing::warn!(target: "mrtr::redis", %error, "connecting to Redis again");
                *current = Current { manager, replaced: number + 1 };
                true
            }
            Err(other) => {
                tracing::warn!(target: "mrtr::redis", %error, %other, "cannot connect to Redis again");
                false
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn config(timeout: Duration) -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout))
        .set_number_of_retries(1)
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("replaced", &self.replaced).finish_non_exhaustive()
    }
}
