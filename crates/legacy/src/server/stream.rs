//! The messages of one call on their way to the client: kept for a while, so that a client whose
//! connection breaks can resume the stream.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use mrtr_schema::RawJson;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

/// How many notifications a stream keeps. All requests and responses are kept: their number is
/// that of the questions of a call, and of its rounds.
const MAX_NOTIFICATIONS: usize = 256;

/// How many bytes of notifications a stream keeps, and of all messages when it has been read.
const MAX_BYTES: usize = 256 << 10;

/// One message on a stream.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The position on the stream, from 1.
    pub(crate) position: u64,
    /// JSON, or nothing in a [`Place`](EventKind::Place).
    pub(crate) message: Option<RawJson>,
    pub(crate) kind: EventKind,
    /// The sealed state from which any replica can continue the call after this message.
    pub(crate) state: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// No message: a place from which any replica can continue the call.
    Place,
    Notification,
    Request,
    Response,
}

/// What counts a request as in flight until it is dropped.
pub(crate) type Permit = Arc<dyn Any + Send + Sync>;

/// The messages of one call, or of one batch.
pub(crate) struct Stream {
    id: String,
    /// It began with several calls.
    is_batch: bool,
    /// The message that its call is resumed here has not come back from the bus.
    is_resuming: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Held until the client has read everything: a stream that waits for its client counts as a
    /// request in flight.
    permit: Option<Permit>,
    events: VecDeque<Event>,
    bytes: usize,
    /// The notifications among them, and their bytes.
    notifications: usize,
    notification_bytes: usize,
    last: u64,
    /// How many responses are still to come.
    open: usize,
    /// The newest reader. An older one ends.
    reader: u64,
    /// Room for the stream after it was read to its end.
    retained: Option<OwnedSemaphorePermit>,
    /// The task that ends the stream, unless its client comes back.
    end: Option<AbortHandle>,
    waker: Option<Waker>,
}

impl Stream {
    /// Creates a stream that ends after this many responses.
    pub(crate) fn new(id: String, responses: usize, permit: Permit) -> Arc<Self> {
        let state = State {
            permit: Some(permit),
            events: VecDeque::new(),
            bytes: 0,
            notifications: 0,
            notification_bytes: 0,
            last: 0,
            open: responses,
            reader: 0,
            retained: None,
            end: None,
            waker: None,
        };
        let is_resuming = AtomicBool::new(false);
        Arc::new(Self { id, is_batch: responses > 1, is_resuming, state: Mutex::new(state) })
    }

    pub(crate) fn is_resuming(&self) -> bool {
        self.is_resuming.load(Ordering::Relaxed)
    }

    pub(crate) fn set_resuming(&self, is_resuming: bool) {
        self.is_resuming.store(is_resuming, Ordering::Relaxed);
    }

    /// Replaces the task that ends the stream, so that a client that comes and goes has one.
    pub(crate) fn set_end(&self, task: AbortHandle) {
        if let Some(earlier) = self.lock().end.replace(task) {
            earlier.abort();
        }
    }

    /// Returns true if the stream is of a single call, so that an event id can contain all of it.
    pub(crate) fn is_of_one_call(&self) -> bool {
        !self.is_batch
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. If there are too many notifications, the oldest ones are dropped.
    pub(crate) fn push(
        &self,
        message: Option<RawJson>,
        kind: EventKind,
        event_state: Option<Arc<str>>,
    ) {
        let mut state = self.lock();
        state.last += 1;
        let length = length(message.as_ref());
        state.bytes += length;
        match kind {
            EventKind::Notification => {
                state.notifications += 1;
                state.notification_bytes += length;
            }
            EventKind::Response => state.open = state.open.saturating_sub(1),
            EventKind::Place | EventKind::Request => {}
        }
        let position = state.last;
        state.events.push_back(Event { position, message, kind, state: event_state });
        state.drop_oldest();
        wake(state);
    }

    /// Expects one response less: its call was cancelled.
    pub(crate) fn skip_response(&self) {
        let mut state = self.lock();
        state.open = state.open.saturating_sub(1);
        wake(state);
    }

    /// Ends the stream although responses are missing.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.open = 0;
        wake(state);
    }

    /// Returns true if all responses were added, or the stream was ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().open == 0
    }

    /// Returns true if the stream is complete and was read to its end. Then it no longer counts as
    /// a request in flight.
    pub(crate) fn release_if_read(&self, position: u64) -> bool {
        let mut state = self.lock();
        let is_read = state.open == 0 && position >= state.last;
        let permit = if is_read { state.permit.take() } else { None };
        drop(state);
        drop(permit);
        is_read
    }

    /// Keeps the stream although it was read, if it is small and `room` gives a permit. Returns
    /// false otherwise.
    pub(crate) fn retain(&self, room: impl FnOnce() -> Option<OwnedSemaphorePermit>) -> bool {
        let mut state = self.lock();
        if state.retained.is_none() && state.bytes <= MAX_BYTES {
            state.retained = room();
        }
        state.retained.is_some()
    }

    /// Returns the permit, unless the client has read everything.
    pub(crate) fn permit(&self) -> Option<Permit> {
        self.lock().permit.clone()
    }

    /// Returns true if there was a reader after the one with this number.
    pub(crate) fn has_reader_after(&self, number: u64) -> bool {
        self.lock().reader > number
    }

    /// Returns a reader of the messages after this position. An earlier reader ends.
    pub(crate) fn read_after(self: &Arc<Self>, position: u64) -> StreamReader {
        let mut state = self.lock();
        state.reader += 1;
        let number = state.reader;
        wake(state);
        StreamReader { stream: Arc::clone(self), number, position }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl State {
    fn drop_oldest(&mut self) {
        while self.notifications > MAX_NOTIFICATIONS || self.notification_bytes > MAX_BYTES {
            let oldest = |event: &Event| event.kind == EventKind::Notification;
            let Some(at) = self.events.iter().position(oldest) else { return };
            if let Some(dropped) = self.events.remove(at) {
                let length = length(dropped.message.as_ref());
                self.bytes -= length;
                self.notifications -= 1;
                self.notification_bytes -= length;
            }
        }
    }
}

fn length(message: Option<&RawJson>) -> usize {
    message.map_or(0, |message| message.as_str().len())
}

/// Wakes the reader, without the lock.
fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Reads a stream for one connection.
#[derive(Debug)]
pub(crate) struct StreamReader {
    stream: Arc<Stream>,
    number: u64,
    position: u64,
}

impl StreamReader {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Counts the readers of the stream.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The position of the last message that was read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Polls for the next message; `None` at the end of the stream, or if there is a newer reader.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut state = self.stream.lock();
        if state.reader != self.number {
            return Poll::Ready(None);
        }
        if let Some(event) = state.events.iter().find(|event| event.position > self.position) {
            self.position = event.position;
            return Poll::Ready(Some(event.clone()));
        }
        if state.open == 0 {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits for the next message, which stays unread.
    pub(crate) async fn peek(&mut self) -> Option<Event> {
        let before = self.position;
        let event = std::future::poll_fn(|cx| self.poll_next(cx)).await;
        self.position = before;
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::sync::Semaphore;

    #[expect(clippy::unnecessary_wraps, reason = "a stream takes messages like this")]
    fn message(n: u64) -> Option<RawJson> {
        Some(RawJson::new(&n).unwrap())
    }

    fn read_all(reader: &mut StreamReader) -> (Vec<String>, bool) {
        let mut texts = Vec::new();
        loop {
            match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(event)) => texts.push(event.message.unwrap().into()),
                Poll::Ready(None) => return (texts, true),
                Poll::Pending => return (texts, false),
            }
        }
    }

    #[test]
    fn reader_resumes_after_a_position_and_replaces_the_one_before() {
        let stream = Stream::new("s".to_owned(), 1, Arc::new(()));
        let mut first = stream.read_after(0);
        stream.push(message(1), EventKind::Notification, None);
        stream.push(message(2), EventKind::Request, None);
        assert_eq!(read_all(&mut first), (vec!["1".into(), "2".into()], false));
        let mut second = stream.read_after(1);
        assert_eq!(read_all(&mut first), (vec![], true), "there is a newer reader");
        assert!(stream.has_reader_after(first.number()));
        assert!(!stream.has_reader_after(second.number()));
        stream.push(message(3), EventKind::Response, None);
        assert_eq!(read_all(&mut second), (vec!["2".into(), "3".into()], true));
        assert!(!stream.release_if_read(2) && stream.release_if_read(second.position()));
        assert!(stream.is_complete());
    }

    #[test]
    fn large_stream_is_not_retained_and_no_stream_takes_room_twice() {
        let room = Arc::new(Semaphore::new(2));
        let take = || Arc::clone(&room).try_acquire_owned().ok();
        let new = || Stream::new("s".to_owned(), 1, Arc::new(()));
        let (first, second, third, large) = (new(), new(), new(), new());
        assert!(first.retain(take) && first.retain(take) && second.retain(take));
        assert!(!third.retain(take));
        drop(first);
        assert!(third.retain(take));
        drop((second, third));
        let text = RawJson::new(&"x".repeat(MAX_BYTES)).unwrap();
        large.push(Some(text), EventKind::Response, None);
        assert!(!large.retain(take));
    }

    #[test]
    fn full_stream_drops_notifications_and_keeps_requests_and_responses() {
        let stream = Stream::new("s".to_owned(), 1, Arc::new(()));
        stream.push(message(0), EventKind::Request, None);
        for n in 1..=2 * MAX_NOTIFICATIONS as u64 {
            stream.push(message(n), EventKind::Notification, None);
        }
        stream.push(message(9_999), EventKind::Response, None);
        let (texts, is_end) = read_all(&mut stream.read_after(0));
        assert!(is_end);
        assert_eq!(texts.len(), MAX_NOTIFICATIONS + 2);
        let first_kept = (MAX_NOTIFICATIONS + 1).to_string();
        assert_eq!([&texts[0], &texts[1], texts.last().unwrap()], ["0", &first_kept, "9999"]);
    }

    #[test]
    fn long_notifications_are_dropped_by_their_bytes() {
        let stream = Stream::new("s".to_owned(), 1, Arc::new(()));
        let long = RawJson::new(&"x".repeat(MAX_BYTES / 2)).unwrap();
        stream.push(Some(long.clone()), EventKind::Notification, None);
        stream.push(Some(long.clone()), EventKind::Notification, None);
        stream.push(message(1), EventKind::Notification, None);
        let (texts, _) = read_all(&mut stream.read_after(0));
        assert_eq!(texts, [long.as_str(), "1"]);
    }

    #[test]
    fn long_questions_leave_room_for_notifications() {
        let stream = Stream::new("s".to_owned(), 1, Arc::new(()));
        let long = RawJson::new(&"x".repeat(MAX_BYTES)).unwrap();
        stream.push(Some(long), EventKind::Request, None);
        stream.push(message(1), EventKind::Notification, None);
        stream.push(message(2), EventKind::Notification, None);
        let (texts, _) = read_all(&mut stream.read_after(1));
        assert_eq!(texts, ["1", "2"]);
    }
}
