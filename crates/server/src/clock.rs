//! What time it is.

use std::time::SystemTime;

use mrtr_codec::UnixSeconds;

/// Tells the time. Tests bring their own.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> UnixSeconds;
}

/// The system's clock. A time before 1970 reads as 1970, so that no state is taken to be valid.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixSeconds {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        UnixSeconds(since.map_or(0, |since| since.as_secs()))
    }
}
