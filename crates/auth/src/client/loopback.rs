//! Callbacks on the loopback interface (RFC 8252, section 7.3).

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use mrtr_transport::BoxError;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use url::Url;

use super::authorization::AuthorizationPage;
use super::user_agent::{CallbackReceiver, DriverFuture, UserAgent};

/// How long the user may take to log in.
const TIMEOUT: Duration = Duration::from_mins(5);
/// The most connections that wait at once. Others wait in the queue of the operating system.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

const PATH: &str = "/callback";

/// Receives callbacks at a port of 127.0.0.1, for programs on the user's device.
///
/// The port is bound only during a login, for at most 5 minutes. Callbacks that do not belong to
/// the login are rejected, and the login keeps waiting.
///
/// The redirect URI is `http://127.0.0.1:PORT/callback`. Authorization servers must accept any port
/// if `http://127.0.0.1/callback` is registered (RFC 8252, section 7.3). Not all do: for those, set
/// a [fixed port](Self::with_port) and register it.
pub struct Loopback {
    open: Arc<OpenPage>,
    port: Option<u16>,
}

type OpenPage = dyn Fn(&AuthorizationPage) -> io::Result<()> + Send + Sync;

impl Loopback {
    /// Creates a user agent that calls `open` to show a page: for example, to open the system's
    /// browser, or to print the URL. `open` must not block. Ask the user before you open a page.
    ///
    /// If `open` fails, so does the login.
    pub fn new(
        open: impl Fn(&AuthorizationPage) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Arc::new(open), port: None }
    }

    /// Sets the port. Default: any that is free, preferably that of the last registration.
    ///
    /// If another program uses the port, the login fails.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }
}

impl fmt::Debug for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").finish_non_exhaustive()
    }
}

impl UserAgent for Loopback {
    fn prepare<'a>(
        &'a self,
        preferred: Option<&'a str>,
    ) -> DriverFuture<'a, Box<dyn CallbackReceiver>> {
        Box::pin(async move {
            let port = |uri| Url::parse(uri).ok().and_then(|url| url.port());
            let listener = match self.port {
                Some(port) => TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?,
                None => bind(preferred.and_then(port)).await?,
            };
            let address = listener.local_addr()?;
            let redirect_uri = format!("http://{address}{PATH}");
            let open = Arc::clone(&self.open);
            Ok(Box::new(Receiver { listener, address, redirect_uri, open })
                as Box<dyn CallbackReceiver>)
        })
    }
}

/// Binds the preferred port, or any other if that is in use.
async fn bind(preferred: Option<u16>) -> io::Result<TcpListener> {
    if let Some(port) = preferred
        && let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
    {
        return Ok(listener);
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
    redirect_uri: String,
    open: Arc<OpenPage>,
}

impl CallbackReceiver for Receiver {
    fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    fn authorize(self: Box<Self>, page: AuthorizationPage) -> DriverFuture<'static, String> {
        Box::pin(async move {
            (self.open)(&page)?;
            let (sender, receiver) = oneshot::channel();
            let waiting = Arc::new(Waiting {
                host: self.address.to_string(),
                page,
                sender: Mutex::new(Some(sender)),
            });
            let serve = serve(self.listener, waiting);
            tokio::select! {
                callback = receiver => Ok(callback?),
                error = serve => Err(error.into()),
                () = tokio::time::sleep(TIMEOUT) => {
                    Err(BoxError::from("no callback within 5 minutes"))
                }
            }
        })
    }
}

/// Serves connections until it is dropped.
async fn serve(listener: TcpListener, waiting: Arc<Waiting>) -> io::Error {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return io::Error::other("closed");
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return error,
        };
        let waiting = Arc::clone(&waiting);
        // The response to the callback is still written after the login has ended.
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = waiting.respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            let served = http.keep_alive(false).serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, served).await;
            drop(permit);
        });
    }
}

struct Waiting {
    host: String,
    page: AuthorizationPage,
    sender: Mutex<Option<oneshot::Sender<String>>>,
}

impl Waiting {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if request.method() != Method::GET || request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, "Not found");
        }
        // A web page whose name resolves to this address sends its own name.
        if host != Some(&self.host) {
            return text(StatusCode::BAD_REQUEST, "Unknown host");
        }
        let callback = format!("http://{}{}", self.host, request.uri());
        if !self.page.is_answered_by(&callback) {
            return text(
                StatusCode::BAD_REQUEST,
                "This page does not belong to the login in progress",
            );
        }
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        match sender.take() {
            Some(sender) => {
                let _ = sender.send(callback);
                text(StatusCode::OK, "You can close this window and return to the application.")
            }
            None => text(StatusCode::BAD_REQUEST, "The login is complete already"),
        }
    }
}

/// Creates a page without anything that could be attacked. Its URL has a code, which must not be
/// passed on.
fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        response.headers_mut().insert(name, http::HeaderValue::from_static(value));
    }
    response
}
