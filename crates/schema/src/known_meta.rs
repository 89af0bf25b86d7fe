//! A `_meta` that was parsed before: clients send the same one with every request, except for the
//! number of its progress token.
//!
//! For the HTTP transport; not covered by semantic versioning.

use std::ops::Range;

use crate::json::scan::scan_object;
use crate::meta::key;

/// Maximum number of digits of a progress token that may differ. All such numbers are ids.
const MAX_DIGITS: usize = 15;

/// The text of a `_meta` that was parsed before. The default equals no `_meta`.
#[derive(Debug, Default)]
pub struct KnownMeta {
    text: Box<str>,
    /// The position of the progress token in `text`, if it is a number.
    token: Option<Range<usize>>,
}

impl KnownMeta {
    /// Creates it from `params._meta` of a request that was parsed.
    pub fn new(text: &str) -> Self {
        let members = scan_object(text).unwrap_or_default();
        let is_token = |name: &Range<usize>| text.get(name.clone()) == Some(key::PROGRESS_TOKEN);
        let token = members.into_iter().find(|member| is_token(&member.key));
        let token = token.map(|member| member.value);
        let is_number = |token: &Range<usize>| {
            let text = text.as_bytes().get(token.clone()).unwrap_or_default();
            number_length(text) == Some(text.len())
        };
        Self { text: text.into(), token: token.filter(is_number) }
    }

    /// Compares it with another `_meta`. `None` if more than the number of the token differs.
    pub fn compare(&self, other: &str) -> Option<KnownToken> {
        if *self.text == *other && !other.is_empty() {
            return Some(KnownToken::Same);
        }
        let Range { start, end } = self.token.clone()?;
        if !self.strip_from(other.as_bytes())?.is_empty() {
            return None;
        }
        let end = other.len() - (self.text.len() - end);
        other.get(start..end)?.parse().map(KnownToken::Other).ok()
    }

    /// Returns what follows in `text` if it begins with this `_meta`. The number of the token may
    /// differ.
    pub(crate) fn strip_from<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        if self.text.is_empty() {
            return None;
        }
        let known = self.text.as_bytes();
        if let Some(rest) = text.strip_prefix(known) {
            return Some(rest);
        }
        let Range { start, end } = self.token.clone()?;
        let (before, after) = (known.get(..start)?, known.get(end..)?);
        let rest = text.strip_prefix(before)?;
        rest.get(number_length(rest)?..)?.strip_prefix(after)
    }
}

/// The progress token of a known `_meta`.
#[derive(Debug, PartialEq, Eq)]
pub enum KnownToken {
    /// The same, or none as before.
    Same,
    /// Another number.
    Other(i64),
}

/// Returns the number of digits at the beginning of `text`, if they are a number.
fn number_length(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let has_leading_zero = digits > 1 && text.starts_with(b"0");
    ((1..=MAX_DIGITS).contains(&digits) && !has_leading_zero).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_number_of_the_token_may_differ() {
        let meta = |token: &str| format!(r#"{{"a":1,"progressToken" : {token} ,"b":12}}"#);
        let known = KnownMeta::new(&meta("12"));
        for (token, expected) in [
            ("12", Some(KnownToken::Same)),
            ("7", Some(KnownToken::Other(7))),
            ("0", Some(KnownToken::Other(0))),
            ("999999999999999", Some(KnownToken::Other(999_999_999_999_999))),
            ("9999999999999999", None),
            ("012", None),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("1e3", None),
            ("\"7\"", None),
            ("7,\"c\":0", None),
        ] {
            let other = meta(token);
            assert_eq!(known.compare(&other), expected, "{token}");
            let expected = expected.is_some().then_some(&b", more"[..]);
            assert_eq!(known.strip_from(format!("{other}, more").as_bytes()), expected, "{token}");
        }
        assert_eq!(known.compare(&meta("7").replace("12", "13")), None);
        assert_eq!(known.compare(&meta("7").replace("\"a\"", "\"c\"")), None);
        assert_eq!(known.compare(&format!("{} ", meta("7"))), None);
    }

    #[test]
    fn meta_without_such_a_token_must_be_equal() {
        for text in [
            r#"{"a":1}"#,
            r#"{"progressToken":"1"}"#,
            r#"{"progressToken":-1}"#,
            r#"{"a":{"progressToken":1}}"#,
        ] {
            let known = KnownMeta::new(text);
            assert_eq!(known.compare(text), Some(KnownToken::Same));
            assert_eq!(known.compare(&text.replace('1', "2")), None, "{text}");
        }
        assert_eq!(KnownMeta::default().compare(""), None);
        assert_eq!(KnownMeta::default().strip_from(b"{}"), None);
    }
}
