//! Counters in memory.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::store::{Decision, Quota, RateLimitError, RateLimitStore};

/// Counters in the memory of this process. Each replica counts separately.
///
/// A counter whose quota is full again is dropped. While the maximum number of counters is in use,
/// requests with new keys are denied.
pub struct MemoryRateLimitStore {
    counters: Mutex<Counters>,
    max_keys: usize,
}

/// The algorithm is GCRA (ITU-T I.371): one time for each key, at which its quota is full again.
#[derive(Default)]
struct Counters {
    full_at: HashMap<Box<str>, Instant>,
    /// The number of counters at which full ones are dropped next.
    clean_at: usize,
    /// The time before which no full ones are dropped, since there are none.
    full_until: Option<Instant>,
}

/// The shortest time between two looks at all counters while all are in use.
const RETRY: Duration = Duration::from_secs(1);

/// The smallest number of counters at which full ones are dropped.
const MIN_CLEAN: usize = 256;

impl MemoryRateLimitStore {
    /// Creates a store with at most `max_keys` counters: about 100 bytes each, and the keys.
    pub fn new(max_keys: usize) -> Self {
        Self { counters: Mutex::default(), max_keys }
    }
}

/// At most 100,000 counters.
impl Default for MemoryRateLimitStore {
    fn default() -> Self {
        Self::new(100_000)
    }
}

impl Counters {
    fn count(&mut self, key: &str, quota: Quota, max_keys: usize, now: Instant) -> Decision {
        let full_at = self.full_at.get(key).map_or(now, |full_at| (*full_at).max(now));
        let after = full_at + quota.interval;
        // The quota is used up for as long as it takes to refill it.
        let overdrawn = (after - now).saturating_sub(quota.interval.saturating_mul(quota.burst));
        if !overdrawn.is_zero() {
            return Decision::Denied { retry_after: overdrawn };
        }
        if let Some(known) = self.full_at.get_mut(key) {
            *known = after;
        } else {
            if let Some(until) = self.has_no_room_until(max_keys, now) {
                return Decision::Denied { retry_after: until - now };
            }
            self.full_at.insert(key.into(), after);
        }
        Decision::Allowed
    }

    /// Drops full counters, if there are many. Returns the time until which there is no room for
    /// one more; `None` if there is room.
    fn has_no_room_until(&mut self, max_keys: usize, now: Instant) -> Option<Instant> {
        if let Some(until) = self.full_until.filter(|until| now < *until) {
            return Some(until);
        }
        if self.full_at.len() >= self.clean_at.clamp(MIN_CLEAN.min(max_keys), max_keys) {
            self.full_at.retain(|_, full_at| *full_at > now);
            // The time for this is proportional to the number of keys that were added since.
            self.clean_at = self.full_at.len() * 2;
        }
        let is_full = self.full_at.len() >= max_keys;
        // The first that will be full again. With no counters allowed, there is none.
        let next = || self.full_at.values().min().map_or(now, |next| *next).max(now + RETRY);
        self.full_until = is_full.then(next);
        self.full_until
    }
}

impl RateLimitStore for MemoryRateLimitStore {
    async fn count(&self, key: &str, quota: Quota) -> Result<Decision, RateLimitError> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(counters.count(key, quota, self.max_keys, Instant::now()))
    }
}

impl fmt::Debug for MemoryRateLimitStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRateLimitStore")
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: fn(u64) -> Decision =
        |ms| Decision::Denied { retry_after: Duration::from_millis(ms) };

    #[test]
    fn burst_is_allowed_at_once_and_refills_evenly() {
        let mut counters = Counters::default();
        let quota = Quota::new(3, Duration::from_secs(3));
        let start = Instant::now();
        let mut count = |ms| counters.count("a", quota, 10, start + Duration::from_millis(ms));
        assert_eq!([count(0), count(0), count(0)], [Decision::Allowed; 3]);
        assert_eq!(count(0), DENIED(1_000));
        // A denied request is not counted.
        assert_eq!(count(400), DENIED(600));
        assert_eq!(count(1_000), Decision::Allowed);
        assert_eq!(count(1_000), DENIED(1_000));
        // After a pause, the whole burst is allowed again, and no more.
        assert_eq!([count(9_000), count(9_000), count(9_000)], [Decision::Allowed; 3]);
        assert_eq!(count(9_000), DENIED(1_000));
    }

    #[test]
    fn long_run_rate_is_the_quota() {
        let mut counters = Counters::default();
        let quota = Quota::new(10, Duration::from_secs(1));
        let start = Instant::now();
        let allowed = (0..100_000).filter(|ms| {
            let now = start + Duration::from_millis(*ms);
            counters.count("a", quota, 10, now) == Decision::Allowed
        });
        // 100 s at 10 per second, and the first burst.
        assert_eq!(allowed.count(), 1_000 + 9);
    }

    #[test]
    fn keys_have_counters_of_their_own() {
        let mut counters = Counters::default();
        let (quota, now) = (Quota::new(1, Duration::from_secs(1)), Instant::now());
        assert_eq!(counters.count("a", quota, 10, now), Decision::Allowed);
        assert_eq!(counters.count("b", quota, 10, now), Decision::Allowed);
        assert_eq!(counters.count("a", quota, 10, now), DENIED(1_000));
    }

    #[test]
    fn number_of_counters_is_bounded_and_full_ones_are_dropped() {
        let mut counters = Counters::default();
        let (quota, start) = (Quota::new(1, Duration::from_secs(1)), Instant::now());
        let key = |n: u32| n.to_string();
        for n in 0..1_000 {
            assert_eq!(counters.count(&key(n), quota, 1_000, start), Decision::Allowed);
        }
        assert_eq!(counters.count("new", quota, 1_000, start), DENIED(1_000));
        assert_eq!(counters.full_at.len(), 1_000);
        // While it is full, the counters are looked through once per second.
        assert_eq!(counters.full_until, Some(start + RETRY));
        let later = start + RETRY;
        assert_eq!(counters.count("new", quota, 1_000, later), Decision::Allowed);
        assert_eq!(counters.full_at.len(), 1);
    }

    /// Callers come back when there is room, and not every second until then.
    #[test]
    fn no_room_lasts_until_the_first_counter_is_full_again() {
        let mut counters = Counters::default();
        let (quota, start) = (Quota::new(1, Duration::from_mins(1)), Instant::now());
        counters.count("a", quota, 2, start);
        counters.count("b", quota, 2, start + Duration::from_secs(10));
        let later = start + Duration::from_secs(20);
        assert_eq!(counters.count("new", quota, 2, later), DENIED(40_000));
        let full = start + Duration::from_mins(1);
        assert_eq!(counters.count("new", quota, 2, full), Decision::Allowed);
    }

    #[test]
    fn extreme_quotas_neither_panic_nor_deny_all() {
        let now = Instant::now();
        for quota in [
            Quota::new(0, Duration::ZERO),
            Quota::new(u32::MAX, Duration::from_secs(1)),
            Quota::new(u32::MAX, Duration::ZERO).times(u32::MAX),
            Quota::new(1, Duration::from_secs(u32::MAX.into())).times(0),
            Quota::new(1, Duration::MAX),
            Quota::new(2, Duration::MAX),
        ] {
            let mut counters = Counters::default();
            assert_eq!(counters.count("a", quota, 1, now), Decision::Allowed, "{quota:?}");
            counters.count("a", quota, 1, now);
        }
    }
}
