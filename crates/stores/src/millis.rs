//! Times as databases keep them: signed 64-bit milliseconds.

use std::time::Duration;

use mrtr_server::tasks::UnixMillis;

/// The longest duration that is stored, about four million years. Sums do not overflow.
const MAX: i64 = 1 << 57;

/// Converts a duration, and shortens one that is too long.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(MAX, |millis| millis.min(MAX))
}

/// Converts a point in time.
pub(crate) fn unix_millis(millis: i64) -> UnixMillis {
    UnixMillis(u64::try_from(millis).unwrap_or(0))
}
