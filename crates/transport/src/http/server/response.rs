//! Responses: JSON, or, if the handler sends a notification first, an event stream that ends with
//! the response.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use mrtr_schema::jsonrpc::ErrorObject;

use super::event_stream::{EventSource, EventStream, write_event};
use crate::headers;
use crate::response_parts::{Part, RawResponse, ResponseParts};

/// Maximum number of bytes of events that are collected into one frame: each frame costs a chunk of
/// its own.
const MAX_COLLECTED_EVENTS: usize = 4 << 10;

/// Initial capacity in bytes for the events of one frame.
const TYPICAL_EVENTS: usize = 1 << 10;

/// Waits for the response or the first notification, and answers with JSON or an event stream. The
/// request's permit is released when the response is complete, or the stream ends.
pub(super) async fn respond(mut parts: ResponseParts) -> Response<ResponseBody> {
    match parts.next().await {
        None => empty(StatusCode::INTERNAL_SERVER_ERROR),
        Some(Part::Response(response)) => match &response.outcome {
            Ok(_) => json(StatusCode::OK, &response),
            Err(error) => rejection(error, &response),
        },
        Some(first) => {
            let events = available_events(&mut parts, first);
            if parts.is_done() {
                // The whole stream is known, so its length is, too.
                return stream(Inner::Full(Full::from(events)));
            }
            event_stream(Parts { first: Some(events), parts })
        }
    }
}

/// Returns the event of `first`, and those that are available with it.
///
/// The handler is not polled for more: an event that was sent must not wait for one that was not.
fn available_events(parts: &mut ResponseParts, first: Part) -> String {
    let mut events = String::with_capacity(TYPICAL_EVENTS);
    let mut next = Some(first);
    while let Some(part) = next {
        match part {
            Part::Notification(next) => write_event(&mut events, |text| next.append_to(text)),
            Part::Response(last) => write_event(&mut events, |text| last.append_to(text)),
        }
        next = if events.len() < MAX_COLLECTED_EVENTS { parts.next_ready() } else { None };
    }
    events
}

/// Creates a response that is a stream of server-sent events, for a
/// [`LegacyHandler`](super::LegacyHandler). A comment is sent every 15 s while there are none.
/// Dropping the body drops the source.
pub fn event_stream(source: impl EventSource) -> Response<ResponseBody> {
    stream(Inner::Events(Box::new(EventStream::new(source))))
}

/// Creates a response with the headers of an event stream.
fn stream(events: Inner) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody(events));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx buffers responses unless told not to.
    let no = HeaderValue::from_static("no");
    headers.insert(HeaderName::from_static("x-accel-buffering"), no);
    response
}

/// Creates a response with a JSON-RPC message as its body.
pub(super) fn json(status: StatusCode, message: &RawResponse) -> Response<ResponseBody> {
    let text = String::from(message.to_json());
    let mut response = Response::new(ResponseBody(Inner::Full(Full::from(text))));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Creates a response with an error.
fn rejection(error: &ErrorObject, message: &RawResponse) -> Response<ResponseBody> {
    let Some((status, name, value)) = headers::status_and_header(error) else {
        return json(headers::status_for_error(error), message);
    };
    let mut response = json(status, message);
    response.headers_mut().insert(name, value);
    response
}

/// Creates a response without a body.
pub(super) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody(Inner::Full(Full::default())));
    *response.status_mut() = status;
    response
}

/// The body of a response from an [`Endpoint`](super::Endpoint): JSON, or a stream of server-sent
/// events. Dropping it cancels the request.
pub struct ResponseBody(Inner);

enum Inner {
    Full(Full<Bytes>),
    Events(Box<EventStream<dyn EventSource>>),
}

impl From<String> for ResponseBody {
    fn from(text: String) -> Self {
        Self(Inner::Full(Full::from(text)))
    }
}

/// The events of a request that is still handled.
struct Parts {
    /// The events that were available first.
    first: Option<String>,
    parts: ResponseParts,
}

impl EventSource for Parts {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let next = ready!(self.parts.poll_next(cx));
        Poll::Ready(next.map(|next| available_events(&mut self.parts, next)))
    }

    fn is_done(&self) -> bool {
        self.parts.is_done()
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
                events.poll_frame(cx).map(|events| events.map(|events| Ok(Frame::data(events))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Full(full) => full.is_end_stream(),
            Inner::Events(events) => events.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(full) => full.size_hint(),
            Inner::Events(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Inner::Full(_) => "ResponseBody(full)",
            Inner::Events(_) => "ResponseBody(events)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::event_stream::KEEP_ALIVE_INTERVAL;
    use super::*;
    use crate::response_parts::AdmittedRequest;
    use crate::traits::{IncomingRequest, RequestHandler};
    use http_body_util::BodyExt as _;
    use mrtr_schema::RawJson;
    use mrtr_schema::jsonrpc::{Notification, Request, RequestId};

    /// Sends one notification, and never responds.
    struct Silent;

    impl RequestHandler for Silent {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> RawResponse {
            let first = Notification::new("notifications/x", &()).unwrap();
            incoming.notifications.send(first).await;
            std::future::pending().await
        }
    }

    /// Sends three notifications of this length at once, and responds.
    struct Burst(usize);

    impl RequestHandler for Burst {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> RawResponse {
            for n in 1..=3 {
                let text = "x".repeat(self.0);
                let notification = Notification::new("notifications/x", &(n, text)).unwrap();
                incoming.notifications.try_send(notification);
            }
            RawResponse { id: Some(incoming.request.id), outcome: Ok(RawJson::new(&()).unwrap()) }
        }
    }

    /// Returns the number of events in each frame of the body.
    async fn events_per_frame(handler: impl RequestHandler) -> Vec<usize> {
        let mut body = respond(parts(handler)).await.into_body();
        let mut counts = Vec::new();
        let mut is_end = false;
        while let Some(frame) = body.frame().await {
            assert!(!is_end);
            let data = frame.unwrap().into_data().unwrap();
            counts.push(std::str::from_utf8(&data).unwrap().matches("data: ").count());
            is_end = body.is_end_stream();
        }
        assert!(is_end);
        counts
    }

    #[tokio::test]
    async fn available_events_share_a_frame_unless_they_are_long() {
        assert_eq!(events_per_frame(Burst(10)).await, [4]);
        assert_eq!(events_per_frame(Burst(MAX_COLLECTED_EVENTS / 2)).await, [2, 2]);
        assert_eq!(events_per_frame(Burst(MAX_COLLECTED_EVENTS)).await, [1, 1, 1, 1]);
    }

    #[tokio::test]
    async fn stream_has_a_length_if_it_is_complete_when_it_begins() {
        let length = async |handler| {
            let response = respond(parts(handler)).await;
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            response.body().size_hint().exact()
        };
        assert!(length(Burst(10)).await.is_some_and(|length| length > 100));
        assert_eq!(length(Burst(MAX_COLLECTED_EVENTS)).await, None);
    }

    /// Sends two notifications and yields after each.
    struct Yielding;

    impl RequestHandler for Yielding {
        async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> RawResponse {
            for n in 1..=2 {
                let notification = Notification::new("notifications/x", &n).unwrap();
                incoming.notifications.try_send(notification);
                tokio::task::yield_now().await;
            }
            RawResponse { id: Some(incoming.request.id), outcome: Ok(RawJson::new(&()).unwrap()) }
        }
    }

    #[tokio::test]
    async fn an_event_does_not_wait_for_the_next() {
        assert_eq!(events_per_frame(Yielding).await, [1, 1, 1]);
    }

    fn parts(handler: impl RequestHandler) -> ResponseParts {
        let id = RequestId::Number(1);
        let request = Request::new(id, "x", None);
        ResponseParts::new(&Arc::new(handler), AdmittedRequest::new(request, None), ())
    }

    #[tokio::test(start_paused = true)]
    async fn idle_stream_sends_a_comment_every_fifteen_seconds() {
        let mut body = respond(parts(Silent)).await.into_body();
        let begun = tokio::time::Instant::now();
        let mut next = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(next().await.starts_with(b"data: "));
        for n in 1..4 {
            assert_eq!(&*next().await, b":\n\n");
            assert_eq!(begun.elapsed(), KEEP_ALIVE_INTERVAL * n);
        }
    }
}
