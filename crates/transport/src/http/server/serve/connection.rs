//! The state of one connection, shared by its task, its stream and the sweep.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use super::options::ServeOptions;

/// State that all connections of a server share.
pub(super) struct ServerState {
    pub(super) options: ServeOptions,
    /// The number of sweeps so far: a coarse clock that costs a request one load.
    sweeps: AtomicU64,
    closing: AtomicBool,
}

/// The state of one connection.
pub(super) struct Connection {
    server: Arc<ServerState>,
    /// The sweep before the last sign of life: a write that the client accepted, the end of a
    /// response, or the connection's start.
    last_active: AtomicU64,
    /// A request is being answered.
    in_request: AtomicBool,
    /// The client accepts none of the pending output.
    blocked: AtomicBool,
    waker: OnceLock<Waker>,
}

/// A connection's future that can be asked to end after the request that it is answering.
pub(super) trait GracefulConnection: Future {
    fn begin_shutdown(self: Pin<&mut Self>);
}

impl ServerState {
    pub(super) fn new(options: ServeOptions) -> Arc<Self> {
        Arc::new(Self { options, sweeps: AtomicU64::new(0), closing: AtomicBool::new(false) })
    }

    /// Starts another sweep and returns its number.
    ///
    /// `Relaxed`, as are all loads of the counter: a connection that reads the number before last
    /// appears idle for one sweep too long, which the patience of the sweep allows for.
    pub(super) fn begin_sweep(&self) -> u64 {
        self.sweeps.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of sweeps so far.
    pub(super) fn sweeps(&self) -> u64 {
        self.sweeps.load(Ordering::Relaxed)
    }

    /// Requests that all connections end. Each of them must be woken after that.
    pub(super) fn begin_shutdown(&self) {
        self.closing.store(true, Ordering::SeqCst);
        // Orders the store before the loads of the wakers: see `Connection::drive`.
        fence(Ordering::SeqCst);
    }
}

impl Connection {
    pub(super) fn new(server: &Arc<ServerState>) -> Self {
        Self {
            server: Arc::clone(server),
            last_active: server.sweeps().into(),
            in_request: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            waker: OnceLock::new(),
        }
    }

    pub(super) fn options(&self) -> &ServeOptions {
        &self.server.options
    }

    /// Runs the connection, and begins its graceful shutdown when the server closes.
    pub(super) async fn drive<C: GracefulConnection>(&self, connection: C) -> C::Output {
        let mut connection = pin!(connection);
        let mut is_closing = false;
        poll_fn(|cx| {
            if self.waker.get().is_none() {
                // All wakers of a task wake it, so that the first one can stay.
                let _ = self.waker.set(cx.waker().clone());
                // Here the waker is stored and then `closing` is loaded; the shutdown stores
                // `closing` and then loads the waker. With a fence between the two on both sides,
                // at least one side sees the other's store: the shutdown is never missed.
                fence(Ordering::SeqCst);
            }
            if !is_closing && self.server.closing.load(Ordering::SeqCst) {
                is_closing = true;
                connection.as_mut().begin_shutdown();
            }
            connection.as_mut().poll(cx)
        })
        .await
    }

    /// Wakes the connection's task, if it has been polled. If not, its first poll sees `closing`.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// `Relaxed`: the `Release` stores of `in_request` and `blocked` publish it where it matters.
    fn record_activity(&self) {
        self.last_active.store(self.server.sweeps(), Ordering::Relaxed);
    }

    /// Records an attempt to write. `accepted` is true if the client accepted any of the bytes.
    pub(super) fn record_write(&self, accepted: bool) {
        // `Relaxed`: only the connection's own task writes `blocked`.
        let was_blocked = self.blocked.load(Ordering::Relaxed);
        if accepted || !was_blocked {
            // A repeated attempt that is not accepted either is not a sign of life.
            self.record_activity();
        }
        if accepted == was_blocked {
            // `Release`, so that a sweep that sees the connection blocked also sees the time since
            // when it is blocked.
            self.blocked.store(!accepted, Ordering::Release);
        }
    }

    /// Returns the number of sweeps for which the connection has waited for its client, as of the
    /// sweep `now`.
    ///
    /// A connection that answers a request does not wait for its client, unless the client accepts
    /// nothing of the response.
    pub(super) fn sweeps_waited(&self, now: u64) -> u64 {
        // `Acquire` pairs with the `Release` of the stores that end a request or report a blocked
        // client: a sweep that sees them also sees the `last_active` that was stored before.
        let is_answering =
            self.in_request.load(Ordering::Acquire) && !self.blocked.load(Ordering::Acquire);
        if is_answering {
            return 0;
        }
        now.saturating_sub(self.last_active.load(Ordering::Relaxed))
    }
}

/// Marks a connection as answering a request, from the request's head to the end of the response.
pub(super) struct RequestGuard(Arc<Connection>);

impl RequestGuard {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        // `Relaxed`: a sweep that does not see it yet finds a connection that was active just now,
        // or one that was about to be closed anyway.
        connection.in_request.store(true, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    pub(super) fn options(&self) -> &ServeOptions {
        self.0.options()
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.record_activity();
        // `Release`: a sweep that sees the end of the request sees the activity, too.
        self.0.in_request.store(false, Ordering::Release);
    }
}
