//! The time for which requests wait for the user.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Measures the time for which requests wait for the user, such as for a login that the credentials
/// of a transport ask for. Clones share the measurement.
///
/// [`ClientBuilder::exclude_user_time`](crate::ClientBuilder::exclude_user_time) has an example.
#[derive(Debug, Clone, Default)]
pub struct UserTime(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    /// The number of waits that have not ended, and when the first of them began.
    open: usize,
    since: Option<Instant>,
    /// The time of those before.
    ended: Duration,
}

/// A wait for the user, which ends when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct UserWait(UserTime);

impl UserTime {
    /// Begins a wait for the user. Waits at the same time count once.
    pub fn begin(&self) -> UserWait {
        let mut waits = self.lock();
        waits.open += 1;
        waits.since.get_or_insert_with(Instant::now);
        drop(waits);
        UserWait(self.clone())
    }

    /// Returns the time of all waits so far.
    pub(crate) fn total(&self) -> Duration {
        let waits = self.lock();
        waits.ended + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UserWait {
    fn drop(&mut self) {
        let mut waits = self.0.lock();
        waits.open -= 1;
        if waits.open == 0 {
            let time = waits.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            waits.ended += time;
        }
    }
}
