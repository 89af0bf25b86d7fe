//! The mutable state of a server process.

use std::fmt;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::state::StateMap;
use crate::task_tracker::TaskTracker;

/// The state that all requests of a server share.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) hand_over: HandOverPolicy,
    pub(crate) tasks: TaskTracker,
    /// The application state.
    pub(crate) state: StateMap,
    /// The names of legacy revisions that a transport serves, too.
    pub(crate) legacy_versions: OnceLock<Vec<&'static str>>,
}

/// The policy that decides if calls are handed over to other replicas.
#[derive(Default)]
pub(crate) struct HandOverPolicy {
    /// True after shutdown has begun.
    closing: AtomicBool,
    closed: Notify,
    /// True if no other replica can continue the calls.
    disabled: bool,
    /// The application's check for overload.
    overloaded: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl HandOverPolicy {
    pub(crate) fn overloaded_when(
        &mut self,
        overloaded: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.overloaded = Some(Box::new(overloaded));
    }

    /// Creates a policy under which calls are never handed over.
    pub(crate) fn disabled() -> Self {
        Self { disabled: true, ..Self::default() }
    }

    /// Hands over all calls from now on.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.closed.notify_waiters();
    }

    /// Waits until all calls are handed over.
    pub(crate) async fn closed(&self) {
        if self.disabled {
            return std::future::pending().await;
        }
        self.closing().await;
    }

    /// Waits until shutdown has begun.
    pub(crate) async fn closing(&self) {
        let mut closed = pin!(self.closed.notified());
        // A shutdown after this line is noticed.
        closed.as_mut().enable();
        if !self.closing.load(Ordering::Acquire) {
            closed.await;
        }
    }

    /// Returns true if shutdown has begun.
    pub(crate) fn has_shutdown_begun(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Returns true if shutdown has begun, and another replica can continue the calls.
    pub(crate) fn is_closing(&self) -> bool {
        !self.disabled && self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn should_hand_over(&self) -> bool {
        let overloaded = || self.overloaded.as_ref().is_some_and(|overloaded| overloaded());
        !self.disabled && (self.closing.load(Ordering::Relaxed) || overloaded())
    }
}

impl fmt::Debug for HandOverPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandOverPolicy").field("closing", &self.closing).finish_non_exhaustive()
    }
}
