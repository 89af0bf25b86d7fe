//! The body of an event stream.

use std::fmt::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mrtr_transport::RequestHandler;
use mrtr_transport::http::{EventSource, push_event};

use crate::server::run::AttachedReader;
use crate::server::stream::{Event, EventKind};

/// How long a client is asked to wait before it resumes a stream, in milliseconds.
const RETRY_MILLIS: u64 = 1_000;

/// An id of an event: the stream, the position on it, and the sealed call if there is one.
pub(super) struct EventId<'a> {
    pub(super) stream: &'a str,
    pub(super) position: u64,
    pub(super) state: Option<&'a str>,
}

impl<'a> EventId<'a> {
    /// The character between the position and the sealed call. Tokens do not contain it.
    const SEPARATOR: char = '~';

    fn write(&self) -> String {
        let Self { stream, position, state } = self;
        match state {
            None => format!("{stream}_{position}"),
            Some(state) => format!("{stream}_{position}{}{state}", Self::SEPARATOR),
        }
    }

    /// Reads the id in a `Last-Event-ID` header.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (place, state) = match text.split_once(Self::SEPARATOR) {
            Some((place, state)) => (place, Some(state)),
            None => (text, None),
        };
        let (stream, position) = place.rsplit_once('_')?;
        Some(Self { stream, position: position.parse().ok()?, state })
    }
}

/// The events of one connection.
pub(super) struct CallEvents<H: RequestHandler> {
    reader: AttachedReader<H>,
    /// The first event, which has an id and no data.
    priming: bool,
    /// The sealed call in the last id that the client has read. Notifications get no id then, so
    /// that the client keeps that id.
    state: Option<Arc<str>>,
}

impl<H: RequestHandler> CallEvents<H> {
    /// `state` is the sealed call from which the client resumes.
    pub(super) fn new(mut reader: AttachedReader<H>, priming: bool, state: Option<&str>) -> Self {
        reader.set_stream();
        Self { reader, priming, state: state.map(Arc::from) }
    }

    fn event_id(&self, position: u64, state: Option<&str>) -> String {
        EventId { stream: self.reader.reader.stream().id(), position, state }.write()
    }
}

impl<H: RequestHandler> EventSource for CallEvents<H> {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        // Writing to a string cannot fail.
        let mut events = String::new();
        if std::mem::take(&mut self.priming) {
            let id = self.event_id(self.reader.reader.position(), self.state.as_deref());
            let _ = write!(events, "id: {id}\nretry: {RETRY_MILLIS}\ndata: \n\n");
            return Poll::Ready(Some(events));
        }
        let Some(event) = ready!(self.reader.reader.poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let Event { position, message, kind, state } = event;
        // A question that is too long to be sealed can be continued here only, from its position.
        if self.state.is_none() || matches!(kind, EventKind::Request | EventKind::Place) {
            let _ = writeln!(events, "id: {}", self.event_id(position, state.as_deref()));
            self.state = state;
        }
        match message {
            Some(message) => push_event(&mut events, &message),
            None => events.push_str("data: \n\n"),
        }
        Poll::Ready(Some(events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_survive_the_way_to_the_client_and_back() {
        for state in [None, Some("mrtr1.a_b-c")] {
            let text = EventId { stream: "0f-1", position: 7, state }.write();
            let id = EventId::parse(&text).unwrap();
            assert_eq!((id.stream, id.position, id.state), ("0f-1", 7, state));
        }
        for text in ["", "x", "x_", "x_y", "_~"] {
            assert!(EventId::parse(text).is_none(), "{text}");
        }
    }
}
