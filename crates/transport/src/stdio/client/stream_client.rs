//! A client on a byte stream.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{Message, Notification, Request, RequestId, Response};
use mrtr_schema::notification::{Cancelled, name};
use serde::Deserialize;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::pending::{Pending, Waiter};
use super::send_state::SendState;
use crate::batch;
use crate::error::TransportError;
use crate::stdio::reader::{Line, LineReader};
use crate::stdio::writer::{json_line, serialized_line, write_lines};
use crate::traits::{OutgoingRequest, Transport};
use crate::unread;

/// The default limit on a message from a server: 16 MiB, as for responses over HTTP.
pub(super) const DEFAULT_MAX_MESSAGE: usize = 16 << 20;

/// Maximum number of requests that may wait to be written. Further ones wait in their callers.
const MAX_QUEUED_REQUESTS: usize = 64;

/// Maximum number of messages outside of requests that may wait to be written. Further ones are
/// dropped: the server does not read.
const MAX_QUEUED_POSTS: usize = 1_024;

/// A client of a server at the other end of a byte stream. Clones share the stream, and requests
/// are multiplexed.
///
/// A log message from the server does not name its request. One of the calls in flight gets it.
#[derive(Debug, Clone)]
pub struct StreamClient {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    requests: Sender<(Vec<u8>, Arc<SendState>)>,
    /// Lines that bypass the queue: cancellations of requests that were written. `None` closes the
    /// stream, and so does dropping the sender.
    control: UnboundedSender<Option<Vec<u8>>>,
    /// Messages outside of requests.
    posts: Sender<Vec<u8>>,
    /// Shared with the tasks that read and write.
    pending: Arc<Mutex<Pending>>,
    reading: Mutex<Option<JoinHandle<()>>>,
}

impl StreamClient {
    /// Creates a client over `reader` and `writer`. Tasks of the current tokio runtime read and
    /// write them. A message from the server may have up to 16 MiB.
    ///
    /// # Panics
    ///
    /// If it is called outside a tokio runtime.
    pub fn new<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncBufRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        Self::with_max_message(reader, writer, DEFAULT_MAX_MESSAGE)
    }

    /// Like [`StreamClient::new`], with another limit on messages from the server, in bytes. A
    /// longer message is discarded, and the request to which it responds fails.
    ///
    /// # Panics
    ///
    /// If it is called outside a tokio runtime.
    pub fn with_max_message<R, W>(reader: R, writer: W, bytes: usize) -> Self
    where
        R: AsyncBufRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, queued_requests) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let (control, control_lines) = mpsc::unbounded_channel();
        let (posts, queued_posts) = mpsc::channel(MAX_QUEUED_POSTS);
        let pending = Arc::<Mutex<Pending>>::default();
        let queues =
            Queues { requests: queued_requests, control: control_lines, posts: queued_posts };
        tokio::spawn(write_all(writer, queues, Arc::clone(&pending)));
        let reading = tokio::spawn(read_all(LineReader::new(reader, bytes), Arc::clone(&pending)));
        let reading = Mutex::new(Some(reading));
        let shared = Shared { requests, control, posts, pending, reading };
        Self { shared: Arc::new(shared), timeout: Duration::from_mins(2) }
    }

    /// Sets the timeout of one request. Default: 2 min. Of a subscription, it covers the time until
    /// the first message from the server, which acknowledges it.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Returns true if one end of the stream is closed, so that no more requests can be sent.
    /// Requests that were sent before may still be answered.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Waits for the end of the output, and stops reading it after `timeout`. Requests that
    /// are not answered by then fail.
    pub(super) async fn stop_reading(&self, timeout: Duration) {
        let reading = self.shared.reading.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut reading) = reading else { return };
        if tokio::time::timeout(timeout, &mut reading).await.is_err() {
            reading.abort();
            self.shared.lock().end();
        }
    }

    /// Returns true if the server has sent a message.
    pub(super) fn has_received(&self) -> bool {
        self.shared.lock().has_received
    }

    /// Closes the client's end of the stream, which asks the server to end. Requests that are
    /// queued are written before. Dropping all clones closes it, too.
    pub fn close(&self) {
        let _ = self.shared.control.send(None);
    }
}

/// Messages outside of requests, for the workspace's own crates. Not covered by semantic
/// versioning.
#[doc(hidden)]
impl StreamClient {
    /// Returns the messages of the server that concern no request, from now on.
    pub fn unsolicited(&self) -> unread::Receiver<Message> {
        let (sender, receiver) = unread::channel();
        self.shared.lock().unsolicited = Some(sender);
        receiver
    }

    /// Sends a message that is neither a request nor about one. Returns false if the stream is
    /// closed, or if the server does not read what was sent before.
    pub fn post(&self, message: RawJson) -> bool {
        !self.is_closed() && self.shared.posts.try_send(json_line(message)).is_ok()
    }

    /// Returns true if both are clients of the same stream.
    pub fn is_same_stream(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
    }

    /// Registers a request, so that messages from the server find it.
    fn register(&self, id: &RequestId, waiter: Waiter) -> Result<(), TransportError> {
        let mut pending = self.lock();
        if pending.closed {
            return Err(TransportError::not_sent("the stream to the server is closed"));
        }
        if pending.waiters.contains_key(id) {
            let message = format!("a request with the id {id} is already in flight");
            return Err(TransportError::not_sent(message));
        }
        pending.waiters.insert(id.clone(), waiter);
        Ok(())
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport for StreamClient {
    /// Sends a request. Errors after the end of the stream are permanent.
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let sent = self.exchange(outgoing).await;
        sent.map_err(|error| if self.is_closed() { error.permanent() } else { error })
    }
}

#[doc(hidden)]
impl StreamClient {
    /// Sends a request to a process that the caller may start again after the end of the stream.
    ///
    /// # Errors
    ///
    /// Those of [`Transport::send`], which are transient also after the end of the stream.
    pub async fn exchange(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<Response, TransportError> {
        let OutgoingRequest { request, long_lived, on_notification, .. } = outgoing;
        let (sender, mut notifications) = unread::channel();
        let (response_sender, mut response) = oneshot::channel();
        let state = SendState::new(SendState::QUEUED);
        let waiter = Waiter {
            notifications: sender,
            response: Some(response_sender),
            state: Arc::clone(&state),
            long_lived,
            progress_token: progress_token(&request),
        };
        self.shared.register(&request.id, waiter)?;
        let mut guard = CancelOnDrop {
            shared: &self.shared,
            id: &request.id,
            state: &state,
            reason: "the caller dropped the request",
            is_cancellable: request.method != "initialize",
        };
        let has_heard = AtomicBool::new(false);
        let answer = async {
            let line = (serialized_line(&request), Arc::clone(&state));
            tokio::select! {
                biased;
                sent = self.shared.requests.send(line) => if sent.is_err() {
                    return Err(state.fail("the stream to the server is closed"));
                },
                _ = &mut response => return Err(state.fail("the server has closed the stream")),
            }
            loop {
                // Notifications first: all of them were sent before the response.
                let outcome = tokio::select! {
                    biased;
                    Some(notification) = notifications.recv() => {
                        has_heard.store(true, Ordering::Relaxed);
                        on_notification(notification);
                        continue;
                    }
                    outcome = &mut response => outcome,
                };
                // Another thread may have delivered both between the two polls.
                notifications.drain().for_each(on_notification);
                return outcome.unwrap_or_else(|_| {
                    Err(state.fail("the server closed the stream before it answered"))
                });
            }
        };
        let answered = if long_lived {
            let (mut answer, mut timeout) = (pin!(answer), pin!(sleep(self.timeout)));
            poll_fn(|cx| match answer.as_mut().poll(cx) {
                Poll::Ready(answered) => Poll::Ready(Some(answered)),
                Poll::Pending if has_heard.load(Ordering::Relaxed) => Poll::Pending,
                Poll::Pending => timeout.as_mut().poll(cx).map(|()| None),
            })
            .await
        } else {
            timeout(self.timeout, answer).await.ok()
        };
        answered.unwrap_or_else(|| {
            guard.reason = "the request timed out";
            Err(state.fail(format!("no response within {:?}", self.timeout)))
        })
    }
}

/// Cancels a request at the server if it is dropped before the response has arrived.
struct CancelOnDrop<'a> {
    shared: &'a Shared,
    id: &'a RequestId,
    state: &'a SendState,
    reason: &'static str,
    /// Clients must not cancel `initialize` (2025-11-25, utilities: cancellation).
    is_cancellable: bool,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        // The id may have been used again since the response arrived.
        let is_own = |waiter: &Waiter| std::ptr::eq(Arc::as_ptr(&waiter.state), self.state);
        let mut pending = self.shared.lock();
        let is_unanswered = pending.waiters.get(self.id).is_some_and(is_own);
        if is_unanswered {
            pending.waiters.remove(self.id);
        }
        drop(pending);
        if !is_unanswered || !self.state.abandon() || !self.is_cancellable {
            return;
        }
        let params = Cancelled::new(self.id.clone()).with_reason(self.reason);
        if let Ok(cancelled) = Notification::new(name::CANCELLED, &params) {
            tracing::debug!(
                target: "mrtr::stdio",
                id = %self.id,
                reason = self.reason,
                "request cancelled"
            );
            let _ = self.shared.control.send(Some(json_line(cancelled.to_json())));
        }
    }
}

/// The receiving ends of what is to be written.
struct Queues {
    requests: Receiver<(Vec<u8>, Arc<SendState>)>,
    control: UnboundedReceiver<Option<Vec<u8>>>,
    posts: Receiver<Vec<u8>>,
}

/// Writes requests and other lines until the stream is closed or breaks.
async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
    Queues { mut requests, mut control, mut posts }: Queues,
    pending: Arc<Mutex<Pending>>,
) {
    let poll_line = |cx: &mut Context<'_>| {
        // Control lines first: a cancellation must not wait behind a full queue of requests.
        match control.poll_recv(cx) {
            Poll::Ready(Some(Some(line))) => return Poll::Ready(Some((line, None))),
            // Requests that are queued are still written.
            Poll::Ready(_) => requests.close(),
            Poll::Pending => {}
        }
        if let Poll::Ready(Some(line)) = posts.poll_recv(cx) {
            return Poll::Ready(Some((line, None)));
        }
        let request = requests.poll_recv(cx);
        request.map(|request| request.map(|(line, state)| (line, Some(state))))
    };
    let written = write_lines(&mut writer, poll_line).await;
    if let Err(error) = &written {
        tracing::debug!(target: "mrtr::stdio", %error, "writing to the server failed");
    }
    {
        // Requests that were written may still be answered.
        let mut pending = lock(&pending);
        pending.closed = true;
        pending.waiters.retain(|_, waiter| waiter.state.is(SendState::WRITTEN));
    }
    let _ = writer.shutdown().await;
}

/// Reads messages and delivers them until the stream ends or breaks.
async fn read_all(mut lines: LineReader<impl AsyncBufRead + Unpin>, pending: Arc<Mutex<Pending>>) {
    let receive = |text: &[u8]| match Message::parse(text) {
        Ok(message) => lock(&pending).deliver(message),
        Err(error) => lock(&pending).reject_malformed(text, error),
    };
    loop {
        match lines.next().await {
            Ok(Some(Line::Complete(line))) if line.iter().all(u8::is_ascii_whitespace) => {}
            // Each message by itself: one that is malformed does not concern the others.
            Ok(Some(Line::Complete(line))) if batch::is_batch(&line) => match batch::split(&line) {
                Ok(messages) => messages.iter().for_each(|m| receive(m.get().as_bytes())),
                Err(error) => lock(&pending).reject_malformed(&line, error),
            },
            Ok(Some(Line::Complete(line))) => receive(&line),
            Ok(Some(Line::TooLong(prefix))) => {
                lock(&pending).reject_oversized(prefix, lines.max_length());
            }
            Ok(None) | Err(_) => break,
        }
    }
    lock(&pending).end();
}

/// Returns the token with which a request asks for its progress.
fn progress_token(request: &Request) -> Option<RequestId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        progress_token: Option<RequestId>,
    }
    let meta: Meta = serde_json::from_str(request.params.as_ref()?.member("_meta")?).ok()?;
    meta.progress_token
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt, BufReader, duplex, split};

    use super::*;

    #[tokio::test]
    async fn messages_to_a_server_that_does_not_read_are_dropped() {
        let (ours, mut server) = duplex(16);
        let (reader, writer) = split(ours);
        let client = StreamClient::new(BufReader::new(reader), writer);
        let answer = || RawJson::new(&"an answer").unwrap();
        for _ in 0..2 * MAX_QUEUED_POSTS {
            client.post(answer());
            tokio::task::yield_now().await;
        }
        assert!(!client.post(answer()));
        assert!(!client.is_closed());
        // What was kept is written when the server reads again, and before the stream ends.
        client.close();
        let mut written = String::new();
        server.read_to_string(&mut written).await.unwrap();
        let count = written.lines().count();
        assert!((MAX_QUEUED_POSTS..2 * MAX_QUEUED_POSTS).contains(&count), "{count}");
    }

    /// Two clients on one stream may use the same ids.
    #[tokio::test]
    async fn dropped_request_cancels_no_other_one_with_its_id() {
        let (ours, server) = duplex(1024);
        let (reader, writer) = split(ours);
        let client = StreamClient::new(BufReader::new(reader), writer);
        let (lines, mut answers) = split(server);
        let mut lines = BufReader::new(lines).lines();
        let request = || OutgoingRequest::new(Request::new(RequestId::Number(1), "a", None));
        let answer = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        let mut first = Box::pin(client.send(request()));
        assert!(futures_util::poll!(&mut first).is_pending());
        lines.next_line().await.unwrap();
        answers.write_all(answer).await.unwrap();
        while !client.shared.lock().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        let mut second = Box::pin(client.send(request()));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        lines.next_line().await.unwrap();
        answers.write_all(answer).await.unwrap();
        second.await.unwrap();
    }
}
