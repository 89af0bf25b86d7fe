//! The body of an event stream.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Response, header};
use bytes::Bytes;
use http_body::{Body, Frame};
use mrtr_schema::RawJson;
use mrtr_transport::RequestHandler;
use mrtr_transport::http::ResponseBody;
use tokio::time::{Sleep, sleep};

use crate::server::run::AttachedReader;
use crate::server::stream::Event;

/// The interval of comments on a stream without events: shorter than the idle timeouts of proxies.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How long a client is asked to wait before it resumes a stream, in milliseconds.
const RETRY_MILLIS: u64 = 1_000;

/// Creates a response that is an event stream.
pub(super) fn event_stream(
    body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx buffers responses unless told not to.
    let no = HeaderValue::from_static("no");
    headers.insert(HeaderName::from_static("x-accel-buffering"), no);
    response
}

/// Appends an event.
pub(super) fn push_event(events: &mut String, id: Option<&str>, message: RawJson) {
    let mut text = String::from(message);
    // Between tokens, JSON may contain line breaks; inside strings they are escaped.
    if text.contains(['\n', '\r']) {
        text.retain(|c| !matches!(c, '\n' | '\r'));
    }
    if let Some(id) = id {
        // Writing to a string cannot fail.
        let _ = writeln!(events, "id: {id}");
    }
    events.push_str("data: ");
    events.push_str(&text);
    events.push_str("\n\n");
}

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
    idle: Option<Pin<Box<Sleep>>>,
}

impl<H: RequestHandler> CallEvents<H> {
    pub(super) fn new(mut reader: AttachedReader<H>, priming: bool) -> Self {
        reader.set_stream();
        Self { reader, priming, idle: None }
    }

    fn event_id(&self, position: u64, state: Option<&str>) -> String {
        EventId { stream: self.reader.reader.stream().id(), position, state }.write()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        let mut events = String::new();
        if std::mem::take(&mut self.priming) {
            let id = self.event_id(self.reader.reader.position(), None);
            // Writing to a string cannot fail.
            let _ = write!(events, "id: {id}\nretry: {RETRY_MILLIS}\ndata: \n\n");
            return Poll::Ready(Some(events));
        }
        match self.reader.reader.poll_next(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Event { position, message, state, .. })) => {
                let id = self.event_id(position, state.as_deref());
                push_event(&mut events, Some(&id), message);
            }
            Poll::Pending => {
                let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(KEEP_ALIVE_INTERVAL)));
                ready!(idle.as_mut().poll(cx));
                events.push_str(":\n\n");
            }
        }
        self.idle = None;
        Poll::Ready(Some(events))
    }
}

impl<H: RequestHandler> Body for CallEvents<H> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = ready!(self.poll_next(cx));
        Poll::Ready(next.map(|events| Ok(Frame::data(events.into()))))
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
