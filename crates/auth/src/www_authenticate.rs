//! The header `WWW-Authenticate` (RFC 9110, section 11.6.1).

use std::fmt;

/// The longest header that is parsed, in bytes.
const MAX_LENGTH: usize = 8 << 10;

/// A challenge: a demand for credentials of some scheme, with parameters.
///
/// Its [`Display`](fmt::Display) form is the value of a header.
///
/// ```
/// use mrtr_auth::www_authenticate::Challenge;
///
/// let header = r#"Basic realm="old", Bearer error="invalid_token", scope="read write""#;
/// let challenges = Challenge::parse(header)?;
/// let bearer = challenges.iter().find(|challenge| challenge.is("bearer")).unwrap();
/// assert_eq!(bearer.param("scope"), Some("read write"));
/// assert_eq!(bearer.to_string(), r#"Bearer error="invalid_token", scope="read write""#);
/// # Ok::<_, mrtr_auth::www_authenticate::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    scheme: String,
    params: Vec<(String, String)>,
}

/// A header that is not a list of challenges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed WWW-Authenticate header at byte {at}: {rule}")]
pub struct ParseError {
    at: usize,
    rule: &'static str,
}

impl Challenge {
    /// Creates a challenge without parameters. `scheme` must be a token, such as `Bearer`.
    pub fn new(scheme: impl Into<String>) -> Self {
        Self { scheme: scheme.into(), params: Vec::new() }
    }

    /// Adds a parameter. Characters that a header cannot carry are replaced by `?` when it is
    /// written. `name` must be a token.
    #[must_use]
    pub fn with_param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }

    /// Parses the value of a header. Several headers can be joined by commas. A challenge in the
    /// form of one token (`token68`) has no parameters.
    ///
    /// # Errors
    ///
    /// If the header is malformed or longer than 8 KiB, or a challenge has a parameter twice.
    pub fn parse(header: &str) -> Result<Vec<Self>, ParseError> {
        if header.len() > MAX_LENGTH {
            return Err(ParseError { at: MAX_LENGTH, rule: "at most 8 KiB" });
        }
        Parser { text: header, at: 0 }.challenges()
    }

    /// Returns the scheme, as it was written.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns true if this is a challenge of `scheme`. Case does not matter.
    pub fn is(&self, scheme: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(scheme)
    }

    /// Returns the value of a parameter. The case of its name does not matter.
    pub fn param(&self, name: &str) -> Option<&str> {
        let param = self.params.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        param.map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scheme)?;
        for (i, (name, value)) in self.params.iter().enumerate() {
            f.write_str(if i == 0 { " " } else { ", " })?;
            write!(f, "{name}=\"")?;
            for c in value.chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    ' '..='~' => write!(f, "{c}")?,
                    _ => f.write_str("?")?,
                }
            }
            f.write_str("\"")?;
        }
        Ok(())
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn challenges(mut self) -> Result<Vec<Challenge>, ParseError> {
        let mut challenges = Vec::new();
        loop {
            self.skip(|b| matches!(b, b' ' | b'\t' | b','));
            if self.peek().is_none() {
                return Ok(challenges);
            }
            let scheme = self.token()?;
            let mut challenge = Challenge::new(scheme);
            if matches!(self.peek(), Some(b' ')) {
                self.skip(|b| b == b' ');
                if !self.token68() {
                    self.params(&mut challenge)?;
                }
            }
            match self.peek() {
                None | Some(b',') => challenges.push(challenge),
                Some(_) => return Err(self.error("a challenge ends with a comma")),
            }
        }
    }

    /// Reads parameters until the end, or the comma before the next challenge.
    fn params(&mut self, challenge: &mut Challenge) -> Result<(), ParseError> {
        loop {
            let start = self.at;
            self.skip(|b| matches!(b, b' ' | b'\t' | b','));
            let Some((name, value)) = self.param()? else {
                // A scheme, or nothing: the comma before it is read again.
                self.at = start;
                return Ok(());
            };
            if challenge.param(name).is_some() {
                return Err(self.error("a parameter occurs once in a challenge"));
            }
            challenge.params.push((name.to_owned(), value));
            self.skip(|b| matches!(b, b' ' | b'\t'));
            match self.peek() {
                None => return Ok(()),
                Some(b',') => {}
                Some(_) => return Err(self.error("a comma follows a parameter")),
            }
        }
    }

    /// Reads a parameter; `None` if the next token has no value, and so is a scheme.
    fn param(&mut self) -> Result<Option<(&'a str, String)>, ParseError> {
        if self.peek().is_none() {
            return Ok(None);
        }
        let name = self.token()?;
        self.skip(|b| matches!(b, b' ' | b'\t'));
        if self.peek() != Some(b'=') {
            return Ok(None);
        }
        self.at += 1;
        self.skip(|b| matches!(b, b' ' | b'\t'));
        let value =
            if self.peek() == Some(b'"') { self.quoted()? } else { self.token()?.to_owned() };
        Ok(Some((name, value)))
    }

    fn quoted(&mut self) -> Result<String, ParseError> {
        self.at += 1;
        let mut value = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += offset + 1;
                    return Ok(value);
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('\t' | ' '..='~'))) => value.push(c),
                    _ => break,
                },
                c if c.is_ascii_control() && c != '\t' => break,
                c => value.push(c),
            }
        }
        Err(self.error("a quoted value ends with a quotation mark"))
    }

    /// Skips credentials in the form of one token that is followed by the end or a comma.
    fn token68(&mut self) -> bool {
        let is_token68 = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
        let rest = self.rest();
        let bare = rest.trim_start_matches(|c: char| u8::try_from(c).is_ok_and(is_token68));
        let after = bare.trim_start_matches('=');
        let is_one = bare.len() < rest.len() && (after.is_empty() || after.starts_with(','));
        if is_one {
            self.at = self.text.len() - after.len();
        }
        is_one
    }

    fn token(&mut self) -> Result<&'a str, ParseError> {
        let start = self.at;
        self.skip(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        match self.text.get(start..self.at) {
            Some(token) if !token.is_empty() => Ok(token),
            _ => Err(self.error("expected a token")),
        }
    }

    fn skip(&mut self, matches: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&matches) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn error(&self, rule: &'static str) -> ParseError {
        ParseError { at: self.at, rule }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn parsed(header: &str) -> Vec<String> {
        Challenge::parse(header).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_of_challenges_are_parsed() {
        let one = |text: &str| vec![text.to_owned()];
        assert_eq!(parsed(""), Vec::<String>::new());
        assert_eq!(parsed("Bearer"), one("Bearer"));
        assert_eq!(parsed("bearer scope=a"), one(r#"bearer scope="a""#));
        assert_eq!(parsed("Bearer a = \"b\" ,, c=d ,"), one(r#"Bearer a="b", c="d""#));
        assert_eq!(parsed(r#"Bearer a="x\"y, z=\\""#), one(r#"Bearer a="x\"y, z=\\""#));
        assert_eq!(parsed("Negotiate dG9rZW4=="), one("Negotiate"));
        assert_eq!(
            parsed(r#"Basic realm="a", DPoP, Bearer scope="b", algs=c, Negotiate x/y="#),
            [r#"Basic realm="a""#, "DPoP", r#"Bearer scope="b", algs="c""#, "Negotiate"]
        );
    }

    #[test]
    fn parameter_inside_a_quoted_value_is_text() {
        let header = r#"Bearer error_description="scope=\"admin\", x", scope="read""#;
        let challenges = Challenge::parse(header).unwrap();
        assert_eq!(challenges[0].param("Scope"), Some("read"));
        assert_eq!(challenges[0].param("error_description"), Some(r#"scope="admin", x"#));
    }

    #[test]
    fn malformed_headers_are_rejected() {
        for header in [
            r#"Bearer scope="a"#,
            r#"Bearer scope="a\"#,
            r#"Bearer scope="a" error="b""#,
            "Bearer scope=a, SCOPE=b",
            "Bearer scope=, a=b",
            "\"Bearer\"",
            "Bearer a=b c",
            "Bearer \u{e9}=a",
            "Bearer a=\"\u{1}\"",
        ] {
            assert!(Challenge::parse(header).is_err(), "{header}");
        }
        assert!(Challenge::parse(&"a,".repeat(5000)).is_err());
    }

    #[test]
    fn written_challenge_cannot_leave_its_header() {
        let challenge = Challenge::new("Bearer").with_param("a", "x\r\nSet-Cookie: é \"\\");
        assert_eq!(challenge.to_string(), r#"Bearer a="x??Set-Cookie: ? \"\\""#);
    }
}
