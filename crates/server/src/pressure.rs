//! When a replica had better let others go on with its flows.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether flows should move on.
#[derive(Default)]
pub(crate) struct Pressure {
    closing: AtomicBool,
    overloaded: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Pressure {
    pub(crate) fn overloaded_when(
        &mut self,
        overloaded: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.overloaded = Some(Box::new(overloaded));
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_high(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
            || self.overloaded.as_ref().is_some_and(|overloaded| overloaded())
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressure").field("closing", &self.closing).finish_non_exhaustive()
    }
}
