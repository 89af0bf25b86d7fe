//! A single-use store in Redis.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, FromRedisValue, RedisError, cmd};

use super::{SingleUseStore, StoreError};

/// The timeout of a connection attempt, and of a reply.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time for which an entry is kept: a hundred years.
const MAX_TIME: Duration = Duration::from_hours(24 * 36_525);

/// A [`SingleUseStore`] in Redis 7 or newer, or in Valkey.
///
/// All calls share one connection, which is restored when it breaks.
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
    connection: ConnectionManager,
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
        let client = Client::open(url).map_err(unavailable)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT))
            .set_number_of_retries(1);
        let connection = client.get_connection_manager_with_config(config).await;
        Ok(Self { connection: connection.map_err(unavailable)?, prefix: "mrtr:".to_owned() })
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
        command.query_async(&mut self.connection.clone()).await.map_err(|error: RedisError| {
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
