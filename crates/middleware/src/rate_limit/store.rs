//! Stores: the counters of rate limits.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The time for one request: what clocks can add to the present.
const MIN_INTERVAL: Duration = Duration::from_nanos(1);
const MAX_INTERVAL: Duration = Duration::from_hours(100 * 365 * 24);

/// A number of requests in a period. It refills evenly: with 60 in a minute, one per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The time after which one more request is allowed.
    pub(crate) interval: Duration,
    /// The number of requests that are allowed at once.
    pub(crate) burst: u32,
}

impl Quota {
    /// Creates a quota of `requests` in `period`, all of which may come at once. 0 requests count
    /// as 1. The time for each request is at least 1 ns, and at most 100 years.
    pub fn new(requests: u32, period: Duration) -> Self {
        let burst = requests.max(1);
        Self { interval: (period / burst).clamp(MIN_INTERVAL, MAX_INTERVAL), burst }
    }

    /// Returns the time after which one more request is allowed.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// Returns the number of requests that are allowed at once.
    pub fn burst(self) -> u32 {
        self.burst
    }

    /// Returns a quota of `factor` times as many requests. 0 counts as 1.
    #[must_use]
    pub(crate) fn times(self, factor: u32) -> Self {
        let factor = factor.max(1);
        let interval = (self.interval / factor).max(MIN_INTERVAL);
        Self { interval, burst: self.burst.saturating_mul(factor) }
    }
}

/// The decision of a store about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The request is within the quota, and was counted.
    Allowed,
    /// The request is beyond the quota. It was not counted.
    Denied {
        /// The time after which it will be within the quota.
        retry_after: Duration,
    },
}

/// The error of a store that cannot be reached.
#[derive(Debug)]
pub struct RateLimitError(Box<dyn StdError + Send + Sync>);

impl RateLimitError {
    /// Creates an error with its cause, which is logged.
    pub fn new(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for RateLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store of rate limits cannot be reached")
    }
}

impl StdError for RateLimitError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

/// The counters of rate limits, which the replicas of a server may share.
pub trait RateLimitStore: Send + Sync + 'static {
    /// Counts one request of `key`, if it is within the quota.
    ///
    /// Requests of one key are counted one after the other. A key always comes with the same quota,
    /// until the server's configuration changes.
    ///
    /// # Errors
    ///
    /// If the store cannot be reached.
    fn count(
        &self,
        key: &str,
        quota: Quota,
    ) -> impl Future<Output = Result<Decision, RateLimitError>> + Send;
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store without its type.
pub(crate) trait ErasedStore: Send + Sync {
    fn count<'a>(
        &'a self,
        key: &'a str,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Decision, RateLimitError>>;
}

impl<S: RateLimitStore> ErasedStore for S {
    fn count<'a>(
        &'a self,
        key: &'a str,
        quota: Quota,
    ) -> BoxFuture<'a, Result<Decision, RateLimitError>> {
        Box::pin(RateLimitStore::count(self, key, quota))
    }
}
