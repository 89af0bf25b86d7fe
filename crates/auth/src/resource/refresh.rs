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

/// The shortest time between two fetches that replace a value because of its age, and between two
/// in search of a newer value, in seconds.
const INTERVAL: u64 = 30;
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
    /// There is no value, or not the wanted one, and it is too early to fetch again.
    Unavailable,
}

/// A value and the times of its fetches. The pure part of [`Refreshed`].
pub(super) struct Slot<T> {
    value: Option<Fresh<T>>,
    /// The last fetch: its start, or its end if it failed. A fetch may take longer than the
    /// interval.
    attempted: Option<u64>,
    /// The last fetch in search of a newer value. Other fetches do not count: a key that is new
    /// right after one of them must be found.
    searched: Option<u64>,
    /// The number of fetches that have ended.
    fetches: u64,
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
        Self {
            value: None,
            attempted: None,
            searched: None,
            fetches: 0,
            fetching: false,
            failed: false,
        }
    }

    /// Decides at `now`. A value that is not `wanted` is one that a newer one may replace, unless
    /// what is wanted is older than the last fetch.
    pub(super) fn decide(
        &self,
        now: u64,
        since: Option<u64>,
        wanted: impl Fn(&T) -> bool,
    ) -> Decision<T> {
        // A clock that was set back must not stop the fetches.
        let may_fetch = |last: Option<u64>, interval| {
            self.fetching || last.is_none_or(|last| now < last || now - last >= interval)
        };
        let Some(fresh) = self.usable(now) else {
            let may_fetch = may_fetch(self.attempted, RETRY_INTERVAL);
            return if may_fetch { Decision::Fetch } else { Decision::Unavailable };
        };
        let value = || Arc::clone(&fresh.value);
        if !wanted(&fresh.value) {
            let is_older = since.is_some_and(|since| since < fresh.fetched);
            return if may_fetch(self.searched, INTERVAL) {
                Decision::Fetch
            } else if is_older && !self.failed {
                Decision::Use(value())
            } else {
                Decision::Unavailable
            };
        }
        // One of the future is not fresh: the clock was set back.
        let is_fresh = now.checked_sub(fresh.fetched).is_some_and(|age| age < fresh.max_age);
        if is_fresh || !may_fetch(self.attempted, INTERVAL) {
            Decision::Use(value())
        } else if self.failed {
            Decision::UseAndFetch(value())
        } else {
            Decision::Fetch
        }
    }

    /// Returns the value right after a fetch, also if it is not the `wanted` one. `None` if there
    /// is no value, or the wanted one may be what could not be fetched.
    fn after_fetch(&self, now: u64, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let fresh = self.usable(now)?;
        (!self.failed || wanted(&fresh.value)).then(|| Arc::clone(&fresh.value))
    }

    fn usable(&self, now: u64) -> Option<&Fresh<T>> {
        let age = |fresh: &Fresh<T>| now.saturating_sub(fresh.fetched);
        self.value.as_ref().filter(|fresh| age(fresh) < fresh.max_age + MAX_STALE)
    }

    /// Notes the start of a fetch in search of a `wanted` value.
    pub(super) fn begin(&mut self, now: u64, wanted: impl Fn(&T) -> bool) {
        if self.value.as_ref().is_some_and(|fresh| !wanted(&fresh.value)) {
            self.searched = Some(now);
        }
        self.attempted = Some(now);
        self.fetching = true;
    }

    /// Notes the end of a fetch: the value, and its `max-age` in seconds.
    pub(super) fn finish(&mut self, now: u64, outcome: Option<(T, Option<u64>)>) {
        self.fetching = false;
        self.fetches += 1;
        self.failed = outcome.is_none();
        if let Some((value, max_age)) = outcome {
            let max_age = max_age.unwrap_or(DEFAULT_AGE).clamp(MIN_AGE, MAX_AGE);
            self.value = Some(Fresh { value: Arc::new(value), fetched: now, max_age });
        } else {
            // Otherwise each request that arrives after a timeout would wait for another one.
            if self.searched == self.attempted {
                self.searched = Some(now);
            }
            self.attempted = Some(now);
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

    /// Returns the value, and fetches it if necessary. `since` is the time from which on the issuer
    /// has had what is `wanted`.
    ///
    /// Cancel safe: the fetch runs in a task of its own.
    ///
    /// # Errors
    ///
    /// If there is no value, and it cannot be fetched.
    pub(super) async fn get(
        self: &Arc<Self>,
        since: Option<u64>,
        wanted: impl Fn(&L::Value) -> bool + Send + Sync,
    ) -> Result<Arc<L::Value>, Unavailable> {
        let (decision, fetches) = {
            let slot = self.slot();
            (slot.decide(self.clock.now(), since, &wanted), slot.fetches)
        };
        match decision {
            Decision::Use(value) => return Ok(value),
            Decision::Unavailable => return Err(Unavailable),
            Decision::UseAndFetch(value) => {
                if let Ok(permit) = Arc::clone(&self.flight).try_lock_owned() {
                    self.begin(&wanted);
                    drop(tokio::spawn(Arc::clone(self).fetch(permit)));
                }
                return Ok(value);
            }
            Decision::Fetch => {}
        }
        let permit = Arc::clone(&self.flight).lock_owned().await;
        // Another request may have fetched in the meantime.
        if self.slot().fetches == fetches {
            self.begin(&wanted);
            // If the task panics, the old value is found below.
            let _ = tokio::spawn(Arc::clone(self).fetch(permit)).await;
        }
        self.slot().after_fetch(self.clock.now(), &wanted).ok_or(Unavailable)
    }

    fn begin(&self, wanted: impl Fn(&L::Value) -> bool) {
        self.slot().begin(self.clock.now(), wanted);
    }

    async fn fetch(self: Arc<Self>, permit: tokio::sync::OwnedMutexGuard<()>) {
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
        slot.begin(1000, |_| true);
        slot.finish(1000, Some((1, max_age)));
        slot
    }

    fn decision(slot: &Slot<u32>, now: u64, wanted: u32) -> &'static str {
        decision_since(slot, now, None, wanted)
    }

    fn decision_since(slot: &Slot<u32>, now: u64, since: Option<u64>, wanted: u32) -> &'static str {
        match slot.decide(now, since, |value| *value == wanted) {
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
    fn value_of_the_future_is_fetched_again() {
        assert_eq!(decision(&slot(None), 999, 1), "fetch", "the clock was set back");
    }

    #[test]
    fn newer_value_is_searched_for_every_thirty_seconds() {
        let mut slot = slot(None);
        // A fetch for another reason does not delay the search.
        assert_eq!(decision(&slot, 1000, 2), "fetch");
        slot.begin(1001, |value| *value == 2);
        slot.finish(1001, Some((1, None)));
        assert_eq!(slot.after_fetch(1001, |value| *value == 2), Some(Arc::new(1)));
        assert_eq!(
            decision(&slot, 1030, 2),
            "unavailable",
            "the value may be newer than the fetch"
        );
        assert_eq!(decision(&slot, 1030, 1), "use");
        assert_eq!(decision_since(&slot, 1030, Some(1001), 2), "unavailable");
        assert_eq!(decision_since(&slot, 1030, Some(1000), 2), "use", "the value was removed");
        assert_eq!(decision(&slot, 1031, 2), "fetch");
    }

    #[test]
    fn stale_value_is_used_for_a_day_while_the_issuer_is_unreachable() {
        let mut slot = slot(None);
        let stale = 1000 + 3600;
        assert_eq!(decision(&slot, stale, 1), "fetch");
        slot.begin(stale, |_| true);
        slot.finish(stale, None);
        assert_eq!(decision(&slot, stale + 29, 1), "use");
        assert_eq!(decision(&slot, stale + 30, 1), "use and fetch");
        assert_eq!(decision(&slot, stale + MAX_STALE - 1, 1), "use and fetch");
        // The wanted key may be among those that cannot be fetched.
        assert_eq!(slot.after_fetch(stale, |value| *value == 2), None);
        assert_eq!(decision(&slot, stale + 29, 2), "fetch");
        assert_eq!(decision(&slot, stale + MAX_STALE, 1), "fetch");
        slot.begin(stale + MAX_STALE, |_| true);
        slot.finish(stale + MAX_STALE, None);
        assert_eq!(decision(&slot, stale + MAX_STALE + 1, 1), "unavailable");
    }

    #[test]
    fn without_a_value_the_fetch_is_retried_every_five_seconds() {
        let mut slot = Slot::<u32>::new();
        assert_eq!(decision(&slot, 1000, 1), "fetch");
        slot.begin(1000, |_| true);
        slot.finish(1000, None);
        assert_eq!(decision(&slot, 1004, 1), "unavailable");
        assert_eq!(decision(&slot, 1005, 1), "fetch");
        assert_eq!(decision(&slot, 900, 1), "fetch", "the clock was set back");
    }

    #[test]
    fn interval_begins_at_the_end_of_a_fetch_that_failed() {
        let mut slot = Slot::<u32>::new();
        slot.begin(1000, |_| true);
        slot.finish(1010, None);
        assert_eq!(decision(&slot, 1011, 1), "unavailable");
        assert_eq!(decision(&slot, 1014, 1), "unavailable");
        assert_eq!(decision(&slot, 1015, 1), "fetch");

        let mut slot = self::slot(None);
        slot.begin(1100, |value| *value == 2);
        slot.finish(1140, None);
        assert_eq!(decision(&slot, 1169, 2), "unavailable");
        assert_eq!(decision(&slot, 1170, 2), "fetch");
    }
}
