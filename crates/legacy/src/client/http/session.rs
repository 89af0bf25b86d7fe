//! A session over streamable HTTP (2025-11-25, basic: transports).

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use mrtr_schema::jsonrpc::{Message, Request, RequestId, Response};
use mrtr_transport::http::{HttpClient, RawResponse};
use mrtr_transport::sse::Decoder;
use mrtr_transport::unread;
use mrtr_transport::{TransportError, batch};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::client::connection::{Connection, ConnectionError, Incoming, StreamEnd};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long to wait before a stream is resumed, if the server does not say.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// The shortest and the longest delay that a server can ask for.
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_mins(1);

/// How many attempts to resume a stream may fail in a row.
const MAX_FAILED_ATTEMPTS: u32 = 3;

/// How long a stream without events has to be open to count as one that works.
const LASTING: Duration = Duration::from_secs(15);

/// The session of a client over HTTP.
pub(super) struct HttpSession {
    http: HttpClient,
    /// The headers of the last session, which ends with this value.
    last: Mutex<HeaderMap>,
}

impl HttpSession {
    pub(super) fn new(http: HttpClient) -> Self {
        Self { http, last: Mutex::default() }
    }

    /// Sends a message. Without `long_lived`, the timeout covers the response and its body.
    async fn post_text(
        &self,
        session: &HeaderMap,
        text: String,
        long_lived: bool,
    ) -> Result<RawResponse, TransportError> {
        let mut headers = session.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, both);
        self.http.exchange(Method::POST, headers, Bytes::from(text), long_lived).await
    }

    async fn get(
        &self,
        session: &HeaderMap,
        last_event_id: Option<&str>,
    ) -> Result<RawResponse, TransportError> {
        let mut headers = session.clone();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        self.http.exchange(Method::GET, headers, Bytes::new(), true).await
    }

    /// Checks the status of a response in the session.
    async fn check(
        &self,
        session: &HeaderMap,
        mut response: RawResponse,
    ) -> Result<RawResponse, ConnectionError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND && session.contains_key(&SESSION_ID) {
            return Err(ConnectionError::SessionEnded);
        }
        let body = tokio::time::timeout(self.http.request_timeout(), response.body()).await;
        let body = body.ok().and_then(Result::ok).unwrap_or_default();
        let why = match Message::parse(&body) {
            Ok(Message::Response(Response { outcome: Err(error), .. })) => format!(": {error}"),
            _ => String::new(),
        };
        Err(response.rejection(&why).into())
    }

    /// Sends a request and passes on what the server answers, until the response.
    async fn exchange(
        &self,
        session: &HeaderMap,
        request: &Request,
        messages: &unread::Sender<Incoming>,
        reconnect: &Notify,
    ) -> Result<Response, ConnectionError> {
        let text = to_text(request)?;
        let response = self.post_text(session, text, true).await?;
        let mut response = self.check(session, response).await?;
        if !is_stream(&response) {
            let body = response.body().await?;
            let mut received = batch::parse(&body).unwrap_or_default();
            // The only response in the body answers this request, even if it has another id.
            if let [Message::Response(only)] = &mut received[..] {
                only.id = Some(request.id.clone());
            }
            return match deliver(received, Some(&request.id), Some(messages)).await {
                Delivered::Response(found) => Ok(found),
                _ => Err(response.violation("sent no response to the request").into()),
            };
        }
        let mut place = Place::default();
        let mut failed = 0;
        loop {
            let can_resume = Arc::clone(&place.can_resume);
            let reconnected = async {
                // A stream without ids is read on.
                loop {
                    reconnect.notified().await;
                    if can_resume.load(Ordering::Relaxed) {
                        return;
                    }
                }
            };
            let read = read_events(&mut response, &mut place, Some(&request.id), Some(messages));
            let read = tokio::select! {
                read = read => read,
                () = reconnected => Ok(None),
            };
            match read {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) if error.is_transient() && place.id.is_some() => {
                    tracing::debug!(target: "mrtr::client", %error, "a stream broke");
                }
                Err(error) => return Err(error.into()),
            }
            let Some(id) = place.id.clone() else {
                return Err(response.interrupted("ended the stream before the response").into());
            };
            // The server has closed the connection, and keeps the stream for the client.
            response = loop {
                tokio::time::sleep(place.delay()).await;
                // What was to be resumed is being resumed.
                forget(reconnect);
                let resumed = match self.get(session, Some(&id)).await {
                    Ok(resumed) => self.check(session, resumed).await,
                    Err(error) => Err(error.into()),
                };
                match resumed {
                    Ok(resumed) => break resumed,
                    // The server has accepted the request before, and may have acted on it.
                    Err(ConnectionError::SessionEnded) => {
                        let why = "the server ended the session before it answered";
                        return Err(TransportError::interrupted(why).into());
                    }
                    Err(error) if failed >= MAX_FAILED_ATTEMPTS => return Err(error),
                    Err(ConnectionError::Transport(_)) => failed += 1,
                }
            };
            if std::mem::take(&mut place.is_advanced) {
                failed = 0;
            } else if failed >= MAX_FAILED_ATTEMPTS {
                return Err(response
                    .interrupted("sends nothing on a stream that is resumed")
                    .into());
            } else {
                failed += 1;
            }
        }
    }
}

/// Takes back a notification that has not been received.
fn forget(notify: &Notify) {
    let _ = pin!(notify.notified()).poll(&mut Context::from_waker(Waker::noop()));
}

/// Where a stream stands.
#[derive(Default)]
struct Place {
    id: Option<String>,
    /// There is an id.
    can_resume: Arc<AtomicBool>,
    retry: Option<Duration>,
    /// There were events since the stream was resumed.
    is_advanced: bool,
}

impl Place {
    /// Returns how long to wait before the stream is resumed.
    fn delay(&self) -> Duration {
        self.retry.unwrap_or(DEFAULT_RETRY).clamp(MIN_RETRY, MAX_RETRY)
    }
}

/// Reads events until the response to `id`, or until the end of the connection. Without
/// `messages`, other messages are discarded.
async fn read_events(
    response: &mut RawResponse,
    place: &mut Place,
    id: Option<&RequestId>,
    messages: Option<&unread::Sender<Incoming>>,
) -> Result<Option<Response>, TransportError> {
    let mut decoder = Decoder::new(response.max_length());
    let mut events = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let pushed = decoder.push(&chunk, |data| events.push(data));
        if pushed.is_err() {
            return Err(response.violation("sent an event that is too long"));
        }
        place.is_advanced |= !events.is_empty();
        place.retry = decoder.retry().or(place.retry);
        for event in events.drain(..).filter(|event| !event.is_empty()) {
            let received = batch::parse(&event).map_err(|error| {
                response.violation(&format!("sent a malformed message: {error}"))
            })?;
            match deliver(received, id, messages).await {
                Delivered::All => {}
                Delivered::Response(found) => return Ok(Some(found)),
                Delivered::NotAll => return Ok(None),
            }
        }
        // What was not passed on is read again after a resumption.
        if let Some(id) = decoder.last_event_id() {
            place.id = Some(id.to_owned());
            place.can_resume.store(true, Ordering::Relaxed);
        }
    }
    Ok(None)
}

enum Delivered {
    All,
    /// The response that was waited for.
    Response(Response),
    /// The receiver was dropped. The task that reads is aborted soon.
    NotAll,
}

/// Passes messages on, except for the response to `id`. Without `messages`, they are discarded.
async fn deliver(
    received: Vec<Message>,
    id: Option<&RequestId>,
    messages: Option<&unread::Sender<Incoming>>,
) -> Delivered {
    let mut delivered = Delivered::All;
    for message in received {
        let message = match message {
            Message::Response(found) if found.id.as_ref() == id => {
                delivered = Delivered::Response(found);
                continue;
            }
            // Another response was not asked for on this stream.
            Message::Response(_) => continue,
            Message::Request(request) => Incoming::Request(request),
            Message::Notification(notification) => Incoming::Notification(notification),
        };
        let Some(messages) = messages else { continue };
        if messages.send(message).await.is_err() && matches!(delivered, Delivered::All) {
            return Delivered::NotAll;
        }
    }
    delivered
}

/// Returns true if the stream of the session may open later: after an error of the server or of the
/// network, or while the server still holds the connection of an earlier stream (409).
fn is_temporary(error: &TransportError) -> bool {
    let of_server = |status| status == 409 || (500..600).contains(&status) && status != 501;
    error.is_transient() || error.status().is_some_and(of_server)
}

fn is_stream(response: &RawResponse) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

fn to_text(request: &Request) -> Result<String, TransportError> {
    serde_json::to_string(request)
        .map_err(|error| TransportError::protocol(format!("the request is not JSON: {error}")))
}

impl Connection for HttpSession {
    const CANCELS_ON_DROP: bool = false;

    /// The headers of all requests after `initialize`.
    type Session = HeaderMap;

    async fn initialize(&self, request: Request) -> Result<(Response, HeaderMap), ConnectionError> {
        let id = request.id.clone();
        let none = HeaderMap::new();
        let response = self.post_text(&none, to_text(&request)?, false).await?;
        let mut response = self.check(&none, response).await?;
        let mut headers = HeaderMap::new();
        headers.extend(response.headers().get(&SESSION_ID).map(|id| (SESSION_ID, id.clone())));
        let found = if is_stream(&response) {
            read_events(&mut response, &mut Place::default(), Some(&id), None).await?
        } else {
            match Message::parse(&response.body().await?) {
                Ok(Message::Response(found)) => Some(found),
                _ => None,
            }
        };
        let found = found.ok_or_else(|| response.violation("sent no response to `initialize`"))?;
        let version = found.outcome.as_ref().ok().and_then(|result| {
            let result: Value = serde_json::from_str(result.get()).ok()?;
            HeaderValue::from_str(result.get("protocolVersion")?.as_str()?).ok()
        });
        headers.extend(version.map(|version| (PROTOCOL_VERSION, version)));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = headers.clone();
        Ok((found, headers))
    }

    async fn run(
        self: Arc<Self>,
        session: HeaderMap,
        request: Request,
        messages: unread::Sender<Incoming>,
        reconnect: Arc<Notify>,
    ) {
        let outcome = self.exchange(&session, &request, &messages, &reconnect).await;
        let _ = messages.send(Incoming::Response(outcome)).await;
    }

    async fn listen(
        self: Arc<Self>,
        session: HeaderMap,
        messages: unread::Sender<Incoming>,
        opening: oneshot::Sender<()>,
        missed: impl Fn() + Send + Sync + 'static,
    ) -> (StreamEnd, Option<oneshot::Sender<()>>) {
        let mut opening = Some(opening);
        let mut place = Place::default();
        let mut failed = 0;
        let mut end = StreamEnd::NotOpened;
        while failed < MAX_FAILED_ATTEMPTS && !messages.is_closed() {
            let opened = match self.get(&session, place.id.as_deref()).await {
                Ok(response) => self.check(&session, response).await,
                Err(error) => Err(error.into()),
            };
            match opened {
                Ok(mut response) => {
                    let is_awaited = opening.take().is_some_and(|opening| !opening.is_closed());
                    if place.id.is_none() && !is_awaited {
                        missed();
                    }
                    end = StreamEnd::Closed;
                    let began = Instant::now();
                    let read = read_events(&mut response, &mut place, None, Some(&messages)).await;
                    if let Err(error) = read {
                        tracing::debug!(target: "mrtr::client", %error, "the stream broke");
                    }
                    // Servers and proxies close streams that are idle.
                    let has_lasted = began.elapsed() >= LASTING;
                    let is_fine = std::mem::take(&mut place.is_advanced) || has_lasted;
                    failed = if is_fine { 0 } else { failed + 1 };
                }
                Err(ConnectionError::Transport(error)) if is_temporary(&error) => {
                    opening.take();
                    failed += 1;
                }
                // The server has no such stream, or no such session any more.
                Err(_) => {
                    // A stream that was open may open again, if it is not resumed.
                    let was_open = end == StreamEnd::Closed;
                    return (if was_open { end } else { StreamEnd::Final }, opening);
                }
            }
            // No call waits for this stream, so a server that closes it at once is not hurried.
            tokio::time::sleep(place.delay().max(DEFAULT_RETRY)).await;
        }
        (end, None)
    }

    fn timeout(&self) -> Duration {
        self.http.request_timeout()
    }

    async fn post(&self, session: &HeaderMap, message: String) -> Result<(), ConnectionError> {
        let response = self.post_text(session, message, false).await?;
        self.check(session, response).await.map(drop)
    }
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        let last = self.last.get_mut().unwrap_or_else(PoisonError::into_inner);
        let headers = std::mem::take(last);
        if !headers.contains_key(&SESSION_ID) {
            return;
        }
        // Without a runtime, the process is ending, and the session ends by itself.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let http = self.http.clone();
        runtime.spawn(async move {
            let _ = http.exchange(Method::DELETE, headers, Bytes::new(), false).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_cannot_ask_for_a_busy_loop() {
        let delay = |retry| Place { retry, ..Place::default() }.delay();
        assert_eq!(delay(Some(Duration::ZERO)), MIN_RETRY);
        assert_eq!(delay(Some(Duration::MAX)), MAX_RETRY);
        assert_eq!(delay(None), DEFAULT_RETRY);
    }
}
