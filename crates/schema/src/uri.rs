//! Checks of URIs (RFC 3986), as far as the protocol needs them. Nothing is resolved or fetched.
//!
//! For the sibling crates; not covered by semantic versioning.

use crate::{InvalidValue, peer_text};

/// Checks that `text` is an absolute URI: a scheme, a colon, and only characters that a URI may
/// contain.
///
/// # Errors
///
/// [`InvalidValue`], with the broken rule.
pub fn validate(text: &str) -> Result<(), InvalidValue> {
    let (scheme, rest) = text.split_once(':').ok_or_else(|| InvalidValue::new("no scheme"))?;
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(is_allowed) {
        return Err(InvalidValue::new(format!("invalid scheme {}", peer_text::quote(scheme))));
    }
    validate_characters(rest)
}

/// Checks that `text` contains only characters that a URI may contain, and that each `%` begins a
/// percent-encoded byte.
///
/// # Errors
///
/// [`InvalidValue`], with the offending character.
pub fn validate_characters(text: &str) -> Result<(), InvalidValue> {
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&c);
    if let Some(c) = text.chars().find(|c| !c.is_ascii() || !is_allowed(*c as u8)) {
        return Err(InvalidValue::new(format!("character {c:?} must be percent-encoded")));
    }
    let digits = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count();
    if text.split('%').skip(1).any(|after| digits(after) < 2) {
        return Err(InvalidValue::new("`%` must be followed by two hexadecimal digits"));
    }
    Ok(())
}

/// Checks that `text` is the URL of a web page: `https` or `http`, with a host.
///
/// # Errors
///
/// [`InvalidValue`], with the broken rule.
pub fn validate_web_url(text: &str) -> Result<(), InvalidValue> {
    validate(text)?;
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
        let scheme = peer_text::quote(scheme);
        return Err(InvalidValue::new(format!("scheme {scheme} is neither https nor http")));
    }
    let host = host_of(rest);
    if host.is_empty() || host.starts_with(':') {
        return Err(InvalidValue::new("no host"));
    }
    Ok(())
}

/// Returns a URI without its query and fragment, which may have secret values, for logs.
///
/// ```
/// # use mrtr_schema::uri::without_query;
/// assert_eq!(without_query("patients://search?ssn=1#a"), "patients://search");
/// ```
pub fn without_query(uri: &str) -> &str {
    uri.find(['?', '#']).and_then(|end| uri.get(..end)).unwrap_or(uri)
}

/// Returns the host and port of a web URL, as a client should show them: without user information,
/// which can look like a host. Empty if the URL has no host.
pub fn host(url: &str) -> &str {
    url.split_once(':').map_or("", |(_, rest)| host_of(rest))
}

fn host_of(rest: &str) -> &str {
    let authority = rest.strip_prefix("//").unwrap_or_default();
    // Browsers treat a backslash as a slash.
    let authority = authority.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Returns true if a percent-decoded path can lead out of its root: it has a `.` or `..` segment or
/// a zero byte. Backslashes separate segments, too.
pub fn is_traversal(path: &str) -> bool {
    path.contains('\0') || path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

/// Decodes percent-encoding. Returns `None` if it is malformed or the result is not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    String::from_utf8(decoded_bytes(text, None)?).ok()
}

/// Decodes percent-encoding. A percent sign that encodes nothing stays, and what is not UTF-8
/// becomes U+FFFD.
pub fn percent_decode_lossy(text: &str) -> String {
    let bytes = decoded_bytes(text, Some(b'%')).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Decodes percent-encoding. `malformed` replaces a percent sign that encodes nothing.
fn decoded_bytes(text: &str, malformed: Option<u8>) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let mut byte = *first;
        if byte == b'%' {
            let encoded = match after {
                [high, low, after @ ..] => digit(*high).zip(digit(*low)).map(|of| (of, after)),
                _ => None,
            };
            match encoded {
                Some(((high, low), after)) => {
                    byte = u8::try_from(high * 16 + low).ok()?;
                    rest = after;
                }
                None => byte = malformed?,
            }
        }
        bytes.push(byte);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_decoded() {
        for (text, strict, lossy) in [
            ("a%2Fb%c3%A9", Some("a/bé"), "a/bé"),
            ("%", None, "%"),
            ("%4", None, "%4"),
            ("%+1x", None, "%+1x"),
            ("%%41", None, "%A"),
            ("a%ff%41", None, "a\u{fffd}A"),
        ] {
            assert_eq!(percent_decode(text).as_deref(), strict, "{text}");
            assert_eq!(percent_decode_lossy(text), lossy, "{text}");
        }
    }

    #[test]
    fn host_ignores_user_information_that_looks_like_a_host() {
        for (url, of) in [
            ("https://booking.example/confirm", "booking.example"),
            ("https://booking.example:443@evil.example/", "evil.example"),
            ("https://evil.example?@booking.example/", "evil.example"),
            ("https://evil.example#@booking.example/", "evil.example"),
            ("https://evil.example\\@booking.example/", "evil.example"),
            ("HTTP://a.example:8080", "a.example:8080"),
            ("https://[::1]:3/x", "[::1]:3"),
            ("nonsense", ""),
        ] {
            assert_eq!(host(url), of, "{url}");
        }
    }

    #[test]
    fn validate_accepts_only_absolute_uris() {
        for uri in [
            "https://example.com/a?b=c#d",
            "file:///a%20b",
            "urn:isbn:1",
            "x-y+z.1:",
            "http://[::1]:8080/",
        ] {
            assert_eq!(validate(uri), Ok(()), "{uri}");
        }
        for (text, part) in [
            ("", "no scheme"),
            ("no uri", "no scheme"),
            ("/path", "no scheme"),
            (":x", "invalid scheme \"\""),
            ("1a:x", "invalid scheme \"1a\""),
            ("a b:x", "invalid scheme \"a b\""),
            ("a:b c", "percent-encoded"),
            ("a:é", "percent-encoded"),
            ("a:b\nc", "percent-encoded"),
            ("a:<b>", "percent-encoded"),
            ("a:%", "two hexadecimal digits"),
            ("a:%4", "two hexadecimal digits"),
            ("a:%4g", "two hexadecimal digits"),
        ] {
            let error = validate(text).unwrap_err();
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn validate_web_url_requires_http_and_a_host() {
        for url in ["https://example.com", "HTTP://a.example:80/x", "https://u@h/?q"] {
            assert_eq!(validate_web_url(url), Ok(()), "{url}");
        }
        for url in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https:example.com",
            "https:///path",
            "https://:80/",
            "https://u@/",
            "data:text/html,x",
            "https://a b",
        ] {
            assert!(validate_web_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn is_traversal_finds_dot_segments_and_zero_bytes() {
        for path in ["..", "a/..", "../a", "a/../b", "a\\..\\b", ".", "a/./b", "a\0b"] {
            assert!(is_traversal(path), "{path:?}");
        }
        for path in ["", "a", "a/b", "...", "a..b", "/a", "a//b"] {
            assert!(!is_traversal(path), "{path:?}");
        }
    }
}
