//! All connections of a server: idle timeouts and graceful shutdown.
//!
//! A connection has no timer of its own, which every request would have to reset. A periodic sweep
//! checks all of them instead.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::connection::{Connection, GracefulConnection, ServerState};
use super::options::ServeOptions;

/// Sweeps per timeout: a connection is closed up to a quarter of the timeout late (two intervals).
const SWEEPS_PER_TIMEOUT: u32 = 8;

/// The bounds of the interval between sweeps. The upper one limits how late a connection is closed
/// when the timeout is long; the lower one limits the work when it is short.
const MIN_INTERVAL: Duration = Duration::from_millis(1);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// All connections of a server.
pub(super) struct Connections {
    tasks: JoinSet<()>,
    sweeper: Sweeper,
}

/// Closes connections that wait too long for their clients.
struct Sweeper {
    server: Arc<ServerState>,
    /// The connections that were open at the last sweep, and newer ones.
    open: Vec<(AbortHandle, Arc<Connection>)>,
    interval: Interval,
    /// The number of sweeps for which a connection may wait for its client.
    patience: u64,
}

impl Connections {
    /// Creates an empty set of connections.
    pub(super) fn new(options: ServeOptions) -> Self {
        let timeout = options.header_timeout;
        let period = (timeout / SWEEPS_PER_TIMEOUT).clamp(MIN_INTERVAL, MAX_INTERVAL);
        // One more, since a connection may have become active just before a sweep.
        let patience = timeout.as_nanos().div_ceil(period.as_nanos()) + 1;
        let mut interval = interval(period);
        // Late sweeps must not run in a burst: connections would seem to have waited longer than
        // they have.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let sweeper = Sweeper {
            server: ServerState::new(options),
            open: Vec::new(),
            interval,
            patience: u64::try_from(patience).unwrap_or(u64::MAX),
        };
        Self { tasks: JoinSet::new(), sweeper }
    }

    /// Runs a connection in a separate task. `slot` is dropped when the connection ends.
    pub(super) fn spawn<C, T>(&mut self, slot: T, connect: impl FnOnce(&Arc<Connection>) -> C)
    where
        C: GracefulConnection<Output = hyper::Result<()>> + Send + 'static,
        T: Send + 'static,
    {
        // Forgets the connections that have ended.
        while self.tasks.try_join_next().is_some() {}
        let connection = Arc::new(Connection::new(&self.sweeper.server));
        let http = connect(&connection);
        let state = Arc::clone(&connection);
        let task = self.tasks.spawn(async move {
            if let Err(error) = state.drive(http).await {
                tracing::debug!(target: "mrtr::http", %error, "connection ended");
            }
            drop(slot);
        });
        self.sweeper.open.push((task, connection));
    }

    /// Waits for the next sweep, and closes the connections that have waited too long for their
    /// clients. Waits forever while there are no connections.
    ///
    /// If the future is dropped, no sweep was made.
    pub(super) async fn sweep(&mut self) {
        self.sweeper.sweep().await;
    }

    /// Lets each connection finish the request that it is answering, and waits until all have
    /// ended. Those that wait too long for their clients are closed as before.
    ///
    /// If the future is dropped, the remaining connections are aborted.
    pub(super) async fn shutdown(mut self) {
        self.sweeper.server.begin_shutdown();
        for (_, connection) in &self.sweeper.open {
            connection.wake();
        }
        loop {
            tokio::select! {
                ended = self.tasks.join_next() => if ended.is_none() { return },
                () = self.sweeper.sweep() => {}
            }
        }
    }
}

impl Sweeper {
    async fn sweep(&mut self) {
        if self.open.is_empty() {
            pending::<()>().await;
        }
        self.interval.tick().await;
        let now = self.server.begin_sweep();
        let patience = self.patience;
        self.open.retain(|(task, connection)| {
            let is_late = connection.sweeps_waited(now) > patience;
            if is_late {
                tracing::debug!(target: "mrtr::http", "idle timeout: connection closed");
                task.abort();
            }
            !(is_late || task.is_finished())
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, Pending, poll_fn};
    use std::io;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll, Waker};

    use hyper::rt::Write;
    use tokio::time::Instant;

    use super::super::connection::RequestGuard;
    use super::super::tracked_io::TrackedIo;
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);

    /// A connection that runs until it is asked to end.
    struct UntilShutdown(bool);

    impl Future for UntilShutdown {
        type Output = hyper::Result<()>;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            if self.0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    impl GracefulConnection for UntilShutdown {
        fn begin_shutdown(mut self: Pin<&mut Self>) {
            self.0 = true;
        }
    }

    /// The time at which a connection ended.
    type EndTime = Arc<Mutex<Option<Instant>>>;

    /// Records the time at which it is dropped.
    struct Slot(EndTime);

    impl Drop for Slot {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }

    fn spawn(connections: &mut Connections) -> (Arc<Connection>, EndTime) {
        let mut spawned = None;
        let end = EndTime::default();
        connections.spawn(Slot(Arc::clone(&end)), |connection| {
            spawned = Some(Arc::clone(connection));
            UntilShutdown(false)
        });
        (spawned.unwrap(), end)
    }

    fn connections() -> Connections {
        Connections::new(ServeOptions::default().with_header_timeout(TIMEOUT))
    }

    /// Sweeps for as long as `time`.
    async fn sweep(connections: &mut Connections, time: Duration) {
        let sweeping = async {
            loop {
                connections.sweep().await;
            }
        };
        let _ = tokio::time::timeout(time, sweeping).await;
        tokio::task::yield_now().await;
    }

    fn ended(end: &EndTime) -> Option<Instant> {
        *end.lock().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_closes_connections_that_send_nothing() {
        let mut connections = connections();
        let begun = Instant::now();
        let (_, end) = spawn(&mut connections);
        sweep(&mut connections, 3 * TIMEOUT).await;
        let waited = ended(&end).unwrap() - begun;
        assert!(waited >= TIMEOUT && waited <= TIMEOUT * 5 / 4, "{waited:?}");
        assert!(connections.sweeper.open.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_begins_after_the_response_is_written() {
        let mut connections = connections();
        let (connection, end) = spawn(&mut connections);
        let guard = RequestGuard::new(&connection);
        sweep(&mut connections, 10 * TIMEOUT).await;
        assert_eq!(ended(&end), None, "the handler is still running");
        drop(guard);
        sweep(&mut connections, TIMEOUT * 3 / 4).await;
        let mut stream = TrackedIo { stream: Stream(true), connection: Arc::clone(&connection) };
        poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, b"a")).await.unwrap();
        sweep(&mut connections, TIMEOUT * 3 / 4).await;
        assert_eq!(ended(&end), None, "the client reads slowly");
        sweep(&mut connections, TIMEOUT).await;
        assert!(ended(&end).is_some());
    }

    /// A response that cannot be written occupies no handler: the timeout is that of an idle
    /// connection.
    #[tokio::test(start_paused = true)]
    async fn idle_timeout_closes_connections_that_do_not_read() {
        let mut connections = connections();
        let (connection, end) = spawn(&mut connections);
        let _guard = RequestGuard::new(&connection);
        let mut stream = TrackedIo { stream: Stream(false), connection: Arc::clone(&connection) };
        let mut write = |accepts| {
            stream.stream.0 = accepts;
            let cx = &mut Context::from_waker(Waker::noop());
            Pin::new(&mut stream).poll_write(cx, b"a").is_ready()
        };
        sweep(&mut connections, 10 * TIMEOUT).await;
        assert!(!write(false));
        sweep(&mut connections, TIMEOUT * 3 / 4).await;
        assert!(write(true), "the client reads in time");
        sweep(&mut connections, 10 * TIMEOUT).await;
        assert!(!write(false));
        sweep(&mut connections, TIMEOUT * 3 / 4).await;
        assert!(!write(false), "another attempt is not a sign of life");
        assert_eq!(ended(&end), None);
        sweep(&mut connections, TIMEOUT * 3 / 4).await;
        assert!(ended(&end).is_some());
    }

    /// The first connection after a quiet time has its full timeout.
    #[tokio::test(start_paused = true)]
    async fn no_sweeps_without_connections() {
        let mut connections = connections();
        sweep(&mut connections, 10 * TIMEOUT).await;
        assert_eq!(connections.sweeper.server.sweeps(), 0);
        let begun = Instant::now();
        let (_, end) = spawn(&mut connections);
        sweep(&mut connections, 3 * TIMEOUT).await;
        let waited = ended(&end).unwrap() - begun;
        assert!(waited >= TIMEOUT && waited <= TIMEOUT * 5 / 4, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_all_connections() {
        let mut connections = connections();
        let ends = [spawn(&mut connections).1, spawn(&mut connections).1];
        tokio::task::yield_now().await;
        let not_yet_polled = spawn(&mut connections).1;
        tokio::time::timeout(TIMEOUT, connections.shutdown()).await.unwrap();
        assert!(ends.iter().chain([&not_yet_polled]).all(|end| ended(end).is_some()));
    }

    /// A connection that ignores the shutdown, like one whose request has arrived in part.
    impl GracefulConnection for Pending<hyper::Result<()>> {
        fn begin_shutdown(self: Pin<&mut Self>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_applies_during_shutdown() {
        let mut connections = connections();
        connections.spawn((), |_| pending());
        tokio::time::timeout(TIMEOUT * 5 / 4, connections.shutdown()).await.unwrap();
    }

    /// Accepts all that is written, or nothing.
    struct Stream(bool);

    impl Write for Stream {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.0 { Poll::Ready(Ok(bytes.len())) } else { Poll::Pending }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
