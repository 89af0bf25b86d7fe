//! An HTTP/1.1 server for an endpoint, on hyper.

mod connection;
mod connections;
mod options;
mod tracked_io;

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use ::http::{HeaderValue, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, Either, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower_service::Service;

use self::connection::{Connection, GracefulConnection, RequestGuard};
use self::connections::Connections;
pub use self::options::ServeOptions;
use self::tracked_io::TrackedIo;
use super::body::{Rest, discard};
use super::limits::RequestLimits;

/// The limit on the buffers of a connection, in bytes, each way. The read buffer grows as far as
/// reads fill it; with a lower limit, a large body takes several reads.
const MAX_BUFFER: usize = 128 << 10;

/// The smallest buffer that hyper accepts, in bytes.
const MIN_BUFFER: usize = 8 << 10;

/// The pause after a failure to accept. Most likely the process is out of file descriptors, and
/// only the end of other connections helps.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves `service` on `listener` until `shutdown` is ready. The service is usually an
/// [`Endpoint`](super::Endpoint), under any layers.
///
/// After `shutdown`, no more connections are accepted, and requests in flight may finish within
/// [`ServeOptions::with_shutdown_timeout`]. Connections that are still open then are closed. While
/// the [`Readiness`](super::Readiness) flag is off, responses close their connections.
///
/// Dropping the future closes all connections at once.
///
/// It speaks HTTP/1.1 without TLS. For HTTP/2 and TLS, mount the service in another HTTP server.
///
/// ```no_run
/// use mrtr_transport::RequestHandler;
/// use mrtr_transport::http::{Endpoint, ServeOptions, serve};
/// use tokio::net::TcpListener;
///
/// async fn run(handler: impl RequestHandler) -> std::io::Result<()> {
///     let listener = TcpListener::bind("127.0.0.1:3000").await?;
///     let shutdown = async {
///         // … wait for a signal …
///         # std::future::pending::<()>().await;
///     };
///     serve(listener, Endpoint::new(handler), ServeOptions::default(), shutdown).await
/// }
/// ```
///
/// # Errors
///
/// None at present. A failure to accept a connection is logged and tried again: as a warning, or at
/// debug level if it concerns that one connection only.
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Error + Send + Sync + 'static,
{
    let shutdown_timeout = options.shutdown_timeout;
    let slots = Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut connections = Connections::new(options);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accept = async {
            // The semaphore is never closed, so this is never an error.
            let slot = Arc::clone(&slots).acquire_owned().await.ok();
            (slot, listener.accept().await)
        };
        let (slot, stream) = tokio::select! {
            () = &mut shutdown => break,
            () = connections.sweep() => continue,
            (slot, accepted) = accept => match accepted {
                Ok((stream, _)) => (slot, stream),
                Err(error) if concerns_one_connection(&error) => {
                    tracing::debug!(target: "mrtr::http", %error, "cannot accept a connection");
                    continue;
                }
                Err(error) => {
                    tracing::warn!(target: "mrtr::http", %error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                    continue;
                }
            },
        };
        let service = service.clone();
        connections.spawn(slot, |connection| http1_connection(stream, service, connection));
    }
    drop(listener);
    if tokio::time::timeout(shutdown_timeout, connections.shutdown()).await.is_err() {
        tracing::warn!(target: "mrtr::http", "shutdown timeout: requests in flight are aborted");
    }
    Ok(())
}

fn http1_connection<S, B>(
    stream: TcpStream,
    service: S,
    connection: &Arc<Connection>,
) -> impl GracefulConnection<Output = hyper::Result<()>> + Send + use<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Error + Send + Sync + 'static,
{
    // Nagle's algorithm would hold small responses back until the client acknowledges earlier ones.
    let _ = stream.set_nodelay(true);
    let stream = TrackedIo { stream: TokioIo::new(stream), connection: Arc::clone(connection) };
    let header_bytes = connection.options().max_header_bytes.max(MIN_BUFFER);
    let connection = Arc::clone(connection);
    let service = service_fn(move |request: Request<Incoming>| {
        let guard = RequestGuard::new(&connection);
        // The service is called here and not in the future, which would have to carry the request.
        let routed = route(connection.options(), &service, request);
        async move {
            let response = match routed {
                Routed::Called(response) => response.await?.map(Either::Left),
                Routed::Waiting(response) => response.await?.map(Either::Left),
                Routed::Status(status) => status_only(status.await).map(Either::Right),
            };
            Ok::<_, Infallible>(guarded(response, guard))
        }
    });
    http1::Builder::new()
        .max_header_size(header_bytes)
        .max_buf_size(MAX_BUFFER.max(header_bytes))
        .serve_connection(stream, service)
}

impl<I, S, B> GracefulConnection for http1::Connection<I, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn begin_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// The outcome of routing a request.
enum Routed<F, B> {
    /// The service was called.
    Called(F),
    /// The service is not ready and is called later: a layer applies backpressure.
    Waiting(Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>),
    /// The request is not for the service. Its body is discarded before the status is sent.
    Status(Pin<Box<dyn Future<Output = StatusCode> + Send>>),
}

/// Calls a clone of the service if the request is for it.
fn route<S, B>(
    options: &ServeOptions,
    service: &S,
    request: Request<Incoming>,
) -> Routed<S::Future, B>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    if let Some(status) = options.status_without_endpoint(&request) {
        let (head, body) = request.into_parts();
        return Routed::Status(Box::pin(async move {
            let (limits, rest) = (RequestLimits::default(), Rest::DiscardUnless100Continue);
            discard(&limits, pin!(body), rest, &head.headers).await;
            status
        }));
    }
    let mut service = service.clone();
    if service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready() {
        return Routed::Called(service.call(request));
    }
    Routed::Waiting(Box::pin(async move {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    }))
}

/// Ties `guard` to the body of a response: it is dropped with the body.
fn guarded<B>(
    mut response: Response<B>,
    guard: RequestGuard,
) -> Response<impl Body<Data = B::Data, Error = B::Error>>
where
    B: Body,
{
    if !guard.options().readiness().is_ready() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    // The mapping changes nothing: its closure only holds the guard. A body type of our own would
    // need unsafe code to reach the pinned body inside.
    let hold = move |error| {
        let _: &RequestGuard = &guard;
        error
    };
    response.map(|body| body.map_err(hold))
}

/// Creates a response that is a status alone.
fn status_only(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    // The result of a probe is outdated at once.
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, no_store);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use std::future::{Ready, pending, ready};
    use std::task::Poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Is ready when it is polled for the third time, like a layer that makes requests wait.
    #[derive(Clone)]
    struct ReadyAtThirdPoll(u8);

    impl Service<Request<Incoming>> for ReadyAtThirdPoll {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 += 1;
            if self.0 >= 3 {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            ready(Ok(Response::new(Full::from(format!("polled {} times", self.0)))))
        }
    }

    #[tokio::test]
    async fn serve_waits_for_a_service_that_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let options = ServeOptions::default();
        tokio::spawn(serve(listener, ReadyAtThirdPoll(0), options, pending()));
        let request = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with("polled 3 times"), "{response}");
    }
}
