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
use mrtr_schema::jsonrpc::Notification;
use tokio::time::{Sleep, sleep};

use crate::answering::{Answering, Part, Written};
use crate::headers;

/// After how long without an event a comment is sent, so that nothing on the way closes the stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Waits for the response or a notification, whichever is first, and answers accordingly. The request's place is given
/// back when the response is ready, or the stream ends.
pub(super) async fn reply(mut answering: Answering) -> Response<ResponseBody> {
    match answering.next().await {
        None => plain(StatusCode::INTERNAL_SERVER_ERROR),
        Some(Part::Response(response)) => {
            let status = response.outcome.as_ref().err().map_or(StatusCode::OK, headers::status_of);
            json(status, &response)
        }
        Some(Part::Notification(first)) => {
            let first = Some(notification(&first));
            let events = Events { first, answering, idle: None };
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
    let text = String::from(message.write());
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

/// An event in one piece, so that it goes out in one write.
fn event(message: &str) -> Bytes {
    let mut event = String::with_capacity(message.len() + 8);
    event.push_str("data: ");
    // In JSON, line breaks stand between tokens only, where they mean nothing. Few writers have any.
    let breaks = |any: bool, byte: u8| any | matches!(byte, b'\n' | b'\r');
    if message.bytes().fold(false, breaks) {
        event.extend(message.split(['\n', '\r']));
    } else {
        event.push_str(message);
    }
    event.push_str("\n\n");
    Bytes::from(event)
}

fn notification(notification: &Notification) -> Bytes {
    // Plain data with raw JSON in it is always JSON.
    event(&serde_json::to_string(notification).unwrap_or_default())
}

/// The body of a response.
pub struct ResponseBody(Inner);

enum Inner {
    Full(Full<Bytes>),
    Events(Box<Events>),
}

struct Events {
    first: Option<Bytes>,
    answering: Answering,
    /// Since there was nothing to send.
    idle: Option<Pin<Box<Sleep>>>,
}

impl Events {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = match self.first.take() {
            Some(first) => Some(first),
            None => match self.answering.poll_next(cx) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Part::Notification(next))) => Some(notification(&next)),
                Poll::Ready(Some(Part::Response(response))) => Some(event(response.write().get())),
                Poll::Pending => None,
            },
        };
        if next.is_none() {
            ready!(self.idle.get_or_insert_with(|| Box::pin(sleep(KEEP_ALIVE))).as_mut().poll(cx));
        }
        self.idle = None;
        Poll::Ready(Some(next.unwrap_or_else(|| Bytes::from_static(b":\n\n"))))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::answering::Received;
    use crate::seam::{Call, Dispatch};
    use http_body_util::BodyExt as _;
    use mrtr_schema::jsonrpc::{Notification, Request, RequestId, Version};

    /// It sends one notification, and no response.
    struct Listening;

    impl Dispatch for Listening {
        async fn dispatch(self: Arc<Self>, call: Call) -> Written {
            let first = Notification::new("notifications/x", &()).unwrap();
            call.outbox.send(first).await;
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_has_a_comment_every_fifteen_seconds() {
        let id = RequestId::Number(1);
        let request = Request { jsonrpc: Version, id, method: "x".to_owned(), params: None };
        let answering = Answering::new(&Arc::new(Listening), Received::new(request, None), ());
        let mut body = reply(answering).await.into_body();
        let begun = tokio::time::Instant::now();
        let mut next = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(next().await.starts_with(b"data: "));
        for n in 1..4 {
            assert_eq!(&*next().await, b":\n\n");
            assert_eq!(begun.elapsed(), KEEP_ALIVE * n);
        }
    }
}
