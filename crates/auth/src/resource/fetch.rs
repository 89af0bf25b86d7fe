//! Fetches documents from issuers.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use url::Url;

use super::config_error::ConfigError;
use super::jwk::InvalidKeySet;
use crate::Issuer;
use crate::fetch::{Fetcher, NoResponse};
use crate::metadata::MetadataError;

/// A document that could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    #[error("status {0}")]
    Status(StatusCode),
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
    pub(super) bytes: Vec<u8>,
    pub(super) max_age: Option<u64>,
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

/// Fetches a document.
pub(super) async fn get(fetcher: &Fetcher, url: Url) -> Result<Document, FetchError> {
    document(fetcher.send(Method::GET, url, accept_json(), "").await?)
}

/// Posts a form, with credentials for basic authentication, and returns the response.
pub(super) async fn post(
    fetcher: &Fetcher,
    url: Url,
    (user, password): (&str, &str),
    form: String,
) -> Result<Document, FetchError> {
    let mut headers = accept_json();
    let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(header::CONTENT_TYPE, form_type);
    let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
    // Base64 is always a header value.
    if let Ok(mut value) = HeaderValue::try_from(format!("Basic {credentials}")) {
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    document(fetcher.send(Method::POST, url, headers, form).await?)
}

fn accept_json() -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))])
}

fn document(response: Response<Vec<u8>>) -> Result<Document, FetchError> {
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status()));
    }
    Ok(Document { max_age: max_age(response.headers()), bytes: response.into_body() })
}

/// Returns the `max-age` of a response. `no-store` and `no-cache` count as 0.
fn max_age(headers: &HeaderMap) -> Option<u64> {
    let header = headers.get(header::CACHE_CONTROL)?.to_str().ok()?;
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
