//! A single-use store in Redis.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, cmd};

use super::{SingleUseStore, StoreError};
use crate::redis_connection::RedisConnection;

/// The timeout of a connection attempt, and of a reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time for which an entry is kept: a hundred years.
const MAX_TIME: Duration = Duration::from_hours(24 * 36_525);

/// A [`SingleUseStore`] in Redis 7 or newer, or in Valkey.
///
/// All calls share one connection, which is restored when it breaks, and replaced when a failover
/// has made the server a replica.
///
/// A state whose entry is lost can be used again, so configure Redis to keep its entries:
///
/// - `maxmemory-policy noeviction`. When Redis is full, it then refuses new entries.
/// - `appendonly yes` and `appendfsync always`. Otherwise a restart loses the entries of the last
///   second, or all.
///
/// A failover to a Redis replica that lags behind loses entries, too. Responses in the store are
/// sealed. For a cluster or TLS, implement [`SingleUseStore`] with another client: it is two
/// commands.
#[derive(Clone)]
pub struct RedisStore {
    connection: Arc<RedisConnection>,
    prefix: String,
}

impl RedisStore {
    /// Connects to `redis://[user:password@]host[:port][/database]`, or to `redis+unix:///path`.
    ///
    /// Dropping the future cancels the attempt.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], if the URL is invalid or the server does not reply within a few
    /// seconds. The error does not contain the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let connection = RedisConnection::connect(url, TIMEOUT).await.map_err(unavailable)?;
        Ok(Self { connection: Arc::new(connection), prefix: "mrtr:".to_owned() })
    }

    /// Sets the prefix of all keys. Default: `mrtr:`. Services that share a Redis do not need
    /// different prefixes: their keys differ.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    fn set(&self, key: &str, value: &[u8], time: Duration) -> Cmd {
        let mut set = cmd("SET");
        // Redis rejects a time of zero, and a time that overflows its clock.
        let time = time.clamp(Duration::from_millis(1), MAX_TIME).as_millis();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        set.arg(format!("{}{key}", self.prefix)).arg(value).arg("PX").arg(time);
        set
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        let (mut connection, number) = self.connection.get();
        let result = command.query_async(&mut connection).await;
        self.connection.settle(number, &result);
        result.map_err(|error| {
            // The reply of a full Redis: `-OOM command not allowed when used memory > 'maxmemory'`.
            if error.code() == Some("OOM") { StoreError::Full } else { unavailable(error) }
        })
    }
}

fn unavailable(error: RedisError) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

impl SingleUseStore for RedisStore {
    async fn claim(
        &self,
        key: &str,
        value: &[u8],
        time: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.query(self.set(key, value, time).arg("NX").arg("GET")).await
    }

    async fn settle(&self, key: &str, value: &[u8], time: Duration) -> Result<(), StoreError> {
        let _previous: Option<String> = self.query(self.set(key, value, time).arg("XX")).await?;
        Ok(())
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
