//! What all that a replica does has in common.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Extensions;

use crate::task_tracker::Running;

#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) pressure: Pressure,
    pub(crate) running: Running,
    /// For all handlers, from who built the server.
    pub(crate) provided: Extensions,
}

/// Whether others had better go on with its flows.
#[derive(Default)]
pub(crate) struct Pressure {
    closing: AtomicBool,
    /// There is nobody else to go on.
    ignored: bool,
    overloaded: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Pressure {
    pub(crate) fn overloaded_when(
        &mut self,
        overloaded: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.overloaded = Some(Box::new(overloaded));
    }

    pub(crate) fn ignored() -> Self {
        Self { ignored: true, ..Self::default() }
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_high(&self) -> bool {
        let overloaded = || self.overloaded.as_ref().is_some_and(|overloaded| overloaded());
        !self.ignored && (self.closing.load(Ordering::Relaxed) || overloaded())
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressure").field("closing", &self.closing).finish_non_exhaustive()
    }
}
