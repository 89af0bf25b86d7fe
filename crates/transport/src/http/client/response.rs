//! Reading the response to a request: JSON or an event stream, in bounded memory.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use ::http::{StatusCode, header};
use mrtr_schema::jsonrpc::{Message, Notification, RequestId, Response};
use mrtr_schema::notification::{Cancelled, name};
use mrtr_schema::peer_text::quote;
use tokio::time::{Instant, timeout_at};

use super::server_name::ServerName;
use crate::error::TransportError;
use crate::sse::Decoder;

/// Reads the response to one request.
pub(super) struct ResponseReader<'a> {
    pub(super) server: &'a ServerName,
    pub(super) request_id: &'a RequestId,
    /// The longest response in bytes. It bounds each event, and their sum unless `long_lived`.
    pub(super) max_response: usize,
    /// The time until the first message of a long-lived response.
    pub(super) long_lived: Option<Duration>,
    pub(super) on_notification: &'a (dyn Fn(Notification) + Send + Sync),
}

/// Returns true if the server is overloaded, or a gateway answers in its place: the request may be
/// retried.
pub(super) fn is_overload(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

/// Returns the media type of a response without its parameters, in lower case.
fn media_type(http: &reqwest::Response) -> String {
    let value = http.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    media_type.trim().to_ascii_lowercase()
}

impl ResponseReader<'_> {
    pub(super) async fn read(&self, http: reqwest::Response) -> Result<Response, TransportError> {
        let status = http.status();
        match media_type(&http).as_str() {
            "application/json" => self.read_json(http).await,
            "text/event-stream" if status.is_success() => self.read_events(http).await,
            _ if is_overload(status) => Err(self.server.gateway_error(status)),
            "" => {
                Err(self.server.violation(format_args!("answered {status} without a content type")))
            }
            other => Err(self.server.violation(format_args!(
                "answered {status} with {} instead of JSON",
                quote(other)
            ))),
        }
    }

    async fn read_json(&self, mut http: reqwest::Response) -> Result<Response, TransportError> {
        let status = http.status();
        let is_challenge = match status {
            StatusCode::UNAUTHORIZED => true,
            StatusCode::FORBIDDEN => http.headers().contains_key(header::WWW_AUTHENTICATE),
            _ => false,
        };
        let mut body = Vec::new();
        let until = self.until();
        while let Some(chunk) = self.chunk(&mut http, until).await? {
            if body.len() + chunk.len() > self.max_response {
                return Err(self.too_long());
            }
            body.extend_from_slice(&chunk);
        }
        // Gateways may write JSON, too, but not JSON-RPC.
        if is_overload(status) && !matches!(Message::parse(&body), Ok(Message::Response(_))) {
            return Err(self.server.gateway_error(status));
        }
        // So does a layer that checks access tokens (RFC 6750): the status says more than its body.
        if !status.is_success()
            && let Err(error) = Message::parse(&body)
        {
            let violation = format_args!("answered {status} with JSON that is not JSON-RPC");
            return Err(self.server.violation(violation).with_source(error));
        }
        match self.process(&body)? {
            Some(Response { outcome: Err(error), .. }) if is_overload(status) => {
                let message = format!("{} is overloaded: {error}", self.server);
                Err(TransportError::interrupted(message).with_source(error))
            }
            // It is about the credentials: a layer in front of the server has written it.
            Some(Response { id, outcome: Err(error) })
                if is_challenge && (id.is_none() || status == StatusCode::UNAUTHORIZED) =>
            {
                let violation = format_args!("answered {status}: {error}");
                Err(self.server.violation(violation).with_source(error.clone()))
            }
            Some(response) => Ok(response),
            None => {
                Err(self.server.violation(format_args!("answered {status} with a notification")))
            }
        }
    }

    async fn read_events(&self, mut http: reqwest::Response) -> Result<Response, TransportError> {
        let mut decoder = Decoder::new(self.max_response);
        let mut events = Vec::new();
        let mut length = 0;
        let mut until = self.until();
        while let Some(chunk) = self.chunk(&mut http, until).await? {
            length += chunk.len();
            if length > self.max_response && self.long_lived.is_none() {
                return Err(self.too_long());
            }
            decoder.push(&chunk, |data| events.push(data)).map_err(|error| {
                self.server.violation("sent an event that is too long").with_source(error)
            })?;
            for event in events.drain(..).filter(|event| !event.is_empty()) {
                until = None;
                // The response is the last event, but servers need not end the stream after it.
                if let Some(response) = self.process(&event)? {
                    return Ok(response);
                }
            }
            if self.long_lived.is_some() {
                yield_once().await;
            }
        }
        let message = format!("{} ended the stream before the response", self.server);
        Err(TransportError::interrupted(message))
    }

    /// Returns the time until which the first message has to arrive, and how long that is. `None`
    /// if the timeout of the request covers its body, or if there is none to speak of.
    fn until(&self) -> Option<(Instant, Duration)> {
        self.long_lived.and_then(|time| Some((Instant::now().checked_add(time)?, time)))
    }

    async fn chunk(
        &self,
        http: &mut reqwest::Response,
        until: Option<(Instant, Duration)>,
    ) -> Result<Option<bytes::Bytes>, TransportError> {
        let chunk = http.chunk();
        let chunk = match until {
            // The timeout of the request covers its body.
            None => chunk.await,
            Some((until, time)) => {
                timeout_at(until, chunk).await.map_err(|_| self.server.silent(time))?
            }
        };
        chunk.map_err(|error| self.server.request_failed(error))
    }

    fn too_long(&self) -> TransportError {
        let violation = format_args!("sent a response of more than {} bytes", self.max_response);
        self.server.violation(violation)
    }

    /// Returns true if the server cancels the request, as it may do with subscriptions.
    fn is_cancelled_by(&self, notification: &Notification) -> bool {
        let cancelled = || notification.decode_params::<Cancelled>().ok();
        notification.method == name::CANCELLED
            && cancelled().is_some_and(|cancelled| cancelled.request_id == *self.request_id)
    }

    /// Returns the response in `message`. Passes on a notification and returns `None`.
    fn process(&self, message: &[u8]) -> Result<Option<Response>, TransportError> {
        match Message::parse(message) {
            Ok(Message::Response(response)) => {
                let is_ours = response.id.as_ref() == Some(self.request_id);
                // An error about a request that could not be read has no id.
                if is_ours || (response.id.is_none() && response.outcome.is_err()) {
                    Ok(Some(response))
                } else {
                    Err(self.server.violation("sent a response to another request"))
                }
            }
            Ok(Message::Notification(notification)) => {
                if self.long_lived.is_some() && self.is_cancelled_by(&notification) {
                    let message = format!("{} ended the subscription", self.server);
                    return Err(TransportError::subscription_ended(message));
                }
                (self.on_notification)(notification);
                Ok(None)
            }
            Ok(Message::Request(_)) => Err(self
                .server
                .violation("sent a request; servers must ask through input requests in results")),
            Err(error) => Err(self.server.violation("sent a malformed message").with_source(error)),
        }
    }
}

/// Lets the reader of a subscription take what has arrived. Otherwise, one poll would read for as
/// long as the server sends.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(all(test, feature = "http-endpoint"))]
mod tests {
    use std::convert::Infallible;
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    use bytes::Bytes;
    use http_body::{Body, Frame};

    use super::*;

    /// A body of notifications that always has the next one ready.
    struct Flood(usize);

    impl Body for Flood {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            self.0 -= 1;
            let event = Bytes::from_static(b"data: {\"jsonrpc\":\"2.0\",\"method\":\"a\"}\n\n");
            Poll::Ready(Some(Ok(Frame::data(event))))
        }
    }

    /// On several threads, the connection may always have the next part ready.
    #[test]
    fn one_poll_reads_one_part_of_a_subscription() {
        let received = AtomicUsize::new(0);
        let reader = ResponseReader {
            server: &ServerName::new(&reqwest::Url::parse("http://a.example/").unwrap()),
            request_id: &RequestId::Number(1),
            max_response: 1024,
            // Without a timer, which would need a runtime.
            long_lived: Some(Duration::MAX),
            on_notification: &|_| {
                received.fetch_add(1, Ordering::Relaxed);
            },
        };
        let http = ::http::Response::builder().header(header::CONTENT_TYPE, "text/event-stream");
        let http = http.body(reqwest::Body::wrap(Flood(1_000))).unwrap();
        let mut reading = pin!(reader.read(http.into()));
        for polls in 1..10 {
            assert!(reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(received.load(Ordering::Relaxed), polls);
        }
    }
}
