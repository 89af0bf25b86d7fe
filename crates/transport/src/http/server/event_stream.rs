//! The frames of event streams.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use mrtr_schema::RawJson;
use tokio::time::{Sleep, sleep};

use crate::json_line::remove_line_breaks;

/// The interval of comments on a stream without events. It is shorter than the idle timeouts of
/// common proxies (60 s), so that none of them closes the stream.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The events of a response; see [`event_stream`](super::event_stream).
pub trait EventSource: Send + Unpin + 'static {
    /// Polls for the next events, as [`push_event`] writes them; `None` at the end of the stream.
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>>;

    /// Returns true if the next poll would find the end. A server then ends the body with the last
    /// event instead of in a frame of its own.
    fn is_done(&self) -> bool {
        false
    }
}

/// Appends an event with `message` as its data. An id or a delay may stand before it.
pub fn push_event(events: &mut String, message: &RawJson) {
    events.reserve(message.as_str().len() + 8);
    write_event(events, |events| events.push_str(message.as_str()));
}

/// Appends an event whose data is what `write` appends: JSON text.
pub(super) fn write_event(events: &mut String, write: impl FnOnce(&mut String)) {
    events.push_str("data: ");
    let start = events.len();
    write(events);
    remove_line_breaks(events, start);
    events.push_str("\n\n");
}

/// The frames of an event stream: events, or a comment if there was none for a while.
pub(super) struct EventStream<S: ?Sized> {
    /// Runs while there is nothing to send.
    idle: Option<Pin<Box<Sleep>>>,
    source: S,
}

impl<S: EventSource> EventStream<S> {
    pub(super) fn new(source: S) -> Self {
        Self { idle: None, source }
    }
}

impl EventStream<dyn EventSource> {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = match self.source.poll_events(cx) {
            Poll::Ready(next) => next.map(Bytes::from),
            Poll::Pending => {
                let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(KEEP_ALIVE_INTERVAL)));
                ready!(idle.as_mut().poll(cx));
                Some(Bytes::from_static(b":\n\n"))
            }
        };
        self.idle = None;
        Poll::Ready(next)
    }

    pub(super) fn is_done(&self) -> bool {
        self.source.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_line_breaks_is_one_line_of_its_event() {
        let message = RawJson::from(serde_json::from_str::<Box<_>>("[1,\r\n2]").unwrap());
        let mut events = "id: 1\n".to_owned();
        push_event(&mut events, &message);
        push_event(&mut events, &message);
        assert_eq!(events, "id: 1\ndata: [1,2]\n\ndata: [1,2]\n\n");
    }
}
