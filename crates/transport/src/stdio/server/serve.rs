//! Serving one client over a stream.

use std::future::Future;
use std::io;
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::sync::mpsc;

use super::limits::StreamLimits;
use super::session::{OutgoingLine, Session, has_free_slot};
use crate::stdio::reader::{Line, LineReader};
use crate::stdio::writer::write_lines;
use crate::traits::RequestHandler;

/// Longest time that each phase at the end of a session may take: requests in flight finish,
/// cancellations of subscriptions are queued, and the client reads the remaining output.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that requests in flight have when the stream has ended: one that was just read is still
/// answered.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of lines that may wait for a client that reads slowly. Requests that find the
/// queue full wait.
const MAX_QUEUED_LINES: usize = 64;

/// Serves one client over a stream until the stream ends. Requests that are in flight then have
/// 0.5 s to finish, and are cancelled. A client cancels a request by `notifications/cancelled`.
///
/// When `shutdown` is ready, nothing more is read, and requests in flight have 5 s to finish. Then
/// the server cancels the remaining subscriptions with `notifications/cancelled`, which may take
/// another 5 s. The client has 5 s more to read the remaining output. End subscriptions in the
/// handler before `shutdown` is ready, so that they end with a result.
///
/// Dropping the future cancels the requests in flight.
///
/// ```
/// # use std::sync::Arc;
/// # use mrtr_schema::RawJson;
/// # use mrtr_schema::jsonrpc::{Request, RequestId, Response};
/// # use mrtr_transport::IncomingRequest;
/// use mrtr_transport::stdio::{StreamClient, StreamLimits, serve_stream};
/// use mrtr_transport::{OutgoingRequest, RequestHandler, Transport};
/// use tokio::io::{BufReader, duplex, split};
/// # struct Echo;
/// # impl RequestHandler for Echo {
/// #     async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
/// #         let result = RawJson::new(&incoming.request.method);
/// #         Response { id: Some(incoming.request.id), outcome: Ok(result.expect("a string")) }
/// #     }
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (ours, theirs) = duplex(64 << 10);
/// let (reader, writer) = split(theirs);
/// let limits = StreamLimits::default();
/// let forever = std::future::pending();
/// tokio::spawn(serve_stream(Echo, BufReader::new(reader), writer, limits, forever));
///
/// let (reader, writer) = split(ours);
/// let client = StreamClient::new(BufReader::new(reader), writer);
/// # let request = Request::new(RequestId::Number(1), "example/echo", None);
/// let response = client.send(OutgoingRequest::new(request)).await.unwrap();
/// assert!(response.outcome.is_ok());
/// # }
/// ```
///
/// # Errors
///
/// If reading or writing the stream fails.
pub async fn serve_stream<H, R, W>(
    handler: H,
    reader: R,
    writer: W,
    limits: StreamLimits,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()>
where
    H: RequestHandler,
    R: AsyncBufRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (sender, mut queue) = mpsc::channel::<OutgoingLine>(MAX_QUEUED_LINES);
    let mut writing = tokio::spawn(write_lines(writer, move |cx| queue.poll_recv(cx)));
    let mut session = Session::new(handler, sender, limits);
    let mut lines = LineReader::new(reader, limits.message_bytes);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            Some(finished) = session.tasks.join_next() => session.forget_finished(finished),
            () = &mut shutdown => {
                let all = async { while session.tasks.join_next().await.is_some() {} };
                let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await;
                let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, session.end_subscriptions()).await;
                break;
            }
            written = &mut writing => return written.unwrap_or_else(|e| Err(io::Error::other(e))),
            true = has_free_slot(&session.lines), if session.rejection.is_some() => {
                session.send_rejection();
            }
            line = lines.next(), if session.rejection.is_none() => match line? {
                None => {
                    let finished = tokio::time::timeout(END_TIMEOUT, session.finish_requests());
                    tokio::select! {
                        _ = finished => break,
                        written = &mut writing => {
                            return written.unwrap_or_else(|e| Err(io::Error::other(e)));
                        }
                    }
                }
                Some(Line::TooLong(prefix)) => {
                    let max = limits.message_bytes;
                    let message = format!("the message is longer than {max} bytes");
                    session.reject(prefix.id, ErrorObject::invalid_request(message));
                }
                Some(Line::Complete(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(Line::Complete(line)) => session.process(&line),
            },
        }
    }
    session.tasks.shutdown().await;
    // Drops the sender, so that the writer ends after the last line.
    drop(session);
    match tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut writing).await {
        Ok(written) => written.unwrap_or_else(|e| Err(io::Error::other(e))),
        Err(_) => {
            writing.abort();
            Ok(())
        }
    }
}
