//! The metadata of an issuer (RFC 8414; specification: authorization server discovery).

use url::Url;

use super::fetch::{self, FetchError};
use crate::Issuer;
use crate::fetch::Fetcher;
use crate::metadata::ServerMetadata;

/// Fetches the metadata of an issuer from the first of its places that has it.
pub(super) async fn discover(
    issuer: &Issuer,
    fetcher: &Fetcher,
) -> Result<ServerMetadata, FetchError> {
    let mut failure = FetchError::NoEndpoint("URL");
    for url in issuer.metadata_urls() {
        let document = match fetch::get(fetcher, url).await {
            Ok(document) => document,
            // The metadata may be at the next place. A gateway may answer with a redirect to a login
            // page, or with an error of its own, at places that do not exist.
            Err(error @ FetchError::Status(_)) => {
                failure = error;
                continue;
            }
            Err(error) => return Err(error),
        };
        match ServerMetadata::parse(&document.bytes, issuer) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => failure = error.into(),
        }
    }
    Err(failure)
}

/// Returns an endpoint of the metadata, which is `https` unless the issuer itself is not.
pub(super) fn endpoint(
    issuer: &Issuer,
    name: &'static str,
    url: Option<&str>,
) -> Result<Url, FetchError> {
    let url = url.and_then(|url| Url::parse(url).ok()).ok_or(FetchError::NoEndpoint(name))?;
    if issuer.as_str().starts_with("http:") || url.scheme() == "https" {
        Ok(url)
    } else {
        Err(FetchError::Insecure(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_an_https_issuer_are_not_on_the_loopback_interface() {
        let remote = Issuer::new("https://login.example").unwrap();
        let local = Issuer::new("http://127.0.0.1:1").unwrap();
        let [plain, tls] = ["http://127.0.0.1/keys", "https://keys.example/"].map(Some);
        assert!(matches!(endpoint(&remote, "jwks_uri", plain), Err(FetchError::Insecure(_))));
        assert!(endpoint(&remote, "jwks_uri", tls).is_ok());
        assert!(endpoint(&local, "jwks_uri", plain).is_ok());
        assert!(matches!(endpoint(&remote, "jwks_uri", None), Err(FetchError::NoEndpoint(_))));
    }
}
