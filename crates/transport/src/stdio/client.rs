//! The client's side of a stream.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use mrtr_schema::jsonrpc::{Message, Notification, RequestId, Response};
use mrtr_schema::notification::{Cancelled, Progress, name};
use mrtr_schema::subscription::{Changed, SUBSCRIPTION_ID};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::{mpsc, oneshot};

use super::oversized::Beginning;
use super::reader::{self, Line, Lines};
use super::writer::{About, write_lines};
use crate::error::TransportError;
use crate::traits::{OutgoingRequest, Transport};

/// The longest message that is taken from a server, unless it is said otherwise.
pub(super) const MAX_MESSAGE: usize = 16 << 20;

/// How many requests may wait to be written; others wait for a place among them.
const MOST_QUEUED: usize = 64;

/// How many notifications may wait for a request that is not polled. Of a call, more are dropped; a
/// subscription breaks, because what was missed would be missed for good.
const MOST_HEARD: usize = 1_024;

/// A server at the other end of a stream. Requests share it; each hears what concerns it. Cheap to clone.
///
/// A log message does not say which request it is about: one of those that wait hears it.
#[derive(Debug, Clone)]
pub struct StreamClient {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    /// Requests that are to be written; who finds it full waits.
    requests: Sender<(Vec<u8>, Arc<Stage>)>,
    /// What goes out beside them: cancellations of requests of which something was written. `None` closes the stream, and so does
    /// dropping it.
    control: UnboundedSender<Option<Vec<u8>>>,
    /// The reader has it too.
    pending: Arc<Mutex<Pending>>,
}

#[derive(Debug, Default)]
struct Pending {
    closed: bool,
    waiting: HashMap<RequestId, Waiter>,
}

/// Where the messages for one request go. Dropped without a response, the request is broken.
#[derive(Debug)]
struct Waiter {
    heard: Sender<Notification>,
    /// `None` once the request has failed here, and is to be cancelled there.
    response: Option<oneshot::Sender<Result<Response, TransportError>>>,
    stage: Arc<Stage>,
    long_lived: bool,
}

/// How far a request has come.
#[derive(Debug)]
struct Stage(AtomicU8);

impl Stage {
    const QUEUED: u8 = 0;
    /// The server has some of it, or is just being given it.
    const WRITTEN: u8 = 1;
    /// Nobody waits for an answer.
    const GONE: u8 = 2;

    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(Self::QUEUED)))
    }

    fn is(&self, stage: u8) -> bool {
        self.0.load(Ordering::SeqCst) == stage
    }

    /// From one stage to another. Whether it was the first.
    fn turn(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The error of a request that is given up: one of which the server has nothing will not be written.
    fn give_up(&self, why: impl Into<String>) -> TransportError {
        if self.turn(Self::QUEUED, Self::GONE) {
            TransportError::unsent(format!("{}; the server has read nothing of it", why.into()))
        } else {
            TransportError::broken(why)
        }
    }

    /// Nobody waits any more. Whether the server has to be told.
    fn call_off(&self) -> bool {
        self.0.swap(Self::GONE, Ordering::SeqCst) == Self::WRITTEN
    }
}

impl About for Stage {
    fn take(&self) -> bool {
        self.turn(Self::QUEUED, Self::WRITTEN);
        !self.is(Self::GONE)
    }

    fn give_back(&self) {
        self.turn(Self::WRITTEN, Self::QUEUED);
    }
}

impl StreamClient {
    /// A client over `reader` and `writer`, which are read and written by tasks of this runtime. A message of the server's
    /// may have up to 16 MiB.
    pub fn new<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncBufRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        Self::with_max_message(reader, writer, MAX_MESSAGE)
    }

    /// As [`StreamClient::new`], with another bound on a message of the server's, in bytes. One that is longer is passed over, and
    /// the request that it answers fails.
    pub fn with_max_message<R, W>(reader: R, writer: W, bytes: usize) -> Self
    where
        R: AsyncBufRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, requests_out) = mpsc::channel(MOST_QUEUED);
        let (control, control_out) = mpsc::unbounded_channel();
        let pending = Arc::<Mutex<Pending>>::default();
        tokio::spawn(write_all(writer, requests_out, control_out, Arc::clone(&pending)));
        tokio::spawn(read_all(Lines::new(reader, bytes), Arc::clone(&pending)));
        let shared = Shared { requests, control, pending };
        Self { shared: Arc::new(shared), timeout: Duration::from_mins(2) }
    }

    /// How long one request may take. Default: 2 min.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Whether one end of the stream is closed, so that no more requests can be sent. Those that were may be answered yet.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Closes our end of the stream, which asks the server to end. So does dropping all clones.
    pub fn close(&self) {
        let _ = self.shared.control.send(None);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
    }
}

fn lock(pending: &Mutex<Pending>) -> MutexGuard<'_, Pending> {
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport for StreamClient {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let OutgoingRequest { request, long_lived, heard, .. } = outgoing;
        let (sender, mut notifications) = mpsc::channel(MOST_HEARD);
        let (response_sender, mut response) = oneshot::channel();
        let stage = Stage::new();
        {
            let mut pending = self.shared.lock();
            if pending.closed {
                return Err(TransportError::unsent("the stream to the server is closed"));
            }
            if pending.waiting.contains_key(&request.id) {
                let why = format!("another request has the id {} already", request.id);
                return Err(TransportError::unsent(why));
            }
            let (response, stage) = (Some(response_sender), Arc::clone(&stage));
            let waiter = Waiter { heard: sender, response, stage, long_lived };
            pending.waiting.insert(request.id.clone(), waiter);
        }
        let mut waiting = Waiting {
            shared: &self.shared,
            id: &request.id,
            stage: &stage,
            reason: "the caller has gone",
        };
        let answer = async {
            let line = (reader::write(&request), Arc::clone(&stage));
            tokio::select! {
                biased;
                sent = self.shared.requests.send(line) => if sent.is_err() {
                    return Err(stage.give_up("the stream to the server is closed"));
                },
                _ = &mut response => return Err(stage.give_up("the server has closed the stream")),
            }
            loop {
                // Notifications first: all of them came before the response.
                tokio::select! {
                    biased;
                    Some(notification) = notifications.recv() => heard(notification),
                    answered = &mut response => return answered.unwrap_or_else(|_| {
                        Err(stage.give_up("the server closed the stream before it answered"))
                    }),
                }
            }
        };
        if long_lived {
            return answer.await;
        }
        tokio::time::timeout(self.timeout, answer).await.unwrap_or_else(|_| {
            waiting.reason = "the time for an answer is over";
            Err(stage.give_up(format!("no answer within {:?}", self.timeout)))
        })
    }
}

/// A request that waits. Dropping it while it does cancels the request at the server.
struct Waiting<'a> {
    shared: &'a Shared,
    id: &'a RequestId,
    stage: &'a Stage,
    reason: &'static str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = self.shared.lock().waiting.remove(self.id).is_some();
        let params = Cancelled::new(self.id.clone()).with_reason(self.reason);
        if unanswered
            && self.stage.call_off()
            && let Ok(cancelled) = Notification::new(name::CANCELLED, &params)
        {
            tracing::debug!(target: "mrtr::stdio", id = %self.id, reason = self.reason, "cancelled");
            let _ = self.shared.control.send(Some(reader::line(cancelled.to_json())));
        }
    }
}

async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
    mut requests: Receiver<(Vec<u8>, Arc<Stage>)>,
    mut control: UnboundedReceiver<Option<Vec<u8>>>,
    pending: Arc<Mutex<Pending>>,
) {
    let next = |cx: &mut Context<'_>| {
        // First, so that a cancellation does not wait until nobody asks for anything.
        match control.poll_recv(cx) {
            Poll::Ready(Some(Some(line))) => return Poll::Ready(Some((line, None))),
            // What was asked before is written.
            Poll::Ready(_) => requests.close(),
            Poll::Pending => {}
        }
        let request = requests.poll_recv(cx);
        request.map(|request| request.map(|(line, stage)| (line, Some(stage))))
    };
    let written = write_lines(&mut writer, next).await;
    if let Err(error) = &written {
        tracing::debug!(target: "mrtr::stdio", %error, "the stream to the server broke");
    }
    {
        // What was written may be answered yet.
        let mut pending = lock(&pending);
        pending.closed = true;
        pending.waiting.retain(|_, waiter| waiter.stage.is(Stage::WRITTEN));
    }
    let _ = writer.shutdown().await;
}

async fn read_all(mut lines: Lines<impl AsyncBufRead + Unpin>, pending: Arc<Mutex<Pending>>) {
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(line))) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Some(Line::Whole(line))) => match Message::parse(&line) {
                Ok(message) => lock(&pending).deliver(message),
                Err(error) => {
                    tracing::warn!(target: "mrtr::stdio", %error, "the server sent no message");
                }
            },
            Ok(Some(Line::TooLong(beginning))) => lock(&pending).too_long(beginning, lines.limit),
            Ok(None) | Err(_) => break,
        }
    }
    let mut pending = lock(&pending);
    pending.closed = true;
    pending.waiting.clear();
}

impl Waiter {
    fn end(&mut self, with: Result<Response, TransportError>) {
        if let Some(response) = self.response.take() {
            // Who does not wait any more need not know.
            let _ = response.send(with);
        }
    }
}

impl Pending {
    fn deliver(&mut self, message: Message) {
        match message {
            Message::Response(response) => {
                let id = response.id.clone().or_else(|| self.alone());
                if let Some(mut waiter) = id.and_then(|id| self.waiting.remove(&id)) {
                    waiter.end(Ok(response));
                } else if let (None, Err(error)) = (response.id, response.outcome) {
                    tracing::warn!(target: "mrtr::stdio", %error, "the server could not read a request");
                }
                // Any other came after its request was cancelled.
            }
            Message::Notification(notification) => match notification.method.as_str() {
                name::CANCELLED => self.cancelled(&notification),
                name::MESSAGE => {
                    let mut calls = self.waiting.iter().filter(|(_, waiter)| !waiter.long_lived);
                    if let Some(id) = calls.next().map(|(id, _)| id.clone()) {
                        self.hear(&id, notification);
                    }
                }
                _ => {
                    if let Some(id) = concerned(&notification) {
                        self.hear(&id, notification);
                    }
                }
            },
            Message::Request(_) => {
                tracing::warn!(target: "mrtr::stdio", "the server sent a request; servers ask through results");
            }
        }
    }

    /// A message came that is longer than may be. Who waits for it need not wait on.
    fn too_long(&mut self, Beginning { id, has_method }: Beginning, max_message: usize) {
        let what = format!("the server sent a message of more than {max_message} bytes");
        tracing::warn!(target: "mrtr::stdio", "{what}");
        if has_method {
            return;
        }
        if let Some(mut waiter) =
            id.or_else(|| self.alone()).and_then(|id| self.waiting.remove(&id))
        {
            waiter.end(Err(TransportError::protocol(what)));
        }
    }

    /// The call that waits, if there is one alone: an error about a request that was not read, because it is too long for the
    /// server, has no id.
    fn alone(&self) -> Option<RequestId> {
        let calls = self.waiting.iter().filter(|(_, waiter)| !waiter.long_lived);
        let mut calls = calls.filter(|(_, waiter)| waiter.stage.is(Stage::WRITTEN));
        let (id, _) = calls.next()?;
        calls.next().is_none().then(|| id.clone())
    }

    fn hear(&mut self, id: &RequestId, notification: Notification) {
        let Some(waiter) = self.waiting.get_mut(id) else { return };
        if waiter.heard.try_send(notification).is_err() {
            tracing::warn!(target: "mrtr::stdio", %id, "the server sends more than is listened to");
            if waiter.long_lived {
                let what = format!("more than {MOST_HEARD} announcements wait to be heard");
                waiter.end(Err(TransportError::broken(what)));
            }
        }
    }

    /// A server may end subscriptions in this way, and nothing else.
    fn cancelled(&mut self, notification: &Notification) {
        let Ok(Cancelled { request_id: id, reason, .. }) = notification.decode_params() else {
            return;
        };
        if self.waiting.get(&id).is_some_and(|waiter| waiter.long_lived)
            && let Some(mut waiter) = self.waiting.remove(&id)
        {
            tracing::debug!(target: "mrtr::stdio", %id, reason, "the server ended a subscription");
            let ended = TransportError::ended("the server ended the subscription");
            waiter.end(Err(ended));
        }
    }
}

/// The request that a notification is about, if it says so.
fn concerned(notification: &Notification) -> Option<RequestId> {
    if notification.method == name::PROGRESS {
        return notification
            .decode_params::<Progress>()
            .ok()
            .map(|progress| progress.progress_token);
    }
    let meta = notification.decode_params::<Changed>().ok()?.meta;
    serde_json::from_value(meta.get(SUBSCRIPTION_ID)?.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server cannot have meant what it has not got.
    #[test]
    fn an_error_without_an_id_is_about_what_was_written() {
        let mut pending = Pending::default();
        let mut add = |id, stage, long_lived| {
            let stage = Arc::new(Stage(AtomicU8::new(stage)));
            let waiter = Waiter { heard: mpsc::channel(1).0, response: None, stage, long_lived };
            pending.waiting.insert(RequestId::Number(id), waiter);
            pending.alone()
        };
        assert_eq!(add(1, Stage::QUEUED, false), None);
        assert_eq!(add(2, Stage::WRITTEN, false), Some(RequestId::Number(2)));
        assert_eq!(add(3, Stage::WRITTEN, true), Some(RequestId::Number(2)));
        assert_eq!(add(4, Stage::WRITTEN, false), None, "it may be either's");
    }
}
