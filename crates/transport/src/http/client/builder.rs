//! The builder of the HTTP client.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::redirect::Policy;

use super::bearer::{Bearer, Challenge, authorization};
use super::credentials::Credentials;
use super::http_client::HttpClient;
use super::server_name::ServerName;
use crate::error::{BoxError, Kind, TransportError};

/// Longest time that an idle connection is kept. Servers close idle connections too (mrtr's after
/// 15 s). A request that is sent on a connection about to be closed is lost, so the client must
/// close it first.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds an [`HttpClient`].
#[must_use = "call `build`"]
pub struct HttpClientBuilder {
    url: String,
    headers: HeaderMap,
    credentials: Option<Arc<dyn Credentials>>,
    pub(super) http: reqwest::ClientBuilder,
    max_response: usize,
    timeout: Duration,
}

impl HttpClient {
    /// Creates a builder of a client for the MCP endpoint at `url`.
    pub fn builder(url: impl Into<String>) -> HttpClientBuilder {
        HttpClientBuilder {
            url: url.into(),
            headers: HeaderMap::new(),
            credentials: None,
            http: reqwest::Client::builder(),
            max_response: 16 << 20,
            timeout: Duration::from_mins(2),
        }
    }
}

impl fmt::Debug for HttpClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClientBuilder").finish_non_exhaustive()
    }
}

impl HttpClientBuilder {
    /// Adds a header to every request. Its value is never logged.
    pub fn header(mut self, name: HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.insert(name, value);
        self
    }

    /// Sends `Authorization: Bearer` with every request.
    ///
    /// # Errors
    ///
    /// If `token` has characters that a header cannot carry.
    pub fn bearer(self, token: &str) -> Result<Self, TransportError> {
        Ok(self.header(header::AUTHORIZATION, authorization(token)?))
    }

    /// Sends `Authorization: Bearer` with every request, with tokens from `source`. They take
    /// precedence over [`bearer`](Self::bearer) and [`header`](Self::header).
    ///
    /// `source` is called before the first request, and whenever the server refuses the token in
    /// use (401, or 403 with a challenge). It gets the challenge, and the request is sent again
    /// with the new token, at most twice.
    ///
    /// All requests that wait for a token share one call of `source`, which continues if one of
    /// them is dropped. The client's timeout does not apply to it, since it may ask the user to log
    /// in. It must not send requests through this client.
    ///
    /// If `source` fails, the waiting requests fail with its error as their source. They are not
    /// sent, or not sent again.
    ///
    /// ```
    /// # use mrtr_transport::{BoxError, TransportError};
    /// use mrtr_transport::http::{Challenge, HttpClient};
    ///
    /// # async fn fetch(_: &str) -> Result<String, BoxError> { Ok(String::new()) }
    /// # fn example() -> Result<HttpClient, TransportError> {
    /// HttpClient::builder("https://booking.example/mcp")
    ///     .bearer_from(async |refused: Option<Challenge>| {
    ///         // The challenge names the place that issues tokens.
    ///         let challenge = refused.map(|refused| refused.www_authenticate);
    ///         fetch(&challenge.unwrap_or_default()).await
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn bearer_from<F, Fut>(self, source: F) -> Self
    where
        F: Fn(Option<Challenge>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        self.credentials(Bearer::new(source))
    }

    /// Adds credentials to every request. They take precedence over [`bearer`](Self::bearer) and
    /// [`header`](Self::header), and replace those of [`bearer_from`](Self::bearer_from).
    pub fn credentials(mut self, credentials: impl Credentials) -> Self {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// Sends all requests through the proxy at `url`, which may contain a user and a password.
    /// Default: the proxies in `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    ///
    /// # Errors
    ///
    /// If `url` is not a URL.
    pub fn proxy(mut self, url: &str) -> Result<Self, TransportError> {
        // The URL may contain a password, so the error must not contain the URL.
        let proxy = reqwest::Proxy::all(url)
            .map_err(|error| invalid("invalid proxy URL").with_source(error.without_url()))?;
        self.http = self.http.proxy(proxy);
        Ok(self)
    }

    /// Sets the longest response in bytes. Default: 16 MiB.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// Sets the timeout of one request, including its response. Default: 2 min. Of a subscription,
    /// it covers the time until the response begins, and then the time until its first message,
    /// which acknowledges it.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Builds the client. No connection is made. Logs a warning if the client would send
    /// credentials to an `http` URL of another machine, since they are not encrypted.
    ///
    /// # Errors
    ///
    /// If the URL is invalid, its scheme is not `http` or `https`, or it is `https` and the crate
    /// feature `tls` is off.
    pub fn build(self) -> Result<HttpClient, TransportError> {
        let url: reqwest::Url =
            self.url.parse().map_err(|error| invalid("invalid server URL").with_source(error))?;
        match url.scheme() {
            "http" => {}
            "https" if cfg!(feature = "tls") => {}
            "https" => return Err(invalid("https needs the crate feature `tls`")),
            other => {
                let message = format!("unsupported URL scheme {other:?}: must be http or https");
                return Err(invalid(message));
            }
        }
        let has_credentials =
            self.credentials.is_some() || self.headers.contains_key(header::AUTHORIZATION);
        if url.scheme() == "http" && has_credentials && !is_loopback(&url) {
            let server = ServerName::new(&url);
            tracing::warn!(target: "mrtr::client", %server, "credentials are sent without encryption: use https");
        }
        let http = self
            .http
            .redirect(Policy::none())
            .tcp_nodelay(true)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .connect_timeout(self.timeout)
            .build()
            .map_err(|error| invalid("cannot create the HTTP client").with_source(error))?;
        Ok(HttpClient {
            http,
            name: ServerName::new(&url),
            url,
            headers: self.headers,
            credentials: self.credentials,
            authorization: Arc::default(),
            max_response: self.max_response,
            timeout: self.timeout,
        })
    }
}

/// Returns true if the host is this machine.
fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn invalid(message: impl Into<String>) -> TransportError {
    TransportError::new(Kind::InvalidRequest, message)
}
