//! The redirect URIs of user agents.

use url::Url;

use super::error::LoginError;
use crate::identifier::is_loopback;

/// Checks the redirect URI of a user agent, to which a code is sent: it is `https`, `http` on the
/// loopback interface, or has a scheme of the application (RFC 8252, section 7). Such a scheme is
/// a domain name in reverse order, so it has a period: `com.example.app:/callback`.
///
/// # Errors
///
/// If it is something else, or has a fragment (RFC 6749, section 3.1.2) or credentials.
pub(super) fn check(redirect_uri: &str) -> Result<(), LoginError> {
    let refused =
        |reason| LoginError::RedirectUri { redirect_uri: redirect_uri.to_owned(), reason };
    let url = Url::parse(redirect_uri).map_err(|_| refused("it is not an absolute URL"))?;
    let is_allowed = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url),
        scheme => scheme.contains('.'),
    };
    if !is_allowed {
        return Err(refused(
            "it is neither https, nor http on the loopback interface, nor of a scheme like com.example.app",
        ));
    }
    if url.fragment().is_some() {
        return Err(refused("it has a fragment"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused("it has credentials"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sent_to_the_application_only() {
        for allowed in [
            "https://app.example/callback?x=1",
            "http://127.0.0.1:7/callback",
            "http://[::1]/callback",
            "http://localhost:7/",
            "com.example.app:/callback",
        ] {
            check(allowed).unwrap();
        }
        for refused in [
            "",
            "/callback",
            "http://app.example/callback",
            "http://127.0.0.1.example/callback",
            "https://app.example/callback#x",
            "https://user@app.example/callback",
            "https://:word@app.example/callback",
            "app:/callback",
            "javascript:alert(1)",
            "data:text/html,x",
            "file:///tmp/x",
            "urn:ietf:wg:oauth:2.0:oob",
        ] {
            let error = check(refused).unwrap_err();
            assert!(matches!(error, LoginError::RedirectUri { .. }), "{refused}: {error}");
        }
    }
}
