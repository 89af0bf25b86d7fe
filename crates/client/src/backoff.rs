//! Delays before a request is sent again.

use std::time::Duration;

/// The longest delay before the first retry of a request. It doubles with each retry.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of doublings: delays stay below 6.4 s.
const MAX_DOUBLINGS: u32 = 6;

/// The longest `Retry-After` of a server that a call waits for. With a longer one it fails.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Returns the delay before a request is sent again after `retries` retries, or `None` if the
/// server requested a delay that is too long for a call.
pub(crate) fn retry_delay(retries: u32, retry_after: Duration) -> Option<Duration> {
    (retry_after <= MAX_RETRY_AFTER)
        .then(|| jittered(FIRST_DELAY * (1 << retries.min(MAX_DOUBLINGS))) + retry_after)
}

/// Returns a random duration between half of `delay` and `delay`, so that clients that failed
/// together do not retry together.
pub(crate) fn jittered(delay: Duration) -> Duration {
    delay / 2 + delay.mul_f64(random_share() / 2.0)
}

/// Returns a random duration between `delay` and a tenth more, so that clients that began together
/// do not poll together, and none of them polls too early.
pub(crate) fn extended(delay: Duration) -> Duration {
    delay + delay.mul_f64(random_share() / 10.0)
}

/// Returns a random number between 0 and 1.
fn random_share() -> f64 {
    // Without random numbers, the longest delay is the safe choice.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(random) / f64::from(u32::MAX)
}
