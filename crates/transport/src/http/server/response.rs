//! How a call is answered: with JSON, or, once the handler sends a notification first, with an event
//! stream that ends with the response.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use mrtr_schema::json::RawJson;
use mrtr_schema::jsonrpc::Notification;
use tokio::time::{Sleep, sleep};

use crate::headers;
use crate::json_line::one_line;
use crate::response_parts::{Part, ResponseParts, Written};

/// After how long without an event a comment is sent, so that nothing on the way closes the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How many bytes of events are put together before they are written: each piece costs its own chunk.
const TOGETHER: usize = 4 << 10;

/// Waits for the response or a notification, whichever is first, and answers accordingly. The request's place is given
/// back when the response is ready, or the stream ends.
pub(super) async fn reply(mut answering: ResponseParts) -> Response<ResponseBody> {
    match answering.next().await {
        None => plain(StatusCode::INTERNAL_SERVER_ERROR),
        Some(Part::Response(response)) => {
            let status = response.outcome.as_ref().err().map_or(StatusCode::OK, headers::status_of);
            json(status, &response)
        }
        Some(Part::Notification(first)) => {
            let events = Events { first: Some(first), answering, idle: None };
            let mut response = Response::new(ResponseBody(Inner::Events(Box::new(events))));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            let no = HeaderValue::from_static("no");
            headers.insert(HeaderName::from_static("x-accel-buffering"), no);
            response
        }
    }
}

pub(super) fn json(status: StatusCode, message: &Written) -> Response<ResponseBody> {
    let text = String::from(message.to_json());
    let mut response = Response::new(ResponseBody(Inner::Full(Full::from(text))));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(super) fn plain(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody(Inner::Full(Full::default())));
    *response.status_mut() = status;
    response
}

/// Adds an event with a message in it.
fn event(events: &mut String, message: RawJson) {
    let message = one_line(message);
    events.reserve(message.len() + 8);
    events.push_str("data: ");
    events.push_str(&message);
    events.push_str("\n\n");
}

/// The body of a response.
pub struct ResponseBody(Inner);

enum Inner {
    Full(Full<Bytes>),
    Events(Box<Events>),
}

struct Events {
    first: Option<Notification>,
    answering: ResponseParts,
    /// Since there was nothing to send.
    idle: Option<Pin<Box<Sleep>>>,
}

impl Events {
    /// The next event, and those that are there with it; a comment if there was none for long.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut events = String::new();
        let mut next = match self.first.take() {
            Some(first) => Some(Part::Notification(first)),
            None => match self.answering.poll_next(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(next) => next,
                Poll::Pending => {
                    let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(KEEP_ALIVE)));
                    ready!(idle.as_mut().poll(cx));
                    events.push_str(":\n\n");
                    None
                }
            },
        };
        self.idle = None;
        while let Some(part) = next {
            match part {
                Part::Notification(next) => event(&mut events, next.to_json()),
                Part::Response(last) => event(&mut events, last.to_json()),
            }
            // Nobody goes on with the call for that: what it has sent is not to wait for what it has not.
            next = if events.len() < TOGETHER { self.answering.next_there() } else { None };
        }
        Poll::Ready(Some(events.into()))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Full(full) => Pin::new(full).poll_frame(cx),
            Inner::Events(events) => {
                events.poll_next(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Full(full) => full.is_end_stream(),
            Inner::Events(events) => events.answering.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(full) => full.size_hint(),
            Inner::Events(_) => SizeHint::default(),
        }
    }
}

impl std::fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Inner::Full(_) => "ResponseBody(full)",
            Inner::Events(_) => "ResponseBody(events)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::response_parts::Received;
    use crate::traits::{IncomingRequest, RequestHandler};
    use http_body_util::BodyExt as _;
    use mrtr_schema::jsonrpc::{Request, RequestId};

    /// It sends one notification, and no response.
    struct Listening;

    impl RequestHandler for Listening {
        async fn handle(self: Arc<Self>, call: IncomingRequest) -> Written {
            let first = Notification::new("notifications/x", &()).unwrap();
            call.outbox.send(first).await;
            std::future::pending().await
        }
    }

    /// It sends three notifications, as long as it is told, and its response.
    struct Counting(usize);

    impl RequestHandler for Counting {
        async fn handle(self: Arc<Self>, call: IncomingRequest) -> Written {
            for n in 1..=3 {
                let text = "x".repeat(self.0);
                call.outbox.try_send(Notification::new("notifications/x", &(n, text)).unwrap());
            }
            Written { id: Some(call.request.id), outcome: Ok(RawJson::new(&()).unwrap()) }
        }
    }

    /// How many events are in each piece of the body.
    async fn pieces(dispatch: impl RequestHandler) -> Vec<usize> {
        let mut body = reply(answering(dispatch)).await.into_body();
        let (mut pieces, mut said_to_end) = (Vec::new(), false);
        while let Some(frame) = body.frame().await {
            assert!(!said_to_end);
            let piece = frame.unwrap().into_data().unwrap();
            pieces.push(std::str::from_utf8(&piece).unwrap().matches("data: ").count());
            said_to_end = body.is_end_stream();
        }
        assert!(said_to_end);
        pieces
    }

    #[tokio::test]
    async fn events_that_are_there_go_out_as_one_piece_unless_they_are_long() {
        assert_eq!(pieces(Counting(10)).await, [4]);
        assert_eq!(pieces(Counting(TOGETHER / 2)).await, [2, 2]);
        assert_eq!(pieces(Counting(TOGETHER)).await, [1, 1, 1, 1]);
    }

    /// It sends two notifications, and turns to others after each.
    struct Yielding;

    impl RequestHandler for Yielding {
        async fn handle(self: Arc<Self>, call: IncomingRequest) -> Written {
            for n in 1..=2 {
                call.outbox.try_send(Notification::new("notifications/x", &n).unwrap());
                tokio::task::yield_now().await;
            }
            Written { id: Some(call.request.id), outcome: Ok(RawJson::new(&()).unwrap()) }
        }
    }

    #[tokio::test]
    async fn no_event_waits_for_the_next() {
        assert_eq!(pieces(Yielding).await, [1, 1, 1]);
    }

    fn answering(dispatch: impl RequestHandler) -> ResponseParts {
        let id = RequestId::Number(1);
        let request = Request::new(id, "x", None);
        ResponseParts::new(&Arc::new(dispatch), Received::new(request, None), ())
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_has_a_comment_every_fifteen_seconds() {
        let mut body = reply(answering(Listening)).await.into_body();
        let begun = tokio::time::Instant::now();
        let mut next = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(next().await.starts_with(b"data: "));
        for n in 1..4 {
            assert_eq!(&*next().await, b":\n\n");
            assert_eq!(begun.elapsed(), KEEP_ALIVE * n);
        }
    }
}
