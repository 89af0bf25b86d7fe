//! The client's side of a stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr_schema::jsonrpc::{Message, Notification, RequestId, Response};
use mrtr_schema::notification::{Progress, name};
use mrtr_schema::subscription::{Changed, SUBSCRIPTION_ID};
use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lines::{self, Line, Lines};
use crate::error::TransportError;
use crate::seam::{Exchange, Outgoing};

/// The longest message that is taken from a server.
const LONGEST: usize = 16 << 20;

/// A server at the other end of a stream. Requests share it; each hears what concerns it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StreamClient {
    shared: Arc<Shared>,
    timeout: Duration,
}

#[derive(Debug)]
struct Shared {
    /// What goes out; `None` closes the stream.
    out: UnboundedSender<Option<Vec<u8>>>,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    closed: bool,
    waiting: HashMap<RequestId, UnboundedSender<Incoming>>,
}

#[derive(Debug)]
enum Incoming {
    Notification(Notification),
    Response(Response),
}

impl StreamClient {
    /// A client over `reader` and `writer`, which are read and written by tasks of this runtime.
    pub fn new<R, W>(reader: R, writer: W) -> Self
    where
        R: AsyncBufRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (out, lines_out) = unbounded_channel();
        let shared = Arc::new(Shared { out, pending: Mutex::default() });
        tokio::spawn(write_all(writer, lines_out));
        tokio::spawn(read_all(reader, Arc::clone(&shared)));
        Self { shared, timeout: Duration::from_mins(2) }
    }

    /// How long one request may take. Default: 2 min.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Whether the server's end of the stream is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Closes our end of the stream, which asks the server to end.
    pub fn close(&self) {
        let _ = self.shared.out.send(None);
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchange for StreamClient {
    async fn exchange(&self, outgoing: Outgoing<'_>) -> Result<Response, TransportError> {
        let Outgoing { request, long_lived, heard, .. } = outgoing;
        let (sender, mut incoming) = unbounded_channel();
        {
            let mut pending = self.shared.lock();
            if pending.closed {
                return Err(TransportError::unsent("the server has closed the stream"));
            }
            pending.waiting.insert(request.id.clone(), sender);
        }
        let waiting = Waiting { shared: &self.shared, id: &request.id };
        if self.shared.out.send(Some(lines::write(&request))).is_err() {
            return Err(TransportError::unsent("the stream to the server is closed"));
        }
        let answer = async {
            loop {
                match incoming.recv().await {
                    Some(Incoming::Notification(notification)) => heard(notification),
                    Some(Incoming::Response(response)) => return Ok(response),
                    None => {
                        return Err(TransportError::broken(
                            "the server closed the stream before it answered",
                        ));
                    }
                }
            }
        };
        let answer = if long_lived {
            answer.await
        } else {
            let late = |_| TransportError::broken(format!("no answer within {:?}", self.timeout));
            tokio::time::timeout(self.timeout, answer).await.map_err(late)?
        };
        drop(waiting);
        answer
    }
}

/// A request that waits. Dropping it while it does cancels the request at the server.
struct Waiting<'a> {
    shared: &'a Shared,
    id: &'a RequestId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.shared.lock().waiting.remove(self.id).is_some()
            && let Ok(cancelled) =
                Notification::new("notifications/cancelled", &json!({ "requestId": self.id }))
        {
            let _ = self.shared.out.send(Some(lines::write(&cancelled)));
        }
    }
}

async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
    mut lines: UnboundedReceiver<Option<Vec<u8>>>,
) {
    while let Some(Some(line)) = lines.recv().await {
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!(target: "mrtr::stdio", %error, "the stream to the server broke");
            return;
        }
    }
    let _ = writer.shutdown().await;
}

async fn read_all(reader: impl AsyncBufRead + Unpin, shared: Arc<Shared>) {
    let mut lines = Lines::new(reader, LONGEST);
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(line))) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Some(Line::Whole(line))) => match Message::parse(&line) {
                Ok(message) => deliver(&shared, message),
                Err(error) => {
                    tracing::warn!(target: "mrtr::stdio", %error, "the server sent no message");
                }
            },
            Ok(Some(Line::TooLong)) => {
                tracing::warn!(target: "mrtr::stdio", "the server sent a message that is too long");
            }
            Ok(None) | Err(_) => break,
        }
    }
    let mut pending = shared.lock();
    pending.closed = true;
    pending.waiting.clear();
}

fn deliver(shared: &Shared, message: Message) {
    let mut pending = shared.lock();
    match message {
        Message::Response(response) => {
            // A response to nobody came after its request was cancelled.
            if let Some(waiting) = response.id.as_ref().and_then(|id| pending.waiting.remove(id)) {
                let _ = waiting.send(Incoming::Response(response));
            }
        }
        Message::Notification(notification) => {
            let send = |waiting: &UnboundedSender<Incoming>| {
                let _ = waiting.send(Incoming::Notification(notification.clone()));
            };
            match concerned(&notification) {
                Some(id) if notification.method == "notifications/cancelled" => {
                    pending.waiting.remove(&id);
                }
                Some(id) => drop(pending.waiting.get(&id).map(send)),
                // Log messages do not say which request they belong to.
                None => pending.waiting.values().for_each(send),
            }
        }
        Message::Request(_) => {
            tracing::warn!(target: "mrtr::stdio", "the server sent a request; servers ask through results");
        }
    }
}

/// The request that a notification is about, if it says so.
fn concerned(notification: &Notification) -> Option<RequestId> {
    if notification.method == name::PROGRESS {
        return notification.params::<Progress>().ok().map(|progress| progress.progress_token);
    }
    if notification.method == "notifications/cancelled" {
        let params: serde_json::Value = notification.params().ok()?;
        return serde_json::from_value(params.get("requestId")?.clone()).ok();
    }
    let meta = notification.params::<Changed>().ok()?.meta;
    serde_json::from_value(meta.get(SUBSCRIPTION_ID)?.clone()).ok()
}
