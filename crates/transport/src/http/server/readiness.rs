//! Whether a process is to be given requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether this process is to be given requests, for those who give them out: a load balancer asks before it does.
/// Clones are one and the same.
///
/// [`serve`](super::serve) answers at [`ServeOptions::ready_path`](super::ServeOptions::ready_path) by it. In a router of
/// your own, answer with 200 or 503 by [`Readiness::is_ready`]. It says nothing to those who send requests anyway: they are
/// served.
#[derive(Debug, Clone)]
pub struct Readiness {
    yes: Arc<AtomicBool>,
    leaving: Arc<AtomicBool>,
    notice: Duration,
}

impl Readiness {
    /// Ready, until it is said otherwise. `notice` is how long a shutdown waits when it has said so: as long as a load balancer
    /// takes to notice, its interval of asking times how often it has to hear a no.
    pub fn with_notice(notice: Duration) -> Self {
        Self { yes: Arc::new(AtomicBool::new(true)), leaving: Arc::default(), notice }
    }

    /// Whether it is.
    pub fn is_ready(&self) -> bool {
        self.yes.load(Ordering::Relaxed) && !self.leaving.load(Ordering::Relaxed)
    }

    /// Says whether it is: not before a cache is warm, say, or while a database is away. Once it
    /// [leaves](Self::leave) it stays unready, whatever is said.
    pub fn set(&self, ready: bool) {
        self.yes.store(ready, Ordering::Relaxed);
    }

    /// Says that it is not any more, and gives the notice: the first part of a shutdown, in which requests still come in
    /// and are served.
    ///
    /// When the future is dropped it stays unready.
    pub async fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        if !self.notice.is_zero() {
            tracing::info!(target: "mrtr::http", notice = ?self.notice, "not ready any more");
            tokio::time::sleep(self.notice).await;
        }
    }
}

/// With no notice: for a process that nobody asks.
impl Default for Readiness {
    fn default() -> Self {
        Self::with_notice(Duration::ZERO)
    }
}
