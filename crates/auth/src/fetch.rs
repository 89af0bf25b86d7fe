//! Sends requests to issuers, in bounded memory and time.

#[cfg(feature = "client")]
mod address;
#[cfg(feature = "client")]
mod resolver;
#[cfg(all(feature = "client", feature = "tls"))]
mod tls;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Response};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use url::Url;

#[cfg(feature = "client")]
pub(crate) use self::address::AddressPolicy;
use crate::identifier::is_loopback;
use crate::metadata::MAX_DOCUMENT;

/// The longest time that a request may take, with its response.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of connections: a proxy, and trusted certificate authorities.
#[derive(Clone, Default)]
pub(crate) struct HttpSettings {
    settings: Vec<Setting>,
    /// The host of the proxy.
    #[cfg(feature = "client")]
    proxy: Option<String>,
}

type Setting = Arc<dyn Fn(ClientBuilder) -> ClientBuilder + Send + Sync>;

/// An HTTP client that follows no redirects: a redirect could lead to hosts that only this machine
/// can reach, and would send secrets there.
///
/// It uses the system's proxy or the one of its settings, but not for the loopback interface: a
/// proxy has another one.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    remote: Client,
    loopback: Client,
    #[cfg(feature = "client")]
    addresses: Option<AddressPolicy>,
}

/// A request without a whole response. No message has the URL, which may have secrets.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoResponse {
    #[cfg(feature = "client")]
    #[error("{0} is not a public address; allow private networks if it is meant to be one")]
    Address(String),
    #[error("the request timed out")]
    Timeout,
    #[error("{}", causes(.0))]
    Http(reqwest::Error),
    #[error("the response is longer than {MAX_DOCUMENT} bytes")]
    TooLong,
}

impl Fetcher {
    /// Creates a client that connects to any address. For URLs that others choose, restrict them.
    ///
    /// # Errors
    ///
    /// If TLS cannot be initialized.
    #[cfg(feature = "resource")]
    pub(crate) fn new(settings: &HttpSettings) -> reqwest::Result<Self> {
        Self::build(settings, |builder| builder)
    }

    fn build(
        settings: &HttpSettings,
        complete: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> reqwest::Result<Self> {
        let builder = || {
            let client = Client::builder().redirect(Policy::none()).timeout(TIMEOUT);
            let client = client.user_agent(concat!("mrtr-auth/", env!("CARGO_PKG_VERSION")));
            complete(settings.settings.iter().fold(client, |client, setting| setting(client)))
        };
        Ok(Self {
            remote: builder().build()?,
            loopback: builder().no_proxy().build()?,
            #[cfg(feature = "client")]
            addresses: None,
        })
    }

    /// Sends a request, and reads its response.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: impl Into<reqwest::Body>,
    ) -> Result<Response<Vec<u8>>, NoResponse> {
        #[cfg(feature = "client")]
        self.check_address(&url)?;
        let client = if is_loopback(&url) { &self.loopback } else { &self.remote };
        let mut received = client.request(method, url).headers(headers).body(body).send().await?;
        let mut body = Vec::new();
        while let Some(chunk) = received.chunk().await? {
            if body.len() + chunk.len() > MAX_DOCUMENT {
                return Err(NoResponse::TooLong);
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = Response::new(body);
        *response.status_mut() = received.status();
        *response.headers_mut() = std::mem::take(received.headers_mut());
        Ok(response)
    }
}

impl From<reqwest::Error> for NoResponse {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() { Self::Timeout } else { Self::Http(error.without_url()) }
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings").finish_non_exhaustive()
    }
}

#[cfg(feature = "client")]
impl HttpSettings {
    /// Sends all requests through a proxy.
    ///
    /// # Errors
    ///
    /// If `url` is not a URL. The error does not have the URL, which may have a password.
    pub(crate) fn set_proxy(&mut self, url: &str) -> reqwest::Result<()> {
        let proxy = reqwest::Proxy::all(url).map_err(reqwest::Error::without_url)?;
        self.settings.push(Arc::new(move |client| client.proxy(proxy.clone())));
        self.proxy = proxy_host(url);
        Ok(())
    }

    /// Returns the hosts of the proxies in use: the one that was set, and those of the environment.
    fn proxy_hosts(&self) -> Vec<String> {
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
        let names = names.into_iter().flat_map(|name| [name.to_owned(), name.to_lowercase()]);
        let of_system = names.filter_map(|name| proxy_host(&std::env::var(name).ok()?));
        self.proxy.iter().cloned().chain(of_system).collect()
    }
}

/// Returns the host of a proxy, whose URL may lack the scheme.
#[cfg(feature = "client")]
fn proxy_host(url: &str) -> Option<String> {
    let parsed =
        if url.contains("://") { Url::parse(url) } else { Url::parse(&format!("http://{url}")) };
    parsed.ok()?.host_str().map(str::to_owned)
}

/// Joins the messages of an error and its sources: the message of `reqwest` alone has no reason.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
