//! The credentials of requests.

use std::future::Future;
use std::pin::Pin;

use ::http::{HeaderMap, Method, StatusCode};

use crate::error::BoxError;

/// The future of a method of [`Credentials`].
pub type CredentialFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send + 'a>>;

/// Adds credentials to the requests of an [`HttpClient`](super::HttpClient), and obtains others if
/// the server refuses them (specification: Authorization).
///
/// A client learns of other credentials when it sends them. If they become those of another user,
/// call `Client::clear_cache` before: a cached result of the first one may need no request.
///
/// `mrtr-auth` implements it with OAuth. A source of bearer tokens is shorter to write with
/// [`bearer_from`](super::HttpClientBuilder::bearer_from).
///
/// ```
/// use http::{HeaderMap, HeaderValue, StatusCode, header};
/// use mrtr_transport::http::{Attempt, AttemptResponse, CredentialFuture, Credentials};
///
/// struct ApiKey(HeaderValue);
///
/// impl Credentials for ApiKey {
///     fn headers<'a>(&'a self, _: Attempt<'a>) -> CredentialFuture<'a, HeaderMap> {
///         let headers = HeaderMap::from_iter([(header::AUTHORIZATION, self.0.clone())]);
///         Box::pin(async { Ok(headers) })
///     }
///
///     fn should_repeat<'a>(
///         &'a self,
///         _: Attempt<'a>,
///         response: AttemptResponse<'a>,
///     ) -> CredentialFuture<'a, bool> {
///         Box::pin(async move {
///             match response.status {
///                 StatusCode::UNAUTHORIZED => Err("the API key was revoked".into()),
///                 _ => Ok(false),
///             }
///         })
///     }
/// }
/// ```
pub trait Credentials: Send + Sync + 'static {
    /// Returns the headers that authorize a request. They replace other headers of the same names.
    ///
    /// It is called before each attempt. The timeout of the client does not apply to it, since the
    /// user may have to log in.
    ///
    /// # Errors
    ///
    /// If there are no credentials. The request fails with the error as its source.
    fn headers<'a>(&'a self, attempt: Attempt<'a>) -> CredentialFuture<'a, HeaderMap>;

    /// Returns true if the request should be sent again, because the server has refused these
    /// credentials and there are others.
    ///
    /// It is called with the status and the headers of each response. A request is sent at most 5
    /// times; the last response is not examined.
    ///
    /// # Errors
    ///
    /// If the credentials were refused and there are no others. The request fails with the error
    /// as its source.
    fn should_repeat<'a>(
        &'a self,
        attempt: Attempt<'a>,
        response: AttemptResponse<'a>,
    ) -> CredentialFuture<'a, bool>;
}

/// An attempt to send a request.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Attempt<'a> {
    /// The number of the attempt. The first one is 1.
    pub number: u32,
    /// The method.
    pub method: &'a Method,
    /// The URL.
    pub url: &'a str,
    /// The headers. [`Credentials::headers`] gets them without credentials,
    /// [`Credentials::should_repeat`] with those that were sent.
    pub headers: &'a HeaderMap,
}

impl<'a> Attempt<'a> {
    /// Creates an attempt, for tests of credentials.
    pub fn new(number: u32, method: &'a Method, url: &'a str, headers: &'a HeaderMap) -> Self {
        Self { number, method, url, headers }
    }
}

/// The response to an attempt.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AttemptResponse<'a> {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
}

impl<'a> AttemptResponse<'a> {
    /// Creates a response, for tests of credentials.
    pub fn new(status: StatusCode, headers: &'a HeaderMap) -> Self {
        Self { status, headers }
    }

    /// Returns the value of `WWW-Authenticate`. Several are joined by commas. `None` if there is
    /// none.
    pub fn www_authenticate(&self) -> Option<String> {
        let values = self.headers.get_all(::http::header::WWW_AUTHENTICATE).iter();
        let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}
