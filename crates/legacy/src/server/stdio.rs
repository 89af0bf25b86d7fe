//! A client over a byte stream, of any revision: its first message that is no probe decides.

mod session;

use std::future::Future;
use std::io::{self, Cursor};
use std::sync::Arc;
use std::time::Duration;

use mrtr_codec::KeyRing;
use mrtr_schema::jsonrpc::{ErrorObject, Response};
use mrtr_transport::stdio::lines::{Line, LineReader, json_line, write_lines};
use mrtr_transport::stdio::{self, StreamLimits};
use mrtr_transport::{IncomingRequest, NotificationSender, RequestHandler};
use tokio::io::{AsyncBufRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use self::session::StreamSession;
use super::call::empty;
use super::gateway::Gateway;
use super::options::LegacyOptions;
use crate::LegacyVersion;
use crate::server::opening::Opening;

/// How many lines wait for a client that reads slowly.
const MAX_QUEUED: usize = 64;

/// The time that requests in flight have when the stream has ended, as in the current revision.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// How long each step at the end of a session may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves one client over a stream, of the current revision or a legacy one.
///
/// A client that sends `initialize` is a legacy client (specification: versioning, "Backward
/// Compatibility"). It may ask before what the server speaks, by `server/discover` or by a request
/// of another revision. The first request of any other kind decides for the current revision.
///
/// Otherwise it is [`mrtr_transport::stdio::serve_stream`], with the same limits and the same
/// shutdown. Dropping the future cancels the requests in flight.
///
/// # Errors
///
/// If reading or writing the stream fails, or the operating system has no random numbers.
pub async fn serve_stream<H, R, W>(
    handler: H,
    options: LegacyOptions,
    mut reader: R,
    mut writer: W,
    limits: StreamLimits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    H: RequestHandler,
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let mut shutdown = std::pin::pin!(shutdown);
    let mut lines = LineReader::new(&mut reader, limits.max_message_bytes());
    handler.also_serves(&LegacyVersion::names());
    let handler = Arc::new(handler);
    let (first, is_legacy) = loop {
        let line = tokio::select! {
            line = lines.next() => line?,
            () = &mut shutdown => return Ok(()),
        };
        let line = match line {
            None => return Ok(()),
            Some(Line::TooLong(prefix)) => Err(Response::error(prefix.id, too_long(&limits))),
            Some(Line::Complete(line)) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Some(Line::Complete(line)) => Ok(line),
        };
        let answered = async {
            let response = match line {
                Err(error) => error,
                Ok(line) => match Opening::of(&line) {
                    Opening::Session => return Ok(Some((line, true))),
                    Opening::Current => return Ok(Some((line, false))),
                    Opening::Notification => return Ok(None),
                    Opening::Ping(id) => Response { id: Some(id), outcome: Ok(empty()) },
                    Opening::Probe(request, meta) => {
                        let notifications = NotificationSender::closed();
                        let probe = IncomingRequest::new(request, meta, notifications);
                        Arc::clone(&handler).handle(probe).await
                    }
                },
            };
            writer.write_all(&json_line(response.to_json())).await?;
            writer.flush().await?;
            io::Result::Ok(None)
        };
        // The client may not read.
        let first = tokio::select! {
            first = answered => first?,
            () = &mut shutdown => return Ok(()),
        };
        if let Some(first) = first {
            break first;
        }
    };
    if is_legacy {
        return serve_legacy(handler, options, &first, reader, writer, limits, shutdown).await;
    }
    let first = Cursor::new([first.as_slice(), b"\n"].concat());
    stdio::serve_stream(handler, first.chain(reader), writer, limits, shutdown).await
}

/// Serves a legacy client that has sent `first`.
async fn serve_legacy<H, R, W>(
    handler: H,
    options: LegacyOptions,
    first: &[u8],
    reader: R,
    writer: W,
    limits: StreamLimits,
    mut shutdown: impl Future<Output = ()> + Unpin,
) -> io::Result<()>
where
    H: RequestHandler,
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    // Over a stream, nothing is sealed: the session ends with it.
    let sealer = Arc::new(KeyRing::ephemeral().map_err(io::Error::other)?);
    // There is one replica, and it can ask.
    let options = LegacyOptions { bus: None, has_questions: true, ..options };
    let gateway = Gateway::new(handler, sealer, options).map_err(io::Error::other)?;
    let (sender, mut queue) = mpsc::channel(MAX_QUEUED);
    let mut writing = tokio::spawn(write_lines(writer, move |cx| queue.poll_recv(cx)));
    let mut session = StreamSession::new(Arc::new(gateway), sender, limits);
    let mut lines = LineReader::new(reader, limits.max_message_bytes());
    let reading = async {
        session.process(first).await;
        while let Some(line) = lines.next().await? {
            match line {
                Line::TooLong(prefix) => session.reject_line(prefix, too_long(&limits)).await,
                Line::Complete(line) if line.iter().all(u8::is_ascii_whitespace) => {}
                Line::Complete(line) => session.process(&line).await,
            }
        }
        Ok(())
    };
    let read = tokio::select! {
        biased;
        () = &mut shutdown => None,
        written = &mut writing => return written.unwrap_or_else(|e| Err(io::Error::other(e))),
        read = reading => Some(read),
    };
    session.finish(if read.is_none() { SHUTDOWN_TIMEOUT } else { END_TIMEOUT }).await;
    let read = read.unwrap_or(Ok(()));
    session.abort().await;
    // Drops the senders, so that the writer ends after the last line.
    drop(session);
    match tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut writing).await {
        Ok(written) => read.and(written.unwrap_or_else(|e| Err(io::Error::other(e)))),
        Err(_) => {
            writing.abort();
            read
        }
    }
}

fn too_long(limits: &StreamLimits) -> ErrorObject {
    let max = limits.max_message_bytes();
    ErrorObject::invalid_request(format!("the message is longer than {max} bytes"))
}
