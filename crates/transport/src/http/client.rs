//! The client's side, on reqwest.

mod bearer;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use mrtr_schema::jsonrpc::{Message, Notification, Request, Response};
use mrtr_schema::request_head::RequestHead;
use reqwest::redirect::Policy;

use self::bearer::Bearer;
pub use self::bearer::Challenge;
use crate::error::{BoxError, Kind, ResponseFacts, TransportError};
use crate::headers;
use crate::sse::Decoder;
use crate::traits::{OutgoingRequest, Transport};

/// A server's MCP endpoint, reached over HTTP. Connections are kept and shared between clones.
///
/// Redirects are not followed: they would send the request, and what is secret in it, to a server
/// that nobody chose.
///
/// Its [`Debug`](fmt::Debug) form has the URL without user, password and query.
#[derive(Clone)]
pub struct HttpClient {
    http: reqwest::Client,
    /// The URL without what may be secret in it: for errors.
    name: String,
    url: reqwest::Url,
    headers: HeaderMap,
    bearer: Option<Arc<Bearer>>,
    max_response: usize,
    timeout: Duration,
}

/// Builds an [`HttpClient`].
#[must_use = "call `build`"]
pub struct HttpClientBuilder {
    url: String,
    headers: HeaderMap,
    bearer: Option<Arc<Bearer>>,
    http: reqwest::ClientBuilder,
    max_response: usize,
    timeout: Duration,
}

impl HttpClient {
    /// Starts a client for the MCP endpoint at `url`.
    pub fn builder(url: impl Into<String>) -> HttpClientBuilder {
        HttpClientBuilder {
            url: url.into(),
            headers: HeaderMap::new(),
            bearer: None,
            http: reqwest::Client::builder(),
            max_response: 16 << 20,
            timeout: Duration::from_mins(2),
        }
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("url", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for HttpClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClientBuilder").finish_non_exhaustive()
    }
}

impl HttpClientBuilder {
    /// A header for every request, such as `Authorization`. Its value is not printed.
    pub fn header(mut self, name: ::http::HeaderName, mut value: HeaderValue) -> Self {
        value.set_sensitive(true);
        self.headers.insert(name, value);
        self
    }

    /// Sends `Authorization: Bearer` with every request.
    ///
    /// # Errors
    ///
    /// If `token` has characters that no header may have.
    pub fn bearer(self, token: &str) -> Result<Self, TransportError> {
        Ok(self.header(header::AUTHORIZATION, bearer::value(token)?))
    }

    /// Sends `Authorization: Bearer` with every request, with tokens that `source` gives: before the first request, and whenever
    /// the server refuses the one in use (401, or 403 with a challenge), which it is told. The request is then sent again, twice
    /// at most. The token is kept until then. It goes before what [`bearer`](Self::bearer) and [`header`](Self::header) say.
    ///
    /// `source` is asked once, however many requests wait for it, and goes on if one of them gives up; requests for which the token
    /// in use is good do not wait. Its time is not the requests': it may have to ask somebody to log in. It must not call
    /// through this client.
    ///
    /// Its error is that of the requests that wait, as the error's source; they are not sent, or not again.
    ///
    /// ```
    /// # use mrtr_transport::http::{Challenge, HttpClient};
    /// # async fn fetch(_: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> { Ok(String::new()) }
    /// # fn example() -> Result<HttpClient, mrtr_transport::TransportError> {
    /// HttpClient::builder("https://booking.example/mcp")
    ///     .bearer_from(async |refused: Option<Challenge>| {
    ///         // Where tokens are to be had, if it is the server that says so.
    ///         fetch(&refused.map(|challenge| challenge.authenticate).unwrap_or_default()).await
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn bearer_from<F, Fut>(mut self, source: F) -> Self
    where
        F: Fn(Option<Challenge>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        self.bearer = Some(Arc::new(Bearer::new(source)));
        self
    }

    /// How connections are made: proxies, roots of trust, a certificate of this client's own. Whatever it says, redirects are not
    /// followed, and how long connections take to make and are kept idle is set here. It should have no time limit for whole responses
    /// or for reading: subscriptions last. The types are those of [`reqwest`](super::reqwest).
    pub fn connections(mut self, http: reqwest::ClientBuilder) -> Self {
        self.http = http;
        self
    }

    /// The longest response in bytes. Default: 16 MiB.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// How long one request may take, its response included. Default: 2 min.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// Makes the client. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If the URL is none, or is `https` and the feature `tls` is off.
    pub fn build(self) -> Result<HttpClient, TransportError> {
        let wrong = |why: String| TransportError::new(Kind::Request, why);
        let url: reqwest::Url = self
            .url
            .parse()
            .map_err(|e| wrong("the server's URL is none".to_owned()).because(e))?;
        match url.scheme() {
            "http" => {}
            "https" if cfg!(feature = "tls") => {}
            "https" => return Err(wrong("https needs the feature `tls` of mrtr".to_owned())),
            other => {
                return Err(wrong(format!("the URL's scheme is {other:?}, not http or https")));
            }
        }
        let http = self
            .http
            .redirect(Policy::none())
            .tcp_nodelay(true)
            // Before servers give idle connections up, ours after 15 s: what is sent on one that is about to be closed is lost.
            .pool_idle_timeout(IDLE)
            .connect_timeout(self.timeout)
            .build()
            .map_err(|e| wrong("the HTTP client cannot be made".to_owned()).because(e))?;
        let name = format!(
            "{}://{}{}",
            url.scheme(),
            url.host_str().unwrap_or_default(),
            url.port().map(|port| format!(":{port}")).unwrap_or_default() + url.path()
        );
        let Self { headers, bearer, max_response, timeout, .. } = self;
        Ok(HttpClient { http, name, url, headers, bearer, max_response, timeout })
    }
}

/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(10);

/// How often a request is sent again with another token: one that has expired may be followed by one that may too little.
const TOKENS: usize = 2;

/// Whether it says that now is not the time: an answer of a gateway's in the server's place, or that there is too much to do.
fn is_not_now(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

/// What may be told of a response.
fn answer(response: &reqwest::Response) -> ResponseFacts {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let retry_after = header(header::RETRY_AFTER).and_then(|seconds| seconds.trim().parse().ok());
    let values = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
    let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
    ResponseFacts {
        status: Some(response.status().as_u16()),
        retry_after: retry_after.map(Duration::from_secs),
        authenticate: (!values.is_empty()).then(|| values.join(", ")),
    }
}

impl Transport for HttpClient {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let OutgoingRequest { request, param_headers, long_lived, heard } = outgoing;
        let mirrored = RequestHead::from_request(&request).map_err(|e| {
            TransportError::new(Kind::Request, format!("the request is malformed: {e}"))
        })?;
        let mut all = self.headers.clone();
        all.extend(headers::mirror(&request.method, &mirrored));
        all.extend(headers::param_headers(&param_headers));
        all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let body = serde_json::to_vec(&request)
            .map_err(|e| TransportError::new(Kind::Request, "the request is no JSON").because(e))?;
        let body = Bytes::from(body);
        let (response, answer) = match &self.bearer {
            None => self.post(all, body, long_lived).await?,
            Some(bearer) => self.post_with(bearer, all, body, long_lived).await?,
        };
        let read = self.read(response, &request, long_lived, heard).await;
        read.map_err(|error| error.answered(answer))
    }
}

impl HttpClient {
    async fn post(
        &self,
        headers: HeaderMap,
        body: Bytes,
        long_lived: bool,
    ) -> Result<(reqwest::Response, ResponseFacts), TransportError> {
        let mut post = self.http.post(self.url.clone()).headers(headers).body(body);
        if !long_lived {
            post = post.timeout(self.timeout);
        }
        let response = post.send().await.map_err(|e| self.failed(e))?;
        let answer = answer(&response);
        Ok((response, answer))
    }

    /// Sends a request with a token, and again with another one if that is refused.
    async fn post_with(
        &self,
        bearer: &Bearer,
        mut headers: HeaderMap,
        body: Bytes,
        long_lived: bool,
    ) -> Result<(reqwest::Response, ResponseFacts), TransportError> {
        let mut token = bearer.token(None).await?;
        for _ in 0..TOKENS {
            headers.insert(header::AUTHORIZATION, token.clone());
            let (response, answer) = self.post(headers.clone(), body.clone(), long_lived).await?;
            let Some(challenge) = Challenge::of(&answer) else { return Ok((response, answer)) };
            let other = bearer.token(Some((token, challenge))).await;
            token = other.map_err(|error| error.after(answer))?;
        }
        headers.insert(header::AUTHORIZATION, token);
        self.post(headers, body, long_lived).await
    }

    fn failed(&self, error: reqwest::Error) -> TransportError {
        let (kind, what) = if error.is_connect() {
            (Kind::Connect, "cannot be reached")
        } else if error.is_timeout() {
            (Kind::Broken, "did not answer in time")
        } else {
            (Kind::Broken, "broke the connection")
        };
        TransportError::new(kind, format!("{} {what}", self.name)).because(error.without_url())
    }

    /// Between us and the server, somebody did not get its answer, or did not let us through.
    fn behind_a_gateway(&self, status: StatusCode) -> TransportError {
        let what = format!("{} is behind a gateway that answered {status}", self.name);
        TransportError::new(Kind::Broken, what)
    }

    fn protocol(&self, what: impl fmt::Display) -> TransportError {
        TransportError::new(Kind::Protocol, format!("{} {what}", self.name))
    }

    async fn read(
        &self,
        mut http: reqwest::Response,
        request: &Request,
        long_lived: bool,
        heard: &(dyn Fn(Notification) + Send + Sync),
    ) -> Result<Response, TransportError> {
        let status = http.status();
        let kind = http.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let kind = kind
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        let mut decoder = match kind.as_str() {
            "application/json" => None,
            "text/event-stream" if status.is_success() => Some(Decoder::new(self.max_response)),
            _ if is_not_now(status) => return Err(self.behind_a_gateway(status)),
            other => {
                let other =
                    if other.is_empty() { "nothing".to_owned() } else { format!("{other:.64?}") };
                return Err(
                    self.protocol(format_args!("answered {status} with {other}, not with JSON"))
                );
            }
        };
        let (mut whole, mut events, mut length) = (Vec::new(), Vec::new(), 0);
        while let Some(chunk) = http.chunk().await.map_err(|e| self.failed(e))? {
            length += chunk.len();
            // A stream of events that stays open is bounded event by event.
            let by_event = long_lived && decoder.is_some();
            if length > self.max_response && !by_event {
                return Err(self.protocol(format_args!(
                    "answered with more than {} bytes",
                    self.max_response
                )));
            }
            let Some(decoder) = &mut decoder else {
                whole.extend_from_slice(&chunk);
                continue;
            };
            decoder
                .push(&chunk, |data| events.push(data))
                .map_err(|e| self.protocol("sent an event that is too long").because(e))?;
            for event in events.drain(..).filter(|event| !event.is_empty()) {
                // The response is the last event, but a server need not close the stream after it.
                if let Some(response) = self.response(&event, request, heard)? {
                    return Ok(response);
                }
            }
        }
        if decoder.is_some() {
            return Err(TransportError::new(
                Kind::Broken,
                format!("{} ended the stream before the response", self.name),
            ));
        }
        // A gateway may write JSON, too, but none of the protocol.
        if is_not_now(status) && !matches!(Message::parse(&whole), Ok(Message::Response(_))) {
            return Err(self.behind_a_gateway(status));
        }
        match self.response(&whole, request, heard)? {
            Some(Response { outcome: Err(why), .. }) if is_not_now(status) => {
                let what = format!("{} does not take the request now: {why}", self.name);
                Err(TransportError::new(Kind::Broken, what).because(why))
            }
            Some(response) => Ok(response),
            None => Err(self.protocol(format_args!("answered {status} with a notification"))),
        }
    }

    /// The response in `message`; `None` if it is a notification.
    fn response(
        &self,
        message: &[u8],
        request: &Request,
        heard: &(dyn Fn(Notification) + Send + Sync),
    ) -> Result<Option<Response>, TransportError> {
        match Message::parse(message) {
            Ok(Message::Response(response)) => {
                let own = response.id.as_ref() == Some(&request.id);
                // An error about a request that could not be read has no id.
                if own || (response.id.is_none() && response.outcome.is_err()) {
                    Ok(Some(response))
                } else {
                    Err(self.protocol("answered another request than the one it was asked"))
                }
            }
            Ok(Message::Notification(notification)) => {
                heard(notification);
                Ok(None)
            }
            Ok(Message::Request(_)) => {
                Err(self.protocol("sent a request; servers ask through results"))
            }
            Err(error) => Err(self.protocol("sent a malformed message").because(error)),
        }
    }
}
