//! Connections: how long one may wait for its client, and how all of them end.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::serve::ServeOptions;

/// At most so long it takes to notice that a connection has waited too long.
const SLOWEST: Duration = Duration::from_secs(1);

/// All connections of a server.
///
/// None has a timer of its own, which every request would have to set anew: they are looked at together.
pub(super) struct Connections {
    tasks: JoinSet<()>,
    watch: Watch,
}

/// Who looks at them.
struct Watch {
    common: Arc<Common>,
    /// Those that had not ended when they were looked at last, and newer ones.
    open: Vec<(AbortHandle, Arc<Connection>)>,
    pace: Interval,
    /// After how many looks a connection has waited too long.
    patience: u64,
}

struct Common {
    options: ServeOptions,
    /// How often connections were looked at.
    looks: AtomicU64,
    closing: AtomicBool,
}

/// What is known of one connection.
pub(super) struct Connection {
    common: Arc<Common>,
    /// The look after which something was last written; or it was accepted.
    since: AtomicU64,
    /// Whether a request is being answered.
    busy: AtomicBool,
    /// Whether the client takes nothing of what there is to write.
    blocked: AtomicBool,
    task: OnceLock<Waker>,
}

/// What can be asked to end when it has answered the request that it is at.
pub(super) trait Graceful: Future {
    fn end(self: Pin<&mut Self>);
}

impl Connections {
    /// None yet.
    pub(super) fn new(options: ServeOptions) -> Self {
        let time = options.header_time;
        let pace = (time / 8).clamp(Duration::from_millis(1), SLOWEST);
        let patience = time.as_nanos().div_ceil(pace.as_nanos()) + 1;
        let mut pace = interval(pace);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (looks, closing) = (AtomicU64::new(0), AtomicBool::new(false));
        let watch = Watch {
            common: Arc::new(Common { options, looks, closing }),
            open: Vec::new(),
            pace,
            patience: u64::try_from(patience).unwrap_or(u64::MAX),
        };
        Self { tasks: JoinSet::new(), watch }
    }

    /// Serves one more. `slot` is given back when it ends.
    pub(super) fn add<C, T>(&mut self, slot: T, serve: impl FnOnce(&Arc<Connection>) -> C)
    where
        C: Graceful<Output = hyper::Result<()>> + Send + 'static,
        T: Send + 'static,
    {
        // Those that have ended are forgotten.
        while self.tasks.try_join_next().is_some() {}
        let connection = Arc::new(Connection::new(&self.watch.common));
        let (serving, own) = (serve(&connection), Arc::clone(&connection));
        let task = self.tasks.spawn(async move {
            if let Err(error) = own.drive(serving).await {
                tracing::debug!(target: "mrtr::http", %error, "connection ended");
            }
            drop(slot);
        });
        self.watch.open.push((task, connection));
    }

    /// Waits until it is time to look at them, and ends those that have waited too long. Where there are none, it waits for ever.
    ///
    /// If the future is dropped, nothing was looked at.
    pub(super) async fn look(&mut self) {
        self.watch.look().await;
    }

    /// Lets each answer the request that it is at, and waits until all have ended; those that wait too long are ended, as before.
    ///
    /// If the future is dropped, those that are left are cut off.
    pub(super) async fn end(mut self) {
        self.watch.common.closing.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        for (_, connection) in &self.watch.open {
            connection.task.get().map(Waker::wake_by_ref);
        }
        loop {
            tokio::select! {
                ended = self.tasks.join_next() => if ended.is_none() { return },
                () = self.watch.look() => {}
            }
        }
    }
}

impl Watch {
    async fn look(&mut self) {
        if self.open.is_empty() {
            pending::<()>().await;
        }
        self.pace.tick().await;
        let now = self.common.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let patience = self.patience;
        self.open.retain(|(task, connection)| {
            let late = connection.has_waited(now) > patience;
            if late {
                tracing::debug!(target: "mrtr::http", "connection ended: its client let it wait");
                task.abort();
            }
            !(late || task.is_finished())
        });
    }
}

impl Connection {
    fn new(common: &Arc<Common>) -> Self {
        Self {
            common: Arc::clone(common),
            since: common.looks.load(Ordering::Relaxed).into(),
            busy: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            task: OnceLock::new(),
        }
    }

    /// How its server serves.
    pub(super) fn options(&self) -> &ServeOptions {
        &self.common.options
    }

    async fn drive<C: Graceful>(&self, serving: C) -> C::Output {
        let mut serving = pin!(serving);
        let mut told = false;
        poll_fn(|cx| {
            if self.task.get().is_none() {
                // All wakers of a task wake it. This one is there before the question, so that the answer is not missed.
                let _ = self.task.set(cx.waker().clone());
                fence(Ordering::SeqCst);
            }
            if !told && self.common.closing.load(Ordering::SeqCst) {
                told = true;
                serving.as_mut().end();
            }
            serving.as_mut().poll(cx)
        })
        .await
    }

    fn is_alive(&self) {
        self.since.store(self.common.looks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Something was to be written, and the client took of it or did not.
    pub(super) fn wrote(&self, taken: bool) {
        let was_blocked = self.blocked.load(Ordering::Relaxed);
        if taken || !was_blocked {
            // To be tried again and to take nothing again is no sign of life.
            self.is_alive();
        }
        if taken == was_blocked {
            self.blocked.store(!taken, Ordering::Release);
        }
    }

    /// For how many looks it has waited, as of the look `now`: what is being answered waits for nobody, unless the client takes
    /// nothing of the answer.
    fn has_waited(&self, now: u64) -> u64 {
        let busy = self.busy.load(Ordering::Acquire) && !self.blocked.load(Ordering::Acquire);
        if busy { 0 } else { now.saturating_sub(self.since.load(Ordering::Relaxed)) }
    }
}

/// Held while a request is being answered, from its head to the end of the response.
pub(super) struct Busy(Arc<Connection>);

impl Busy {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.busy.store(true, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    pub(super) fn options(&self) -> &ServeOptions {
        self.0.options()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_alive();
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Pending;
    use std::io;
    use std::sync::Mutex;
    use std::task::{Context, Poll};

    use hyper::rt::Write;
    use tokio::time::Instant;

    use super::*;
    use crate::http::server::tracked_io::TrackedIo;

    const TIME: Duration = Duration::from_secs(8);

    /// A connection that goes on until it is asked to end.
    struct Serving(bool);

    impl Future for Serving {
        type Output = hyper::Result<()>;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
            if self.0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    impl Graceful for Serving {
        fn end(mut self: Pin<&mut Self>) {
            self.0 = true;
        }
    }

    type Ended = Arc<Mutex<Option<Instant>>>;

    /// Says when it is dropped.
    struct Slot(Ended);

    impl Drop for Slot {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(Instant::now());
        }
    }

    fn add(connections: &mut Connections) -> (Arc<Connection>, Ended) {
        let (mut added, ended) = (None, Ended::default());
        connections.add(Slot(Arc::clone(&ended)), |connection| {
            added = Some(Arc::clone(connection));
            Serving(false)
        });
        (added.unwrap(), ended)
    }

    fn connections() -> Connections {
        Connections::new(ServeOptions { header_time: TIME, ..ServeOptions::default() })
    }

    /// Looks at them for so long.
    async fn look(connections: &mut Connections, time: Duration) {
        let looking = async {
            loop {
                connections.look().await;
            }
        };
        let _ = tokio::time::timeout(time, looking).await;
        tokio::task::yield_now().await;
    }

    fn ended(ended: &Ended) -> Option<Instant> {
        *ended.lock().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_nothing_is_waited_for_as_long_as_was_said_and_a_little_more() {
        let mut connections = connections();
        let begun = Instant::now();
        let (_, first) = add(&mut connections);
        look(&mut connections, 3 * TIME).await;
        let waited = ended(&first).unwrap() - begun;
        assert!(waited >= TIME && waited <= TIME * 5 / 4, "{waited:?}");
        assert!(connections.watch.open.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_when_a_request_is_answered_and_its_response_is_written() {
        let mut connections = connections();
        let (connection, slot) = add(&mut connections);
        let busy = Busy::new(&connection);
        look(&mut connections, 10 * TIME).await;
        assert_eq!(ended(&slot), None, "the handler takes its time");
        drop(busy);
        look(&mut connections, TIME * 3 / 4).await;
        let mut stream = TrackedIo { stream: Stream(true), connection: Arc::clone(&connection) };
        poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, b"a")).await.unwrap();
        look(&mut connections, TIME * 3 / 4).await;
        assert_eq!(ended(&slot), None, "the client takes its time, and takes something");
        look(&mut connections, TIME).await;
        assert!(ended(&slot).is_some());
    }

    /// What cannot be written keeps no handler: its time is as short as that of a request that does not come.
    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_of_an_answer_is_waited_for_as_long() {
        let mut connections = connections();
        let (connection, slot) = add(&mut connections);
        let _busy = Busy::new(&connection);
        let mut stream = TrackedIo { stream: Stream(false), connection: Arc::clone(&connection) };
        let mut write = |takes| {
            stream.stream.0 = takes;
            let cx = &mut Context::from_waker(Waker::noop());
            Pin::new(&mut stream).poll_write(cx, b"a").is_ready()
        };
        look(&mut connections, 10 * TIME).await;
        assert!(!write(false));
        look(&mut connections, TIME * 3 / 4).await;
        assert!(write(true), "it takes something in time");
        look(&mut connections, 10 * TIME).await;
        assert!(!write(false));
        look(&mut connections, TIME * 3 / 4).await;
        assert!(!write(false), "to try again is no sign of life");
        assert_eq!(ended(&slot), None);
        look(&mut connections, TIME * 3 / 4).await;
        assert!(ended(&slot).is_some());
    }

    /// A server that has no connections sleeps, and the first one after that has all of its time.
    #[tokio::test(start_paused = true)]
    async fn nobody_is_looked_for() {
        let mut connections = connections();
        look(&mut connections, 10 * TIME).await;
        assert_eq!(connections.watch.common.looks.load(Ordering::Relaxed), 0);
        let begun = Instant::now();
        let (_, slot) = add(&mut connections);
        look(&mut connections, 3 * TIME).await;
        let waited = ended(&slot).unwrap() - begun;
        assert!(waited >= TIME && waited <= TIME * 5 / 4, "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_asked_to_end() {
        let mut connections = connections();
        let slots = [add(&mut connections).1, add(&mut connections).1];
        tokio::task::yield_now().await;
        let late = add(&mut connections).1;
        tokio::time::timeout(TIME, connections.end()).await.unwrap();
        assert!(slots.iter().chain([&late]).all(|slot| ended(slot).is_some()));
    }

    /// As one does whose request has come in part.
    impl Graceful for Pending<hyper::Result<()>> {
        fn end(self: Pin<&mut Self>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_end_when_asked_is_waited_for_no_longer_than_before() {
        let mut connections = connections();
        connections.add((), |_| pending());
        tokio::time::timeout(TIME * 5 / 4, connections.end()).await.unwrap();
    }

    /// It takes all that is written, or nothing.
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
