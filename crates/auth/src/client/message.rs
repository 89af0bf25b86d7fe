//! HTTP requests and responses, as values.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use url::{Url, form_urlencoded};

/// A request that is to be sent. Redirects must not be followed.
///
/// Its [`Debug`](fmt::Debug) form is the method and the URL without its query.
#[derive(Clone)]
pub(crate) struct HttpRequest {
    /// The method.
    pub(crate) method: Method,
    /// The URL.
    pub(crate) url: Url,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn get(url: Url) -> Self {
        let headers =
            HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
        Self { method: Method::GET, url, headers, body: Vec::new() }
    }

    fn post(url: Url, content_type: &'static str, body: Vec<u8>) -> Self {
        let mut request = Self { method: Method::POST, body, ..Self::get(url) };
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        request
    }

    pub(crate) fn post_json(url: Url, body: &impl Serialize) -> Self {
        // The bodies are structs of strings, which can always be serialized.
        Self::post(url, "application/json", serde_json::to_vec(body).unwrap_or_default())
    }

    pub(crate) fn post_form(url: Url, form: &[(&'static str, String)]) -> Self {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        Self::post(url, "application/x-www-form-urlencoded", body.into_bytes())
    }

    /// Adds a header whose value is not printed. A value that a header cannot carry is left out.
    pub(crate) fn with_secret_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(true);
            self.headers.insert(name, value);
        }
        self
    }
}

impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        url.set_query(None);
        write!(f, "{} {url}", self.method)
    }
}

/// A response. Its [`Debug`](fmt::Debug) form is the status.
#[derive(Clone)]
pub(crate) struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl HttpResponse {
    /// Creates a response. The body should be bounded by
    /// [`MAX_DOCUMENT`](crate::metadata::MAX_DOCUMENT).
    pub(crate) fn new(status: StatusCode, headers: HeaderMap, body: Vec<u8>) -> Self {
        Self { status, headers, body }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the code of an OAuth error (RFC 6749, section 5.2; RFC 7591, section 3.2.2), in the
    /// characters of such codes, cut to 64. `None` if the body is not one.
    pub(crate) fn error_code(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct ErrorResponse {
            error: String,
        }
        let ErrorResponse { error } = serde_json::from_slice(&self.body).ok()?;
        let is_code = |c: &char| c.is_ascii_alphanumeric() || "_-.".contains(*c);
        Some(error.chars().filter(is_code).take(64).collect())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)
    }
}
