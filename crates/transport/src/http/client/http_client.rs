//! The client of an MCP endpoint.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, Method, header};
use bytes::Bytes;
use mrtr_schema::jsonrpc::Response;
use mrtr_schema::request_head::RequestHead;
use tokio::time::timeout;

use super::credentials::{Attempt, AttemptResponse, Credentials};
use super::raw_response::RawResponse;
use super::response::ResponseReader;
use super::server_name::ServerName;
use crate::error::{BoxError, HttpResponseInfo, Kind, TransportError};
use crate::headers;
use crate::traits::{OutgoingRequest, Transport};

/// How often a request is sent, at most. Credentials may have to be replaced because they are
/// missing, expired, for lack of a scope, and with a nonce of the server.
const MAX_ATTEMPTS: u32 = 5;

/// A client of a server's MCP endpoint over HTTP. Clones share connections.
///
/// Redirects are not followed: they would send the request, with its credentials and answers, to a
/// server that was not configured.
///
/// Its [`Debug`](fmt::Debug) form is the URL without user, password and query.
///
/// ```no_run
/// use std::time::Duration;
///
/// use mrtr_schema::jsonrpc::Request;
/// use mrtr_transport::http::HttpClient;
/// use mrtr_transport::{OutgoingRequest, Transport};
///
/// # async fn example(request: Request) -> Result<(), Box<dyn std::error::Error>> {
/// let client = HttpClient::builder("https://booking.example/mcp")
///     .bearer("token")?
///     .timeout(Duration::from_secs(30))
///     .build()?;
/// let response = client.send(OutgoingRequest::new(request)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpClient {
    pub(super) http: reqwest::Client,
    pub(super) name: ServerName,
    pub(super) url: reqwest::Url,
    pub(super) headers: HeaderMap,
    pub(super) credentials: Option<Arc<dyn Credentials>>,
    pub(super) authorization: Arc<Authorization>,
    pub(super) max_response: usize,
    pub(super) timeout: Duration,
}

/// What the timeout of a request covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeoutCovers {
    /// The response and its body.
    Response,
    /// The status and the headers of the response.
    Head,
    Nothing,
}

/// The credentials that were sent last.
#[derive(Default)]
pub(super) struct Authorization {
    /// Their keyed digest; 0 before the first.
    digest: AtomicU64,
    /// How often they have changed.
    changes: AtomicU64,
    key: RandomState,
}

impl Authorization {
    /// Records the `Authorization` header that was sent or, if there is none, the headers that the
    /// credentials have added.
    fn note(&self, sent: Option<&HeaderValue>, added: &HeaderMap) {
        let digest = match sent {
            // Others may differ for each request, such as a DPoP proof.
            Some(authorization) => self.key.hash_one(authorization.as_bytes()),
            None if added.is_empty() => 0,
            None => {
                let added = added.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                let mut added: Vec<_> = added.collect();
                added.sort_unstable();
                self.key.hash_one(added)
            }
        };
        if self.digest.swap(digest, Ordering::Relaxed) != digest {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("url", &self.name.as_str()).finish_non_exhaustive()
    }
}

impl Transport for HttpClient {
    /// Each request has a response of its own.
    fn correlates_logs(&self) -> bool {
        true
    }

    fn authorization_epoch(&self) -> u64 {
        self.authorization.changes()
    }

    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let OutgoingRequest { request, param_headers, long_lived, on_notification, .. } = outgoing;
        let invalid = |message: String| TransportError::new(Kind::InvalidRequest, message);
        let mirrored = RequestHead::from_request(&request)
            .map_err(|error| invalid(format!("invalid request: {error}")))?;
        let mut headers = self.headers.clone();
        headers.extend(headers::request_headers(&request.method, &mirrored));
        headers.extend(headers::param_headers(&param_headers));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(header::ACCEPT, both);
        let body = serde_json::to_vec(&request).map_err(|error| {
            invalid("the request cannot be serialized".to_owned()).with_source(error)
        })?;
        let body = Bytes::from(body);
        let covers = if long_lived { TimeoutCovers::Head } else { TimeoutCovers::Response };
        let (response, info) = self.request(&Method::POST, headers, body, covers).await?;
        let reader = ResponseReader {
            server: &self.name,
            request_id: &request.id,
            max_response: self.max_response,
            long_lived: long_lived.then_some(self.timeout),
            on_notification,
        };
        reader.read(response).await.map_err(|error| error.with_http_response(info))
    }
}

/// Raw requests, for the workspace's own crates. Not covered by semantic versioning.
#[doc(hidden)]
impl HttpClient {
    /// Returns the timeout of one request.
    pub fn request_timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request with the headers and the credentials of this client. Without `long_lived`,
    /// the timeout of the client covers the response and its body.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn exchange(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        long_lived: bool,
    ) -> Result<RawResponse, TransportError> {
        let mut all = self.headers.clone();
        all.extend(headers);
        let covers = if long_lived { TimeoutCovers::Nothing } else { TimeoutCovers::Response };
        let (response, info) = self.request(&method, all, body, covers).await?;
        Ok(RawResponse::new(response, info, self.name.clone(), self.max_response))
    }
}

impl HttpClient {
    /// Sends a request, with credentials if the client has some.
    async fn request(
        &self,
        method: &Method,
        headers: HeaderMap,
        body: Bytes,
        covers: TimeoutCovers,
    ) -> Result<(reqwest::Response, HttpResponseInfo), TransportError> {
        match &self.credentials {
            None => self.request_once(method, headers, body, covers).await,
            Some(credentials) => {
                self.request_with(&**credentials, method, headers, body, covers).await
            }
        }
    }

    async fn request_once(
        &self,
        method: &Method,
        headers: HeaderMap,
        body: Bytes,
        covers: TimeoutCovers,
    ) -> Result<(reqwest::Response, HttpResponseInfo), TransportError> {
        let request = self.http.request(method.clone(), self.url.clone());
        let mut request = request.headers(headers).body(body);
        if covers == TimeoutCovers::Response {
            request = request.timeout(self.timeout);
        }
        let response = match covers {
            TimeoutCovers::Head => timeout(self.timeout, request.send())
                .await
                .map_err(|_| self.name.silent(self.timeout))?,
            TimeoutCovers::Response | TimeoutCovers::Nothing => request.send().await,
        };
        let response = response.map_err(|error| self.name.request_failed(error))?;
        let info = response_info(&response);
        Ok((response, info))
    }

    /// Sends a request with credentials, and repeats it while the server refuses them and there are
    /// others.
    async fn request_with(
        &self,
        credentials: &dyn Credentials,
        method: &Method,
        headers: HeaderMap,
        body: Bytes,
        covers: TimeoutCovers,
    ) -> Result<(reqwest::Response, HttpResponseInfo), TransportError> {
        let mut last: Option<HttpResponseInfo> = None;
        for number in 1.. {
            let attempt = Attempt::new(number, method, self.url.as_str(), &headers);
            let added = credentials.headers(attempt).await.map_err(|error| match last.take() {
                Some(info) => no_credentials(error).after_response(info),
                None => no_credentials(error),
            })?;
            let mut sent = headers.clone();
            for (name, value) in &added {
                sent.insert(name, value.clone());
            }
            let (response, info) =
                self.request_once(method, sent.clone(), body.clone(), covers).await?;
            // Of those that are refused, no result is kept.
            let note = || self.authorization.note(sent.get(header::AUTHORIZATION), &added);
            if number == MAX_ATTEMPTS {
                note();
                return Ok((response, info));
            }
            let attempt = Attempt::new(number, method, self.url.as_str(), &sent);
            let seen = AttemptResponse::new(response.status(), response.headers());
            match credentials.should_repeat(attempt, seen).await {
                Ok(false) => {
                    note();
                    return Ok((response, info));
                }
                Ok(true) => last = Some(info),
                Err(error) => return Err(no_credentials(error).after_response(info)),
            }
        }
        unreachable!("the loop ends at the last attempt")
    }
}

fn no_credentials(error: BoxError) -> TransportError {
    match error.downcast() {
        Ok(error) => *error,
        Err(error) => TransportError::new(Kind::InvalidRequest, "no credentials for the server")
            .with_source(error),
    }
}

/// Extracts what callers may need from a response that carries no JSON-RPC response.
fn response_info(response: &reqwest::Response) -> HttpResponseInfo {
    let headers = response.headers();
    // `Retry-After` may also be a date, which is ignored: it needs a clock that agrees with theirs.
    let retry_after = headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|seconds| seconds.trim().parse().ok());
    HttpResponseInfo {
        status: Some(response.status().as_u16()),
        retry_after: retry_after.map(Duration::from_secs),
        www_authenticate: AttemptResponse::new(response.status(), headers).www_authenticate(),
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderName;

    use super::*;

    #[test]
    fn epoch_depends_on_all_credentials() {
        let authorization = Authorization::default();
        let epoch = |sent: Option<&'static str>, added: &[(&'static str, &'static str)]| {
            let sent = sent.map(HeaderValue::from_static);
            let added: HeaderMap = added
                .iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                })
                .collect();
            authorization.note(sent.as_ref(), &added);
            authorization.changes()
        };
        assert_eq!(epoch(None, &[]), 0);
        let first = epoch(None, &[("x-api-key", "a")]);
        assert!(first != 0 && first == epoch(None, &[("x-api-key", "a")]));
        let other = epoch(None, &[("x-api-key", "b")]);
        // A response to the second may arrive after the first were sent again.
        let again = epoch(None, &[("x-api-key", "a")]);
        assert!(first != other && other != again && again != first);
        let token = epoch(Some("Bearer t"), &[("authorization", "Bearer t"), ("dpop", "1")]);
        assert_eq!(token, epoch(Some("Bearer t"), &[("dpop", "2"), ("authorization", "Bearer t")]));
        assert_ne!(token, epoch(Some("Bearer u"), &[("dpop", "1")]));
    }
}
