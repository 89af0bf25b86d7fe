//! Fetches documents from issuers.

use std::error::Error;
use std::time::Duration;

use bytes::BytesMut;
use http::header;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use url::Url;

use super::config_error::ConfigError;
use super::jwk::InvalidKeySet;
use crate::Issuer;
use crate::identifier::is_loopback;
use crate::metadata::{MAX_DOCUMENT, MetadataError};

/// The longest time that a request may take, with its response.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// A document that could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("{}", causes(.0))]
    Http(#[from] reqwest::Error),
    #[error("status {0}")]
    Status(StatusCode),
    #[error("the document is longer than {MAX_DOCUMENT} bytes")]
    TooLong,
    #[error("no response within 10 s")]
    Timeout,
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("the metadata has no {0}")]
    NoEndpoint(&'static str),
    #[error("the {0} of an https issuer is not https")]
    Insecure(&'static str),
    #[error(transparent)]
    KeySet(#[from] InvalidKeySet),
    #[error("the introspection endpoint answered with malformed JSON")]
    Introspection,
}

/// A document, and its `max-age` in seconds.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) bytes: BytesMut,
    pub(super) max_age: Option<u64>,
}

/// An HTTP client that follows no redirects: a redirect could lead to hosts that only this server
/// can reach, and would send client secrets there.
///
/// It uses the system's proxy, but not for the loopback interface: a proxy has another one.
#[derive(Debug, Clone)]
pub(super) struct Fetcher {
    remote: Client,
    loopback: Client,
}

impl Fetcher {
    /// Creates a client.
    ///
    /// # Errors
    ///
    /// If TLS cannot be initialized.
    pub(super) fn new() -> reqwest::Result<Self> {
        let builder = || {
            let client = Client::builder().redirect(Policy::none()).timeout(TIMEOUT);
            client.user_agent(concat!("mrtr-auth/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self { remote: builder().build()?, loopback: builder().no_proxy().build()? })
    }

    /// Checks that an issuer can be fetched from.
    ///
    /// # Errors
    ///
    /// If it is `https`, and the crate was built without TLS.
    pub(super) fn check(issuer: &Issuer) -> Result<(), ConfigError> {
        let is_https = Url::parse(issuer.as_str()).is_ok_and(|url| url.scheme() == "https");
        if is_https && !cfg!(feature = "tls") {
            return Err(ConfigError::new(format!(
                "issuer {issuer} is https, which needs the feature `tls` of mrtr-auth"
            )));
        }
        Ok(())
    }

    fn client(&self, url: &Url) -> &Client {
        if is_loopback(url) { &self.loopback } else { &self.remote }
    }

    /// Fetches a document.
    pub(super) async fn get(&self, url: Url) -> Result<Document, FetchError> {
        read(self.client(&url).get(url)).await
    }

    /// Posts a form, with credentials for basic authentication, and returns the response.
    pub(super) async fn post(
        &self,
        url: Url,
        (user, password): (&str, &str),
        form: String,
    ) -> Result<Document, FetchError> {
        let request = self.client(&url).post(url).basic_auth(user, Some(password));
        read(request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form))
            .await
    }
}

async fn read(request: RequestBuilder) -> Result<Document, FetchError> {
    let request = request.header(header::ACCEPT, "application/json");
    let mut response = request.send().await.map_err(reqwest::Error::without_url)?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    let max_age = max_age(&response);
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        if bytes.len() + chunk.len() > MAX_DOCUMENT {
            return Err(FetchError::TooLong);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Document { bytes, max_age })
}

/// Returns the `max-age` of a response. `no-store` and `no-cache` count as 0.
fn max_age(response: &Response) -> Option<u64> {
    let header = response.headers().get(header::CACHE_CONTROL)?.to_str().ok()?;
    parse_max_age(header)
}

fn parse_max_age(header: &str) -> Option<u64> {
    let header = header.to_ascii_lowercase();
    let mut directives = header.split(',').map(str::trim);
    if directives.clone().any(|directive| matches!(directive, "no-store" | "no-cache")) {
        return Some(0);
    }
    directives.find_map(|directive| directive.strip_prefix("max-age=")?.parse().ok())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_age_is_read_from_cache_control() {
        for (header, expected) in [
            ("public, Max-Age=60", Some(60)),
            ("max-age=60, no-store", Some(0)),
            ("no-cache", Some(0)),
            ("max-age=x", None),
            ("s-maxage=60", None),
            ("", None),
        ] {
            assert_eq!(parse_max_age(header), expected, "{header}");
        }
    }
}
