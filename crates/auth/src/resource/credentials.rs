//! The access token of a request (OAuth 2.1, section 5.1).

use http::{HeaderMap, HeaderValue, Uri, header};
use url::form_urlencoded;

/// The rule that a token breaks that is not [well-formed](is_well_formed).
pub(super) const MALFORMED: &str = "malformed access token";

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
    pub(super) token: &'a [u8],
}

/// Returns true if the syntax of a token is right (RFC 6750, section 2.1). It reads every byte, so
/// it is for tokens that are not known yet.
pub(super) fn is_well_formed(token: &[u8]) -> bool {
    let length = token.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let (bare, _) = token.split_at(length);
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(b);
    !bare.is_empty() && bare.iter().all(is_token)
}

impl<'a> Credentials<'a> {
    /// Returns the credentials in a header. Other schemes count as no credentials.
    pub(super) fn parse(value: &'a HeaderValue) -> Option<Self> {
        let value = value.as_bytes();
        let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, token) = value.split_at(end);
        let scheme = match scheme {
            _ if scheme.eq_ignore_ascii_case(b"Bearer") => Scheme::Bearer,
            _ if scheme.eq_ignore_ascii_case(b"DPoP") => Scheme::Dpop,
            _ => return None,
        };
        Some(Self { scheme, token: token.trim_ascii() })
    }
}

/// Removes the `Authorization` header of a request, and returns it.
///
/// # Errors
///
/// With the rule that the request breaks.
pub(super) fn take_authorization(
    headers: &mut HeaderMap,
    uri: &Uri,
) -> Result<Option<HeaderValue>, &'static str> {
    // A token in the URL would be logged and sent as a referrer.
    if uri.query().is_some_and(has_token) {
        return Err("access tokens are not accepted in the URL");
    }
    let header::Entry::Occupied(entry) = headers.entry(header::AUTHORIZATION) else {
        return Ok(None);
    };
    if entry.iter().nth(1).is_some() {
        return Err("more than one Authorization header");
    }
    Ok(Some(entry.remove()))
}

fn has_token(query: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "access_token")
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
        let value = take_authorization(&mut headers, &uri.parse().unwrap())?;
        assert!(headers.is_empty(), "the header is removed");
        let read = |found: Credentials<'_>| {
            let token = is_well_formed(found.token).then(|| found.token.to_owned());
            Ok((found.scheme, String::from_utf8(token.ok_or(MALFORMED)?).unwrap()))
        };
        value.as_ref().and_then(Credentials::parse).map(read).transpose()
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
