//! The access token of a request (OAuth 2.1, section 5.1).

use http::{HeaderMap, Uri, header};
use url::form_urlencoded;

/// How a token is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// RFC 6750.
    Bearer,
    /// RFC 9449.
    Dpop,
}

impl Scheme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bearer => "Bearer",
            Self::Dpop => "DPoP",
        }
    }
}

/// A token, not verified, and not checked for its syntax.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Credentials<'a> {
    pub(super) scheme: Scheme,
    pub(super) token: &'a str,
}

impl Credentials<'_> {
    /// Checks the syntax of the token (RFC 6750, section 2.1). It reads every byte, so it is for
    /// tokens that are not known yet.
    ///
    /// # Errors
    ///
    /// With the rule that the token breaks.
    pub(super) fn check(self) -> Result<(), &'static str> {
        let bare = self.token.trim_end_matches('=');
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
        if bare.is_empty() || !bare.bytes().all(is_token) {
            return Err("malformed access token");
        }
        Ok(())
    }
}

/// Returns the token of a request, if it has one. Other schemes count as no token.
///
/// # Errors
///
/// With the rule that the request breaks.
pub(super) fn credentials<'a>(
    headers: &'a HeaderMap,
    uri: &Uri,
) -> Result<Option<Credentials<'a>>, &'static str> {
    // A token in the URL would be logged and sent as a referrer.
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    if query.into_iter().any(|(name, _)| name == "access_token") {
        return Err("access tokens are not accepted in the URL");
    }
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("more than one Authorization header");
    }
    let value = value.to_str().map_err(|_| "malformed Authorization header")?;
    let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
    let scheme = match scheme {
        _ if scheme.eq_ignore_ascii_case("Bearer") => Scheme::Bearer,
        _ if scheme.eq_ignore_ascii_case("DPoP") => Scheme::Dpop,
        _ => return Ok(None),
    };
    Ok(Some(Credentials { scheme, token: token.trim_matches(' ') }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(values: &[&str], uri: &str) -> Result<Option<(Scheme, String)>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, value.parse().unwrap());
        }
        let credentials = credentials(&headers, &uri.parse().unwrap())?;
        credentials.map(Credentials::check).transpose()?;
        Ok(credentials.map(|found| (found.scheme, found.token.to_owned())))
    }

    #[test]
    fn token_is_read_from_the_header() {
        for (value, scheme, token) in [
            ("Bearer a.b-c", Scheme::Bearer, "a.b-c"),
            ("bearer  a", Scheme::Bearer, "a"),
            ("BEARER a~+/==", Scheme::Bearer, "a~+/=="),
            ("DPoP a", Scheme::Dpop, "a"),
        ] {
            assert_eq!(read(&[value], "/mcp"), Ok(Some((scheme, token.to_owned()))), "{value}");
        }
        assert_eq!(read(&[], "/mcp"), Ok(None));
        assert_eq!(read(&["Basic a"], "/mcp"), Ok(None));
    }

    #[test]
    fn malformed_credentials_are_rejected() {
        for values in [
            ["Bearer"].as_slice(),
            &["Bearer "],
            &["Bearer ="],
            &["Bearer a b"],
            &["Bearer a, Bearer b"],
            &["Bearer \"a\""],
            &["Bearer é"],
            &["Bearer a", "Bearer a"],
            &["Basic a", "Bearer a"],
        ] {
            assert!(read(values, "/mcp").is_err(), "{values:?}");
        }
    }

    #[test]
    fn token_in_the_url_is_rejected() {
        for uri in ["/mcp?access_token=a", "/mcp?x=1&access%5Ftoken", "https://a/?access_token"] {
            assert!(read(&[], uri).is_err(), "{uri}");
            assert!(read(&["Bearer a"], uri).is_err(), "{uri}");
        }
        assert_eq!(read(&[], "/mcp?x=access_token"), Ok(None));
    }
}
