//! The way of requests to the API.

use bytes::Bytes;
use http::{Request, Response};

/// Why there is no response.
pub type SendError = Box<dyn std::error::Error + Send + Sync>;

/// Sends requests to the API. Implemented for `reqwest::Client`, with the feature `reqwest`.
///
/// Timeouts, TLS, proxies and redirects are those of the implementation. Implement it to obtain
/// credentials asynchronously, or to test without a network.
pub trait ApiClient: Send + Sync + 'static {
    /// Sends one request. The extensions of the request have its [`Operation`](crate::Operation).
    /// Dropping the future cancels the request.
    ///
    /// # Errors
    ///
    /// If there is no response, or its body has more than `max_bytes` bytes. The error is logged,
    /// and the model learns only that the API did not answer.
    fn send(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Response<Bytes>, SendError>> + Send;
}

#[cfg(feature = "reqwest")]
impl ApiClient for reqwest::Client {
    async fn send(
        &self,
        request: Request<Bytes>,
        max_bytes: usize,
    ) -> Result<Response<Bytes>, SendError> {
        let mut received = self.execute(request.try_into()?).await?;
        let mut body = Vec::new();
        while let Some(chunk) = received.chunk().await? {
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
