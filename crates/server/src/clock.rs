//! The clock of a server.

use std::time::SystemTime;

use mrtr_codec::UnixSeconds;

/// A source of the current time. Tests can set their own with
/// [`ServerBuilder::clock`](crate::ServerBuilder::clock).
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> UnixSeconds;
}

/// The clock of the operating system. A time before 1970 reads as 1970, when no request state is
/// valid.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixSeconds {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        UnixSeconds(since.map_or(0, |since| since.as_secs()))
    }
}
