//! Sending requests to the API.

use bytes::Bytes;
use http::{Request, Response};

/// The error of [`ApiClient::send`]: there is no response, or it is too large.
pub type SendError = Box<dyn std::error::Error + Send + Sync>;

/// Sends requests to the API. With the feature `reqwest`, `ReqwestClient` does.
///
/// Implement it to obtain credentials asynchronously, to use another HTTP client, or to test
/// without a network. Timeouts, TLS, proxies and redirects are up to the implementation.
pub trait ApiClient: Send + Sync + 'static {
    /// Sends one request. Its extensions contain the [`Operation`](crate::Operation).
    ///
    /// The future is dropped if the call is cancelled or times out. The API may already have acted
    /// on the request.
    ///
    /// # Errors
    ///
    /// If there is no response, or its body has more than `max_bytes` bytes. A response with an
    /// error status is not an error. Errors are logged; the model does not see them.
    fn send(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Response<Bytes>, SendError>> + Send;
}

/// Requests by reqwest, without redirects: a redirect would send the request, and headers with
/// credentials, to where the response says.
#[cfg(feature = "reqwest")]
#[derive(Debug, Clone)]
pub struct ReqwestClient(reqwest::Client);

#[cfg(feature = "reqwest")]
impl ReqwestClient {
    /// Builds the client. Timeouts, TLS and proxies are those of the builder. Without a timeout, a
    /// request may take as long as a call: [`Tool::request_timeout`][limit], by default 1 min.
    ///
    /// [limit]: mrtr_server::Tool::request_timeout
    ///
    /// # Errors
    ///
    /// If the builder fails, for example because of its TLS configuration.
    pub fn new(builder: reqwest::ClientBuilder) -> reqwest::Result<Self> {
        builder.redirect(reqwest::redirect::Policy::none()).build().map(Self)
    }
}

#[cfg(feature = "reqwest")]
impl ApiClient for ReqwestClient {
    async fn send(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, SendError> {
        // The URL may have credentials, which `before_send` has added.
        let received = self.0.execute(request.try_into()?).await;
        let mut received = received.map_err(reqwest::Error::without_url)?;
        let mut body = Vec::new();
        while let Some(chunk) = received.chunk().await.map_err(reqwest::Error::without_url)? {
            if body.len() + chunk.len() > max_bytes {
                return Err(format!("the response has more than {max_bytes} bytes").into());
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = received.status();
        *response.headers_mut() = std::mem::take(received.headers_mut());
        Ok(response)
    }
}
