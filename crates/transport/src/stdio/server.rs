//! The server's side of a stream.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use mrtr_schema::jsonrpc::{
    ErrorObject, Message, Notification, Request, RequestId, Response, params,
};
use mrtr_schema::meta::Mirrored;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::lines::{self, Line, Lines};
use crate::answering::{Answering, Part};
use crate::legacy;
use crate::seam::Dispatch;

/// Bounds on what a client may send over a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// The longest message in bytes. Default: 4 MiB.
    pub message: usize,
    /// How many requests may be in flight. Default: 256. More are refused.
    pub in_flight: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { message: 4 << 20, in_flight: 256 }
    }
}

/// Serves one client over a stream, until it ends; then requests in flight are cancelled. A client cancels
/// a request by `notifications/cancelled`.
///
/// # Errors
///
/// If the stream is broken.
pub async fn serve_stream<D, R, W>(
    dispatch: D,
    reader: R,
    writer: W,
    limits: StreamLimits,
) -> io::Result<()>
where
    D: Dispatch,
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, lines_out) = mpsc::channel(64);
    let mut writing = tokio::spawn(write_all(writer, lines_out));
    let mut session = Session {
        dispatch: Arc::new(dispatch),
        out,
        tasks: JoinSet::new(),
        in_flight: HashMap::new(),
    };
    let mut lines_in = Lines::new(reader, limits.message);
    loop {
        tokio::select! {
            Some(finished) = session.tasks.join_next() => {
                if let Ok(id) = finished {
                    session.in_flight.remove(&id);
                }
            }
            written = &mut writing => return written.unwrap_or_else(|e| Err(io::Error::other(e))),
            line = lines_in.next() => match line? {
                None => break,
                Some(Line::TooLong) => {
                    let why = format!("the message is longer than {} bytes", limits.message);
                    session.answer(None, ErrorObject::invalid_request(why)).await;
                }
                Some(Line::Whole(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(Line::Whole(line)) => session.message(&line, limits).await,
            },
        }
    }
    session.tasks.shutdown().await;
    drop(session);
    writing.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

async fn write_all(
    mut writer: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        writer.write_all(&line).await?;
        writer.flush().await?;
    }
    Ok(())
}

struct Session<D> {
    dispatch: Arc<D>,
    out: mpsc::Sender<Vec<u8>>,
    tasks: JoinSet<RequestId>,
    in_flight: HashMap<RequestId, AbortHandle>,
}

impl<D: Dispatch> Session<D> {
    async fn answer(&self, id: Option<RequestId>, error: ErrorObject) {
        // Nobody to write to is nobody to tell.
        let _ = self.out.send(lines::write(&Response::error(id, error))).await;
    }

    async fn message(&mut self, line: &[u8], limits: StreamLimits) {
        match Message::parse(line) {
            Ok(Message::Request(request)) => self.request(request, limits).await,
            Ok(Message::Notification(notification)) => self.notification(&notification),
            Ok(Message::Response(_)) => {
                tracing::debug!(target: "mrtr::stdio", "a client sent a response; it is passed over");
            }
            Err(error) => self.answer(Message::salvage_id(line), error).await,
        }
    }

    fn notification(&mut self, notification: &Notification) {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled {
            request_id: RequestId,
        }
        if notification.method != "notifications/cancelled" {
            return;
        }
        // One that is finished, or never was, is no mistake: the two may have crossed.
        let cancelled = notification.params::<Cancelled>().ok();
        if let Some(task) = cancelled.and_then(|c| self.in_flight.remove(&c.request_id)) {
            task.abort();
        }
    }

    async fn request(&mut self, request: Request, limits: StreamLimits) {
        let id = request.id.clone();
        let refused = match params::<Mirrored>(&request) {
            Err(error) => Err(error),
            Ok(mirrored) => match legacy::refuse(&request, &mirrored) {
                Some(error) => Err(error),
                None if self.in_flight.contains_key(&id) => {
                    Err(ErrorObject::invalid_request("a request with this `id` is still in flight"))
                }
                None if self.in_flight.len() >= limits.in_flight => {
                    Err(ErrorObject::internal("too many requests are in flight"))
                }
                None => Ok(mirrored),
            },
        };
        let mirrored = match refused {
            Ok(mirrored) => mirrored,
            Err(error) => return self.answer(Some(id), error).await,
        };
        let extensions = ::http::Extensions::new();
        let mut answering = Answering::new(&self.dispatch, request, mirrored.meta, extensions);
        let (out, own_id) = (self.out.clone(), id.clone());
        let task = self.tasks.spawn(async move {
            while let Some(part) = answering.next().await {
                let line = match part {
                    Part::Notification(notification) => lines::write(&notification),
                    Part::Response(response) => lines::write(&response),
                };
                if out.send(line).await.is_err() {
                    break;
                }
            }
            own_id
        });
        self.in_flight.insert(id, task);
    }
}
