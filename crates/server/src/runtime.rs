//! The mutable state of a server process.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::state::StateMap;
use crate::task_tracker::TaskTracker;

#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) hand_over: HandOverPolicy,
    pub(crate) tasks: TaskTracker,
    /// The application state of all handlers.
    pub(crate) state: StateMap,
}

/// Whether others had better go on with its flows.
#[derive(Default)]
pub(crate) struct HandOverPolicy {
    closing: AtomicBool,
    /// There is nobody else to go on.
    ignored: bool,
    overloaded: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl HandOverPolicy {
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

    pub(crate) fn should_hand_over(&self) -> bool {
        let overloaded = || self.overloaded.as_ref().is_some_and(|overloaded| overloaded());
        !self.ignored && (self.closing.load(Ordering::Relaxed) || overloaded())
    }
}

impl fmt::Debug for HandOverPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOverPolicy").field("closing", &self.closing).finish_non_exhaustive()
    }
}
