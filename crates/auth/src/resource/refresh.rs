//! Values that are fetched from an issuer, kept for a while and fetched again.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::clock::Clock;
use super::fetch::FetchError;

/// The time for which a value is used, in seconds: the default, the minimum and the maximum. A
/// `Cache-Control` header decides within these limits.
const DEFAULT_AGE: u64 = 3600;
const MIN_AGE: u64 = 5 * 60;
const MAX_AGE: u64 = 24 * 3600;

/// The time for which a value is used longer if it cannot be fetched again, in seconds.
const MAX_STALE: u64 = 24 * 3600;

/// The shortest time between two fetches while there is a value, in seconds.
pub(super) const INTERVAL: u64 = 30;
/// The shortest time between two fetches while there is none, in seconds.
pub(super) const RETRY_INTERVAL: u64 = 5;

/// The issuer is unreachable, and there is no value to use instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unavailable;

/// A decision on the use of a value.
pub(super) enum Decision<T> {
    /// The value is used.
    Use(Arc<T>),
    /// The value is fetched first.
    Fetch,
    /// The value is used, and fetched at the same time: the issuer was unreachable lately.
    UseAndFetch(Arc<T>),
    /// There is no value, and it is too early to fetch it again.
    Unavailable,
}

/// A value and the times of its fetches. The pure part of [`Refreshed`].
pub(super) struct Slot<T> {
    value: Option<Fresh<T>>,
    attempted: Option<u64>,
    /// A fetch is in flight: requests that need its value wait.
    fetching: bool,
    /// The last fetch failed.
    failed: bool,
}

struct Fresh<T> {
    value: Arc<T>,
    fetched: u64,
    max_age: u64,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self { value: None, attempted: None, fetching: false, failed: false }
    }

    /// Decides at `now`. A value that is not `wanted` is one that a newer one may replace.
    pub(super) fn decide(&self, now: u64, wanted: impl Fn(&T) -> bool) -> Decision<T> {
        let age = |fresh: &Fresh<T>| now.saturating_sub(fresh.fetched);
        let value = self.value.as_ref().filter(|fresh| age(fresh) < fresh.max_age + MAX_STALE);
        let interval = if value.is_some() { INTERVAL } else { RETRY_INTERVAL };
        // A clock that was set back must not stop the fetches.
        let may_fetch =
            self.fetching || self.attempted.is_none_or(|last| now < last || now - last >= interval);
        let Some(fresh) = value else {
            return if may_fetch { Decision::Fetch } else { Decision::Unavailable };
        };
        let is_wanted = wanted(&fresh.value);
        if is_wanted && (age(fresh) < fresh.max_age || !may_fetch) {
            Decision::Use(Arc::clone(&fresh.value))
        } else if may_fetch {
            if is_wanted && self.failed {
                Decision::UseAndFetch(Arc::clone(&fresh.value))
            } else {
                Decision::Fetch
            }
        } else if self.failed {
            // The newer value may be the wanted one.
            Decision::Unavailable
        } else {
            Decision::Use(Arc::clone(&fresh.value))
        }
    }

    /// Notes the start of a fetch.
    pub(super) fn begin(&mut self, now: u64) {
        self.attempted = Some(now);
        self.fetching = true;
    }

    /// Notes the end of a fetch: the value, and its `max-age` in seconds.
    pub(super) fn finish(&mut self, now: u64, outcome: Option<(T, Option<u64>)>) {
        self.fetching = false;
        self.failed = outcome.is_none();
        if let Some((value, max_age)) = outcome {
            let max_age = max_age.unwrap_or(DEFAULT_AGE).clamp(MIN_AGE, MAX_AGE);
            self.value = Some(Fresh { value: Arc::new(value), fetched: now, max_age });
        }
    }
}

/// A value that is fetched by one task at a time.
pub(super) struct Refreshed<L: Load> {
    loader: L,
    clock: Clock,
    slot: Mutex<Slot<L::Value>>,
    flight: Arc<tokio::sync::Mutex<()>>,
}

/// Fetches a value.
pub(super) trait Load: Send + Sync + 'static {
    type Value: Send + Sync + 'static;

    /// Fetches the value, and returns it with its `max-age` in seconds.
    fn load(&self) -> impl Future<Output = Result<(Self::Value, Option<u64>), FetchError>> + Send;

    /// Returns the issuer, for the log.
    fn issuer(&self) -> &str;
}

impl<L: Load> Refreshed<L> {
    pub(super) fn new(loader: L, clock: Clock) -> Arc<Self> {
        let flight = Arc::new(tokio::sync::Mutex::new(()));
        Arc::new(Self { loader, clock, slot: Mutex::new(Slot::new()), flight })
    }

    /// Returns the value, and fetches it if necessary.
    ///
    /// Cancel safe: the fetch runs in a task of its own.
    ///
    /// # Errors
    ///
    /// If there is no value, and it cannot be fetched.
    pub(super) async fn get(
        self: &Arc<Self>,
        wanted: impl Fn(&L::Value) -> bool + Send + Sync,
    ) -> Result<Arc<L::Value>, Unavailable> {
        match self.slot().decide(self.clock.now(), &wanted) {
            Decision::Use(value) => return Ok(value),
            Decision::Unavailable => return Err(Unavailable),
            Decision::UseAndFetch(value) => {
                if let Ok(permit) = Arc::clone(&self.flight).try_lock_owned() {
                    drop(tokio::spawn(Arc::clone(self).fetch(permit)));
                }
                return Ok(value);
            }
            Decision::Fetch => {}
        }
        let permit = Arc::clone(&self.flight).lock_owned().await;
        // Another request may have fetched in the meantime.
        let decision = self.slot().decide(self.clock.now(), &wanted);
        if let Decision::Fetch | Decision::UseAndFetch(_) = decision {
            // If the task panics, then the decision below finds the old value.
            let _ = tokio::spawn(Arc::clone(self).fetch(permit)).await;
        }
        match self.slot().decide(self.clock.now(), &wanted) {
            Decision::Use(value) | Decision::UseAndFetch(value) => Ok(value),
            Decision::Fetch | Decision::Unavailable => Err(Unavailable),
        }
    }

    async fn fetch(self: Arc<Self>, permit: tokio::sync::OwnedMutexGuard<()>) {
        self.slot().begin(self.clock.now());
        let outcome = self.loader.load().await;
        let outcome = outcome.inspect_err(|error| {
            let issuer = self.loader.issuer();
            tracing::warn!(target: "mrtr::auth", %issuer, %error, "cannot fetch from the issuer");
        });
        self.slot().finish(self.clock.now(), outcome.ok());
        drop(permit);
    }

    fn slot(&self) -> MutexGuard<'_, Slot<L::Value>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Load> fmt::Debug for Refreshed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refreshed").field("issuer", &self.loader.issuer()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot that has fetched `1` at second 1000.
    fn slot(max_age: Option<u64>) -> Slot<u32> {
        let mut slot = Slot::new();
        slot.begin(1000);
        slot.finish(1000, Some((1, max_age)));
        slot
    }

    fn decision(slot: &Slot<u32>, now: u64, wanted: u32) -> &'static str {
        match slot.decide(now, |value| *value == wanted) {
            Decision::Use(_) => "use",
            Decision::Fetch => "fetch",
            Decision::UseAndFetch(_) => "use and fetch",
            Decision::Unavailable => "unavailable",
        }
    }

    #[test]
    fn value_is_used_for_its_age_within_the_limits() {
        for (max_age, used) in [
            (None, 3600),
            (Some(0), 300),
            (Some(600), 600),
            (Some(86_400), 86_400),
            (Some(u64::MAX), 86_400),
        ] {
            let slot = slot(max_age);
            assert_eq!(decision(&slot, 1000 + used - 1, 1), "use", "{max_age:?}");
            assert_eq!(decision(&slot, 1000 + used, 1), "fetch", "{max_age:?}");
        }
    }

    #[test]
    fn unwanted_value_is_replaced_at_most_every_thirty_seconds() {
        let mut slot = slot(None);
        assert_eq!(decision(&slot, 1029, 2), "use");
        assert_eq!(decision(&slot, 1030, 2), "fetch");
        slot.begin(1030);
        slot.finish(1031, Some((1, None)));
        assert_eq!(decision(&slot, 1059, 2), "use");
        assert_eq!(decision(&slot, 1060, 2), "fetch");
    }

    #[test]
    fn stale_value_is_used_for_a_day_while_the_issuer_is_unreachable() {
        let mut slot = slot(None);
        let stale = 1000 + 3600;
        assert_eq!(decision(&slot, stale, 1), "fetch");
        slot.begin(stale);
        slot.finish(stale, None);
        assert_eq!(decision(&slot, stale + 29, 1), "use");
        assert_eq!(decision(&slot, stale + 30, 1), "use and fetch");
        assert_eq!(decision(&slot, stale + MAX_STALE - 1, 1), "use and fetch");
        // The wanted key may be among those that cannot be fetched.
        assert_eq!(decision(&slot, stale + 29, 2), "unavailable");
        assert_eq!(decision(&slot, stale + 30, 2), "fetch");
        assert_eq!(decision(&slot, stale + MAX_STALE, 1), "fetch");
        slot.begin(stale + MAX_STALE);
        slot.finish(stale + MAX_STALE, None);
        assert_eq!(decision(&slot, stale + MAX_STALE + 1, 1), "unavailable");
    }

    #[test]
    fn without_a_value_the_fetch_is_retried_every_five_seconds() {
        let mut slot = Slot::<u32>::new();
        assert_eq!(decision(&slot, 1000, 1), "fetch");
        slot.begin(1000);
        slot.finish(1000, None);
        assert_eq!(decision(&slot, 1004, 1), "unavailable");
        assert_eq!(decision(&slot, 1005, 1), "fetch");
        assert_eq!(decision(&slot, 900, 1), "fetch", "the clock was set back");
    }
}
