//! A guard in Redis.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, FromRedisValue, RedisError, cmd};

use super::{SingleUseStore, StoreError};

/// How long a connection or an answer may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// The longest time that an entry is kept: a hundred years.
const MOST: Duration = Duration::from_hours(24 * 36_525);

/// A [`SingleUseStore`] in Redis 7 or newer, or in Valkey: one connection, shared by all calls, which comes back by itself
/// when it breaks.
///
/// What Redis forgets can be used again. So it must not evict keys (`maxmemory-policy noeviction`; a full one then
/// refuses), and has to write down what it is told before it answers (`appendonly yes`, `appendfsync always`): without
/// that, a restart forgets the last second, or all; and so does a failover to a replica that was behind. Responses in it
/// are sealed. For a cluster, or for TLS, implement
/// [`SingleUseStore`] with a client of your own: it is two commands.
#[derive(Clone)]
pub struct RedisStore {
    connection: ConnectionManager,
    prefix: String,
}

impl RedisStore {
    /// Connects to `redis://[user:password@]host[:port][/database]`, or to `redis+unix:///path`.
    ///
    /// Cancelled, it leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`], if the URL is none or nobody answers within some seconds. It does not hold the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let client = Client::open(url).map_err(unavailable)?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(DEADLINE))
            .set_response_timeout(Some(DEADLINE))
            .set_number_of_retries(1);
        let connection = client.get_connection_manager_with_config(config).await;
        Ok(Self { connection: connection.map_err(unavailable)?, prefix: "mrtr:".to_owned() })
    }

    /// What stands before every key. Default: `mrtr:`. Services need no prefixes of their own: their keys differ.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    fn set(&self, key: &str, value: &[u8], time: Duration) -> Cmd {
        let mut set = cmd("SET");
        // Redis knows no time of zero, and none that its clock cannot say.
        let time = time.clamp(Duration::from_millis(1), MOST).as_millis();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        set.arg(format!("{}{key}", self.prefix)).arg(value).arg("PX").arg(time);
        set
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        command.query_async(&mut self.connection.clone()).await.map_err(|error: RedisError| {
            // `-OOM command not allowed when used memory > 'maxmemory'`
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
        self.query::<Option<String>>(self.set(key, value, time).arg("XX")).await.map(drop)
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
