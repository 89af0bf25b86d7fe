//! How a call is answered: with JSON, or, once the handler sends a notification first, with an event
//! stream that ends with the response.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use mrtr_schema::jsonrpc::{self, Notification};
use tokio::time::{Sleep, sleep};

use crate::headers;
use crate::seam::Inbox;

/// After how long without an event a comment is sent, so that nothing on the way closes the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A call that is being answered. Dropping it cancels the call.
type Running = Pin<Box<dyn Future<Output = jsonrpc::Response> + Send>>;

/// Waits for the response or a notification, whichever is first, and answers accordingly.
pub(super) async fn reply(mut running: Running, mut inbox: Inbox) -> Response<ResponseBody> {
    let first = poll_fn(|cx| {
        // The call first: what it has sent is looked at right after.
        let polled = running.as_mut().poll(cx);
        match (inbox.poll_next(cx), polled) {
            (Poll::Ready(Some(first)), polled) => Poll::Ready(Err((first, polled))),
            (_, Poll::Ready(response)) => Poll::Ready(Ok(response)),
            (_, Poll::Pending) => Poll::Pending,
        }
    });
    match first.await {
        Ok(response) => {
            let status = response.outcome.as_ref().err().map_or(StatusCode::OK, headers::status_of);
            json(status, &response)
        }
        Err((first, polled)) => {
            let (running, last) = match polled {
                Poll::Ready(response) => (None, Some(response)),
                Poll::Pending => (Some(running), None),
            };
            let first = Some(event(&first));
            let events = Events { first, running, last, inbox, idle: Box::pin(sleep(KEEP_ALIVE)) };
            let mut response = Response::new(ResponseBody(Inner::Events(Box::new(events))));
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            headers.insert(
                HeaderName::from_static("x-accel-buffering"),
                HeaderValue::from_static("no"),
            );
            response
        }
    }
}

pub(super) fn json(status: StatusCode, message: &jsonrpc::Response) -> Response<ResponseBody> {
    // Results are raw JSON and errors are plain data, so this cannot fail; an empty body would be
    // refused by any client.
    let bytes = serde_json::to_vec(message).unwrap_or_default();
    let mut response = Response::new(ResponseBody(Inner::Full(Full::from(bytes))));
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

/// An event in one piece, so that it goes out in one write.
fn event(message: &impl serde::Serialize) -> Bytes {
    let mut bytes = b"data: ".to_vec();
    // Plain data with raw JSON in it, which has no line breaks of its own between tokens.
    bytes.extend(
        serde_json::to_vec(message)
            .unwrap_or_default()
            .into_iter()
            .filter(|b| *b != b'\n' && *b != b'\r'),
    );
    bytes.extend_from_slice(b"\n\n");
    Bytes::from(bytes)
}

/// The body of a response.
pub struct ResponseBody(Inner);

enum Inner {
    Full(Full<Bytes>),
    Events(Box<Events>),
}

struct Events {
    first: Option<Bytes>,
    running: Option<Running>,
    last: Option<jsonrpc::Response>,
    inbox: Inbox,
    idle: Pin<Box<Sleep>>,
}

impl Events {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Some(running) = &mut self.running
            && let Poll::Ready(response) = running.as_mut().poll(cx)
        {
            (self.running, self.last) = (None, Some(response));
        }
        let next: Option<Notification> = match self.inbox.poll_next(cx) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        };
        let next = match (next, &self.running) {
            (Some(notification), _) => Some(event(&notification)),
            // All notifications are out: the response is the last event, and then the stream ends.
            (None, None) => return Poll::Ready(self.last.take().map(|response| event(&response))),
            (None, Some(_)) => None,
        };
        if let Some(next) = next {
            self.idle = Box::pin(sleep(KEEP_ALIVE));
            return Poll::Ready(Some(next));
        }
        if self.idle.as_mut().poll(cx).is_ready() {
            self.idle = Box::pin(sleep(KEEP_ALIVE));
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(Bytes::from_static(b":\n\n")));
        }
        Poll::Pending
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
            Inner::Events(_) => false,
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
