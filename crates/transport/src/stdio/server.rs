//! The server's side of a stream.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use mrtr_schema::json::MAX_DEPTH;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, Request, RequestId, Response};
use mrtr_schema::method;
use mrtr_schema::notification::{Cancelled, name};
use mrtr_schema::request_head::RequestHead;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use super::reader::{self, Line, Lines};
use super::writer::{About, write_lines};
use crate::initialize;
use crate::response_parts::{Part, Received, ResponseParts};
use crate::traits::RequestHandler;

/// Bounds on what a client may send over a stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// The longest message in bytes. Default: 4 MiB.
    pub message: usize,
    /// How deeply the JSON of a message may be nested. Default, and the most: 128.
    pub depth: usize,
    /// How many requests may be in flight. Default: 256. More are refused.
    pub in_flight: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self { message: 4 << 20, depth: MAX_DEPTH, in_flight: 256 }
    }
}

/// How long a client that has ended its stream, or was told that this server ends, may take to read.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves one client over a stream, until it ends; then requests in flight are cancelled. A client cancels
/// a request by `notifications/cancelled`.
///
/// When `shutdown` is ready, nothing more is read, and requests in flight have 5 s to finish; then a client that reads nothing
/// has as long to be told what ends, and to take what waits. End what listens for changes before, so that it can say so.
///
/// # Errors
///
/// If the stream is broken.
pub async fn serve_stream<D, R, W>(
    dispatch: D,
    reader: R,
    writer: W,
    limits: StreamLimits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    D: RequestHandler,
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (out, mut lines_out) = mpsc::channel::<(Vec<u8>, Option<Arc<Stage>>)>(64);
    // Nothing is said about a request that was cancelled, be it in the queue already.
    let mut writing = tokio::spawn(write_lines(writer, move |cx| lines_out.poll_recv(cx)));
    let mut session = Session {
        dispatch: Arc::new(dispatch),
        out,
        refusal: None,
        tasks: JoinSet::new(),
        in_flight: HashMap::new(),
        room: Arc::new(Semaphore::new(limits.in_flight.min(Semaphore::MAX_PERMITS))),
    };
    let mut lines_in = Lines::new(reader, limits.message);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            Some(finished) = session.tasks.join_next() => session.forget(&finished),
            () = &mut shutdown => {
                let all = async { while session.tasks.join_next().await.is_some() {} };
                let _ = tokio::time::timeout(LAST_WORDS, all).await;
                let _ = tokio::time::timeout(LAST_WORDS, session.cut_off()).await;
                break;
            }
            written = &mut writing => return written.unwrap_or_else(|e| Err(io::Error::other(e))),
            Ok(()) = async { session.out.reserve().await.map(drop) }, if session.refusal.is_some() => {
                if let Some(refusal) = session.refusal.take() {
                    session.tell(refusal);
                }
            }
            line = lines_in.next(), if session.refusal.is_none() => match line? {
                None => break,
                Some(Line::TooLong(beginning)) => {
                    let why = format!("the message is longer than {} bytes", limits.message);
                    session.refuse(beginning.id, ErrorObject::invalid_request(why));
                }
                Some(Line::Whole(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(Line::Whole(line)) => session.message(&line, limits),
            },
        }
    }
    session.tasks.shutdown().await;
    drop(session);
    match tokio::time::timeout(LAST_WORDS, &mut writing).await {
        Ok(written) => written.unwrap_or_else(|e| Err(io::Error::other(e))),
        Err(_) => {
            writing.abort();
            Ok(())
        }
    }
}

struct Session<D> {
    dispatch: Arc<D>,
    out: mpsc::Sender<(Vec<u8>, Option<Arc<Stage>>)>,
    /// Waits for room; nothing more is read until there is.
    refusal: Option<Vec<u8>>,
    tasks: JoinSet<()>,
    in_flight: HashMap<RequestId, Flight>,
    /// For requests, and for what goes on of those that were cancelled.
    room: Arc<Semaphore>,
}

/// A request that is being answered.
struct Flight {
    task: AbortHandle,
    stage: Arc<Stage>,
    /// Whether it is a subscription, which the client has to be told of if it ends without a result.
    listens: bool,
}

/// How far a request has come.
#[derive(Debug)]
struct Stage(AtomicU8);

impl Stage {
    const RUNNING: u8 = 0;
    /// The response is on its way, and the id free again.
    const ANSWERED: u8 = 1;
    const CANCELLED: u8 = 2;

    fn is(&self, stage: u8) -> bool {
        self.0.load(Ordering::SeqCst) == stage
    }

    /// From running to another stage.
    fn turn(&self, to: u8) {
        let _ = self.0.compare_exchange(Self::RUNNING, to, Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl About for Stage {
    fn take(&self) -> bool {
        !self.is(Self::CANCELLED)
    }
}

impl<D: RequestHandler> Session<D> {
    fn refuse(&mut self, id: Option<RequestId>, error: ErrorObject) {
        crate::metrics::refused(crate::metrics::reason_of(&error));
        self.tell(reader::line(Response::error(id, error).to_json()));
    }

    /// Writes a refusal as soon as there is room.
    fn tell(&mut self, refusal: Vec<u8>) {
        // Nobody to write to is nobody to tell.
        if let Err(TrySendError::Full((refusal, _))) = self.out.try_send((refusal, None)) {
            self.refusal = Some(refusal);
        }
    }

    /// A task has ended. Its request's id may be another's by now.
    fn forget(&mut self, _: &Result<(), tokio::task::JoinError>) {
        self.in_flight.retain(|_, flight| !flight.task.is_finished());
    }

    /// Says which subscriptions end without a result.
    async fn cut_off(&mut self) {
        for (request_id, Flight { task, stage, listens }) in self.in_flight.drain() {
            if listens && !task.is_finished() {
                stage.turn(Stage::CANCELLED);
                let cancelled = Cancelled::new(request_id).with_reason("the server ends");
                let cancelled = Notification::new(name::CANCELLED, &cancelled);
                if let Ok(cancelled) = cancelled {
                    let _ = self.out.send((reader::line(cancelled.to_json()), None)).await;
                }
            }
        }
    }

    fn message(&mut self, line: &[u8], limits: StreamLimits) {
        match Message::parse_within(line, limits.depth) {
            Ok(Message::Request(request)) => self.request(request),
            Ok(Message::Notification(notification)) => self.notification(&notification),
            Ok(Message::Response(_)) => {
                tracing::debug!(target: "mrtr::stdio", "a client sent a response; it is passed over");
            }
            Err(error) if Message::was_notification(line) => {
                tracing::debug!(target: "mrtr::stdio", %error, "a notification is passed over");
            }
            Err(error) => self.refuse(Message::salvage_id(line), error),
        }
    }

    fn notification(&mut self, notification: &Notification) {
        if notification.method != name::CANCELLED {
            return;
        }
        let Ok(Cancelled { request_id: id, reason, .. }) = notification.decode_params() else {
            return;
        };
        // One that is finished, or never was, is no mistake: the two may have crossed.
        if let Some(Flight { task, stage, .. }) = self.in_flight.remove(&id) {
            tracing::debug!(target: "mrtr::stdio", %id, reason, "a request was cancelled");
            stage.turn(Stage::CANCELLED);
            task.abort();
        }
    }

    fn request(&mut self, request: Request) {
        let id = request.id.clone();
        let refused = match RequestHead::from_request(&request) {
            Err(error) => Err(error),
            Ok(mirrored) => match initialize::refuse(&request, &mirrored) {
                Some(error) => Err(error),
                None if self
                    .in_flight
                    .get(&id)
                    .is_some_and(|flight| flight.stage.is(Stage::RUNNING)) =>
                {
                    Err(ErrorObject::invalid_request("a request with this `id` is still in flight"))
                }
                None => Arc::clone(&self.room)
                    .try_acquire_owned()
                    .map(|room| (mirrored.meta, room))
                    .map_err(|_| ErrorObject::internal("too many requests are in flight")),
            },
        };
        let (meta, room) = match refused {
            Ok(accepted) => accepted,
            Err(error) => return self.refuse(Some(id), error),
        };
        let listens = request.method == method::LISTEN;
        let mut answering = ResponseParts::new(&self.dispatch, Received::new(request, meta), room);
        let (out, stage) = (self.out.clone(), Arc::new(Stage(AtomicU8::new(Stage::RUNNING))));
        let own = Arc::clone(&stage);
        let task = self.tasks.spawn(async move {
            while let Some(part) = answering.next().await {
                let line = match part {
                    Part::Notification(notification) => reader::line(notification.to_json()),
                    Part::Response(response) => {
                        own.turn(Stage::ANSWERED);
                        reader::line(response.to_json())
                    }
                };
                if out.send((line, Some(Arc::clone(&own)))).await.is_err() {
                    break;
                }
            }
        });
        self.in_flight.insert(id, Flight { task, stage, listens });
    }
}
