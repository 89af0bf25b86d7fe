//! The readiness flag that load balancers probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A readiness flag for load balancers. Clones share the flag.
///
/// [`serve`](super::serve) reports it at
/// [`ServeOptions::with_ready_path`](super::ServeOptions::with_ready_path). In a router of your
/// own, answer with 200 or 503 by [`is_ready`](Self::is_ready). A process that is not ready still
/// serves the requests that it gets.
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_transport::http::Readiness;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// // The load balancer probes every 2 s and removes a replica after 2 failures.
/// let readiness = Readiness::with_drain_delay(Duration::from_secs(4));
/// readiness.set_ready(false);
/// // … warm the caches …
/// readiness.set_ready(true);
/// assert!(readiness.is_ready());
///
/// // The first part of a graceful shutdown.
/// readiness.drain().await;
/// assert!(!readiness.is_ready());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Readiness {
    ready: Arc<AtomicBool>,
    draining: Arc<AtomicBool>,
    drain_delay: Duration,
}

/// The flags are `Relaxed`: they guard no other memory, and a probe that reads an old value is the
/// same as one that came a moment earlier.
impl Readiness {
    /// Creates a flag that is ready, with a delay for [`drain`](Self::drain).
    ///
    /// The delay should be as long as the load balancer needs to notice: the interval of its probes
    /// times the number of failures after which it removes a replica.
    pub fn with_drain_delay(delay: Duration) -> Self {
        Self {
            ready: Arc::new(AtomicBool::new(true)),
            draining: Arc::default(),
            drain_delay: delay,
        }
    }

    /// Returns true if the process should get requests.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && !self.draining.load(Ordering::Relaxed)
    }

    /// Sets the flag: true if the process should get requests. Set it to false while a cache is
    /// cold or a database is unavailable, for example. It has no effect after
    /// [`drain`](Self::drain).
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Turns the flag off permanently, and waits for the drain delay, in which requests still
    /// arrive and are served. This is the first part of a graceful shutdown.
    ///
    /// If the future is dropped, the flag stays off.
    pub async fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        if !self.drain_delay.is_zero() {
            tracing::info!(target: "mrtr::http", delay = ?self.drain_delay, "draining");
            tokio::time::sleep(self.drain_delay).await;
        }
    }
}

/// A flag that is ready, without a drain delay: for a process that no load balancer probes.
impl Default for Readiness {
    fn default() -> Self {
        Self::with_drain_delay(Duration::ZERO)
    }
}
