//! Serving an endpoint straight on hyper.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use ::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt as _, Either, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_service::Service;

use super::connections::{Busy, Connections, Graceful};
use super::readiness::Readiness;
use super::tracked_io::TrackedIo;

/// How many bytes of a connection are buffered, each way. What is read into grows as far as reads fill it; with less room, a large
/// body takes several.
const BUFFER: usize = 128 << 10;

/// How to serve.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The path of the MCP endpoint; others than those below are answered with 404. Default: `/mcp`.
    pub path: String,
    /// How long a connection may take to send the headers of a request, and so how long one may be idle between two, or
    /// take nothing of a response. Default: 15 s. It is closed up to a quarter of that later, or up to 2 s. Whoever keeps
    /// connections to use them again had better give them up before that.
    pub header_time: Duration,
    /// How many bytes the head of a request may have, and what comes after a body in chunks; 8 KiB at least. A longer head is
    /// answered with 431. Default: 64 KiB.
    pub header_bytes: usize,
    /// How many connections are served at once; more wait to be accepted. Default: 12 000: more than there may be requests in flight
    /// ([`RequestLimits::in_flight`](super::RequestLimits::in_flight)), so that what is too much is told so, and a load balancer gets to ask.
    pub connections: usize,
    /// How long requests in flight may take after the shutdown began. Default: 10 s.
    pub shutdown_time: Duration,
    /// Where `GET` is answered with 200 as long as the process serves at all, whoever asks: whether to start it anew.
    /// Default: `/health`. Empty: nowhere.
    pub health_path: String,
    /// Where `GET` is answered with 200 or 503 by `ready`, whoever asks: whether to send requests. Default: `/ready`. Empty:
    /// nowhere.
    pub ready_path: String,
    /// Whether it is to be given requests. Default: it is, until a shutdown, which gives no notice.
    pub ready: Readiness,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            path: "/mcp".to_owned(),
            header_time: Duration::from_secs(15),
            header_bytes: 64 << 10,
            connections: 12_000,
            shutdown_time: Duration::from_secs(10),
            health_path: "/health".to_owned(),
            ready_path: "/ready".to_owned(),
            ready: Readiness::default(),
        }
    }
}

/// Serves `service`, an [`Endpoint`](super::Endpoint) under whatever layers, on `listener` until
/// `shutdown` is done; then takes no more connections and lets requests in flight finish, within
/// [`ServeOptions::shutdown_time`]. What is left by then is closed. While [`Readiness`] says no, responses close their connections.
///
/// Dropping the future closes all connections at once.
///
/// HTTP/1.1 only: for HTTP/2 and TLS, put the service into a server of your choice.
///
/// # Errors
///
/// None at present: what accepting a connection fails with is logged (a warning, or at debug level if it is about that one
/// connection), and tried again.
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
    let shutdown_time = options.shutdown_time;
    let slots = Arc::new(Semaphore::new(options.connections));
    let mut connections = Connections::new(options);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let slot = Arc::clone(&slots).acquire_owned().await.ok();
            (slot, listener.accept().await)
        };
        let (slot, stream) = tokio::select! {
            () = &mut shutdown => break,
            () = connections.look() => continue,
            (slot, accepted) = accepted => match accepted {
                Ok((stream, _)) => (slot, stream),
                Err(error) if is_about_one_connection(&error) => continue,
                Err(error) => {
                    // Out of descriptors, most likely: others will be given back.
                    tracing::warn!(target: "mrtr::http", %error, "cannot accept connections");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        // Without it, small responses wait for the client's acknowledgements.
        let _ = stream.set_nodelay(true);
        let service = service.clone();
        connections.add(slot, |connection| {
            let stream =
                TrackedIo { stream: TokioIo::new(stream), connection: Arc::clone(connection) };
            let header_bytes = connection.options().header_bytes.max(8 << 10);
            let connection = Arc::clone(connection);
            let service = service_fn(move |request: Request<Incoming>| {
                // Called right here, since a future carries all that it is made of.
                let busy = Busy::new(&connection);
                let called = connection.options().call(&service, request);
                async move {
                    let mut response = match called {
                        Called::Now(answer) => answer.await?.map(Either::Left),
                        Called::Later(answer) => answer.await?.map(Either::Left),
                        Called::Elsewhere(status) => elsewhere(status).map(Either::Right),
                    };
                    if !busy.options().ready.is_ready() {
                        let close = HeaderValue::from_static("close");
                        response.headers_mut().insert(header::CONNECTION, close);
                    }
                    // The body holds what the request held, until it ends.
                    let held = move |error| {
                        let _: &Busy = &busy;
                        error
                    };
                    Ok::<_, Infallible>(response.map(|body| body.map_err(held)))
                }
            });
            http1::Builder::new()
                .max_header_size(header_bytes)
                .max_buf_size(BUFFER.max(header_bytes))
                .serve_connection(stream, service)
        });
    }
    drop(listener);
    if tokio::time::timeout(shutdown_time, connections.end()).await.is_err() {
        tracing::warn!(target: "mrtr::http", "shutdown left requests unfinished");
    }
    Ok(())
}

impl<I, S, B> Graceful for http1::Connection<I, S>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    I: Read + Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl ServeOptions {
    /// Calls a clone of the service, once it is ready.
    fn call<S, B>(&self, service: &S, request: Request<Incoming>) -> Called<S::Future, B>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        if let Some(status) = self.answer(&request) {
            return Called::Elsewhere(status);
        }
        let mut service = service.clone();
        if service.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready() {
            return Called::Now(service.call(request));
        }
        Called::Later(Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            service.call(request).await
        }))
    }

    /// The answer to a request that is not for the service.
    fn answer<B>(&self, request: &Request<B>) -> Option<StatusCode> {
        let path = request.uri().path();
        if path == self.path {
            return None;
        }
        // An empty one is no path of any request.
        let status = match path {
            _ if path == self.health_path => StatusCode::OK,
            _ if path == self.ready_path && self.ready.is_ready() => StatusCode::OK,
            _ if path == self.ready_path => StatusCode::SERVICE_UNAVAILABLE,
            _ => return Some(StatusCode::NOT_FOUND),
        };
        let asks = matches!(*request.method(), Method::GET | Method::HEAD);
        Some(if asks { status } else { StatusCode::METHOD_NOT_ALLOWED })
    }
}

/// A request on its way.
enum Called<F, B> {
    Now(F),
    /// The service was not ready for it.
    Later(Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>),
    /// It is not for the service.
    Elsewhere(StatusCode),
}

/// A response that is a status alone.
fn elsewhere(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    // What was true a moment ago is of no use.
    let fresh = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, fresh);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use std::future::{Ready as Now, pending, ready};
    use std::task::Poll;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    /// As a layer that makes requests wait: it is ready when it is asked for the third time.
    #[derive(Clone)]
    struct Third(u8);

    impl Service<Request<Incoming>> for Third {
        type Response = Response<Full<Bytes>>;
        type Error = Infallible;
        type Future = Now<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.0 += 1;
            if self.0 >= 3 {
                return Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            ready(Ok(Response::new(Full::from(format!("asked {} times", self.0)))))
        }
    }

    #[tokio::test]
    async fn a_service_that_is_not_ready_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(serve(listener, Third(0), ServeOptions::default(), pending()));
        let request = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("asked 3 times"), "{answer}");
    }
}
