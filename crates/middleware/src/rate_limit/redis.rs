//! Counters in Redis.

use std::fmt;
use std::time::Duration;

use mrtr_server::redis_connection::RedisConnection;
use redis::{RedisResult, Script};

use super::store::{Decision, Quota, RateLimitError, RateLimitStore};

/// The timeout of a connection attempt, and of a reply: a request waits for it.
const TIMEOUT: Duration = Duration::from_millis(500);

/// How long a request waits in all.
const LIMIT: Duration = Duration::from_secs(1);

/// Counts a request, with the clock of Redis. Returns the time in microseconds after which the
/// request would be within the quota; 0 if it is.
const COUNT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + interval
local overdrawn = full_at - now - interval * burst
if overdrawn > 0 then
    return math.ceil(overdrawn)
end
redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', math.ceil((full_at - now) / 1000))
return 0
";

/// The longest interval: numbers in Lua are exact up to 2^53.
const MAX_MICROS: u64 = 1 << 50;

/// Counters in Redis 7 or newer, or in Valkey, which all replicas share.
///
/// Each request runs one script, over a connection that is restored when it breaks, and replaced
/// when a failover has made the server a replica. A request waits at most 500 ms for the reply, and
/// 1 s if it has to connect first. Each counter is a key with the prefix `mrtr:rate:`, and expires
/// when its quota is full again. Intervals are counted in whole microseconds.
pub struct RedisRateLimitStore {
    connection: RedisConnection,
    script: Script,
}

impl RedisRateLimitStore {
    /// Connects to `redis://[user:password@]host[:port][/database]`, or to `redis+unix:///path`.
    ///
    /// Dropping the future cancels the attempt.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, or the server does not reply. The error does not contain the
    /// password.
    pub async fn connect(url: &str) -> Result<Self, RateLimitError> {
        let connection = RedisConnection::connect(url, TIMEOUT).await;
        let connection = connection.map_err(RateLimitError::new)?;
        Ok(Self { connection, script: Script::new(COUNT) })
    }
}

impl RateLimitStore for RedisRateLimitStore {
    async fn count(&self, key: &str, quota: Quota) -> Result<Decision, RateLimitError> {
        let micros = u64::try_from(quota.interval.as_micros()).unwrap_or(MAX_MICROS);
        let micros = micros.clamp(1, MAX_MICROS / u64::from(quota.burst));
        let mut script = self.script.key(format!("mrtr:rate:{key}"));
        script.arg(micros).arg(quota.burst);
        let (mut connection, number) = self.connection.get();
        let counted = async {
            let waiting: RedisResult<u64> = script.invoke_async(&mut connection).await;
            self.connection.settle(number, &waiting);
            waiting
        };
        // It may have to connect first, and to send the script.
        let waiting = tokio::time::timeout(LIMIT, counted).await.map_err(RateLimitError::new)?;
        Ok(match waiting.map_err(RateLimitError::new)? {
            0 => Decision::Allowed,
            micros => Decision::Denied { retry_after: Duration::from_micros(micros) },
        })
    }
}

impl fmt::Debug for RedisRateLimitStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRateLimitStore").finish_non_exhaustive()
    }
}
