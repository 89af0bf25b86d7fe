//! Whether a text is a URI (RFC 3986), as far as this protocol has to know. Nothing is resolved or fetched.

/// Checks that `text` is an absolute URI: a scheme, a colon, and nothing but the characters of URIs.
///
/// # Errors
///
/// What is wrong with it.
pub fn check(text: &str) -> Result<(), String> {
    let (scheme, rest) = text.split_once(':').ok_or("a URI begins with a scheme and a colon")?;
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.bytes().all(fits) {
        return Err(format!("{scheme:.32?} is no scheme of a URI"));
    }
    check_characters(rest)
}

/// Checks that `text` has nothing but the characters of URIs, and that each `%` has its two digits.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_characters(text: &str) -> Result<(), String> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&c);
    if let Some(c) = text.chars().find(|c| !c.is_ascii() || !fits(*c as u8)) {
        return Err(format!("{c:?} has to be percent-encoded in a URI"));
    }
    let digits = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count();
    if text.split('%').skip(1).any(|after| digits(after) < 2) {
        return Err("a percent sign in a URI stands before two hexadecimal digits".to_owned());
    }
    Ok(())
}

/// Checks that `text` is the URL of a page: `https` or `http`, with a host.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_web(text: &str) -> Result<(), String> {
    check(text)?;
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
        return Err(format!("the scheme {scheme:.32?} is neither https nor http"));
    }
    let host = host_of(rest);
    if host.is_empty() || host.starts_with(':') {
        return Err("the URL has no host".to_owned());
    }
    Ok(())
}

/// The host of a page's URL, with its port, as a person should see it: without a user's name before it, which may look like a
/// host. Empty if there is none.
pub fn host(url: &str) -> &str {
    url.split_once(':').map_or("", |(_, rest)| host_of(rest))
}

fn host_of(rest: &str) -> &str {
    let authority = rest.strip_prefix("//").unwrap_or_default();
    // Browsers take a backslash for a slash.
    let authority = authority.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Whether a path, its percent-encoding undone, leads out of where it begins: a segment of it is `.` or `..`,
/// or it has a zero byte. Backslashes count as slashes.
pub fn is_traversal(path: &str) -> bool {
    path.contains('\0') || path.split(['/', '\\']).any(|segment| matches!(segment, "." | ".."))
}

/// Undoes percent-encoding. `None` if it is malformed, or not UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok().filter(|d| !d.starts_with('+'))?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_what_is_called_and_not_what_looks_like_one() {
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
    fn uris_are_told_from_other_texts() {
        for uri in [
            "https://example.com/a?b=c#d",
            "file:///a%20b",
            "urn:isbn:1",
            "x-y+z.1:",
            "http://[::1]:8080/",
        ] {
            assert_eq!(check(uri), Ok(()), "{uri}");
        }
        for (text, part) in [
            ("", "scheme and a colon"),
            ("no uri", "scheme and a colon"),
            ("/path", "scheme and a colon"),
            (":x", "no scheme"),
            ("1a:x", "no scheme"),
            ("a b:x", "no scheme"),
            ("a:b c", "percent-encoded"),
            ("a:é", "percent-encoded"),
            ("a:b\nc", "percent-encoded"),
            ("a:<b>", "percent-encoded"),
            ("a:%", "two hexadecimal digits"),
            ("a:%4", "two hexadecimal digits"),
            ("a:%4g", "two hexadecimal digits"),
        ] {
            assert!(check(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[test]
    fn pages_are_on_the_web() {
        for url in ["https://example.com", "HTTP://a.example:80/x", "https://u@h/?q"] {
            assert_eq!(check_web(url), Ok(()), "{url}");
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
            assert!(check_web(url).is_err(), "{url}");
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_found() {
        for path in ["..", "a/..", "../a", "a/../b", "a\\..\\b", ".", "a/./b", "a\0b"] {
            assert!(is_traversal(path), "{path:?}");
        }
        for path in ["", "a", "a/b", "...", "a..b", "/a", "a//b"] {
            assert!(!is_traversal(path), "{path:?}");
        }
    }
}
