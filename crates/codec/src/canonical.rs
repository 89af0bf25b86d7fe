//! A canonical form of JSON, in which equal values have equal texts.
//!
//! A client may serialize its request again for each round. Equal arguments still have the same
//! digest, since the canonical form is digested.
//!
//! The form is that of RFC 8785 (JSON Canonicalization Scheme) with one difference: integers stay
//! exact at any size. As doubles, the account numbers `9007199254740993` and `9007199254740992`
//! would be equal.
//!
//! - `1`, `1.0`, `1e0` and `10e-1` are `1`, and `-0` is `0`. An integer with more than
//!   [`MAX_ZEROS`] trailing zeros is written with an exponent, such as `1e22`, regardless of its
//!   form in the input.
//! - Other numbers are rounded to the nearest double, and written as ECMAScript writes it. If the
//!   double is an integer, it is written as an integer.
//! - Members are sorted by the UTF-16 code units of their keys. There is no white space, and
//!   strings have the shortest escapes. Unicode is not normalized.
//!
//! Duplicate keys, lone surrogates, numbers out of range, and nesting deeper than [`MAX_DEPTH`] are
//! rejected.
//!
//! ```
//! use mrtr_codec::canonical::canonicalize;
//!
//! let form = canonicalize(r#"{ "people": 2.0, "day": "Friday" }"#)?;
//! assert_eq!(form, r#"{"day":"Friday","people":2}"#);
//! # Ok::<(), mrtr_codec::canonical::CanonicalError>(())
//! ```

use std::borrow::Cow;
use std::cmp::Ordering;

/// The deepest nesting of arrays and objects. It bounds the stack that a peer's text can use.
pub const MAX_DEPTH: usize = 128;

/// Maximum number of trailing zeros of an integer that are written out. More are written as an
/// exponent, so a short text such as `1e308` has a short canonical form.
pub const MAX_ZEROS: usize = 21;

/// The cause and the position of an error in a text that has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct CanonicalError {
    kind: ErrorKind,
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum ErrorKind {
    #[error("invalid JSON")]
    Syntax,
    #[error("duplicate key")]
    DuplicateKey,
    #[error("lone surrogate")]
    LoneSurrogate,
    #[error("number out of range")]
    NumberOutOfRange,
    #[error("nesting deeper than {MAX_DEPTH} levels")]
    Depth,
}

/// Returns the canonical form of `json`.
///
/// # Errors
///
/// [`CanonicalError`] if `json` is not one JSON value, or if the value has no canonical form.
pub fn canonicalize(json: &str) -> Result<String, CanonicalError> {
    let mut parser = Parser { text: json, at: 0 };
    let mut out = String::with_capacity(json.len());
    parser.skip_whitespace();
    parser.value(&mut out, 0)?;
    parser.skip_whitespace();
    if parser.at == json.len() { Ok(out) } else { Err(parser.error(ErrorKind::Syntax)) }
}

/// A member of the object that is being parsed.
struct Member<'a> {
    key: Cow<'a, str>,
    /// The offset of the key in the input.
    at: usize,
    /// The offset of the member in the output.
    start: usize,
}

impl Member<'_> {
    /// Compares the keys by their UTF-16 code units.
    fn order(&self, other: &Self) -> Ordering {
        self.key.encode_utf16().cmp(other.key.encode_utf16())
    }
}

/// Sorts the members at the end of `out`, and rejects duplicate keys.
fn sort_members(out: &mut String, members: Vec<Member<'_>>) -> Result<(), CanonicalError> {
    let Some(first) = members.first().map(|member| member.start) else { return Ok(()) };
    let written = out.split_off(first);
    // A member ends at the comma before the next one, and the last at the end of the text.
    let ends = members.iter().skip(1).map(|next| next.start - 1).collect::<Vec<_>>();
    let ends = ends.into_iter().chain([first + written.len()]);
    let mut members: Vec<_> = members.into_iter().zip(ends).collect();
    members.sort_by(|(one, _), (other, _)| one.order(other));
    let duplicate = members.windows(2).find_map(|pair| match pair {
        [(one, _), (other, _)] if one.key == other.key => Some(other.at),
        _ => None,
    });
    if let Some(at) = duplicate {
        return Err(CanonicalError { kind: ErrorKind::DuplicateKey, at });
    }
    for (n, (member, end)) in members.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(written.get(member.start - first..end - first).unwrap_or_default());
    }
    Ok(())
}

/// Maximum number of trailing zeros of an accepted integer. The token format sets this bound.
const MAX_EXPONENT: i64 = i32::MAX as i64;

/// A JSON parser that writes the canonical form of each value while it reads it.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, kind: ErrorKind) -> CanonicalError {
        CanonicalError { kind, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes `byte` if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let matches = self.peek() == Some(byte);
        self.at += usize::from(matches);
        matches
    }

    fn expect(&mut self, byte: u8) -> Result<(), CanonicalError> {
        if self.eat(byte) { Ok(()) } else { Err(self.error(ErrorKind::Syntax)) }
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, out: &mut String, depth: usize) -> Result<(), CanonicalError> {
        if depth >= MAX_DEPTH {
            return Err(self.error(ErrorKind::Depth));
        }
        match self.peek() {
            Some(b'{') => self.object(out, depth),
            Some(b'[') => self.array(out, depth),
            Some(b'"') => {
                let text = self.string()?;
                write_string(out, &text);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(out),
            _ => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                let word = ["true", "false", "null"]
                    .into_iter()
                    .find(|word| rest.starts_with(word))
                    .ok_or_else(|| self.error(ErrorKind::Syntax))?;
                self.at += word.len();
                out.push_str(word);
                Ok(())
            }
        }
    }

    fn array(&mut self, out: &mut String, depth: usize) -> Result<(), CanonicalError> {
        self.expect(b'[')?;
        out.push('[');
        self.skip_whitespace();
        if !self.eat(b']') {
            loop {
                self.skip_whitespace();
                self.value(out, depth + 1)?;
                self.skip_whitespace();
                if self.eat(b']') {
                    break;
                }
                self.expect(b',')?;
                out.push(',');
            }
        }
        out.push(']');
        Ok(())
    }

    fn object(&mut self, out: &mut String, depth: usize) -> Result<(), CanonicalError> {
        self.expect(b'{')?;
        out.push('{');
        let mut members: Vec<Member<'a>> = Vec::new();
        self.skip_whitespace();
        if !self.eat(b'}') {
            loop {
                self.skip_whitespace();
                let at = self.at;
                let key = self.string()?;
                self.skip_whitespace();
                self.expect(b':')?;
                self.skip_whitespace();
                if !members.is_empty() {
                    out.push(',');
                }
                let start = out.len();
                write_string(out, &key);
                out.push(':');
                self.value(out, depth + 1)?;
                members.push(Member { key, at, start });
                self.skip_whitespace();
                if self.eat(b'}') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        if !members.is_sorted_by(|one, next| one.order(next).is_lt()) {
            sort_members(out, members)?;
        }
        out.push('}');
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        self.expect(b'"')?;
        let mut unescaped = Cow::Borrowed("");
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain =
                rest.bytes().position(is_special).ok_or_else(|| self.error(ErrorKind::Syntax))?;
            unescaped += rest.get(..plain).unwrap_or_default();
            self.at += plain;
            if self.eat(b'"') {
                return Ok(unescaped);
            }
            self.expect(b'\\')?;
            unescaped.to_mut().push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, CanonicalError> {
        let escaped = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error(ErrorKind::Syntax)),
        };
        self.at += 1;
        Ok(escaped)
    }

    fn unicode_escape(&mut self) -> Result<char, CanonicalError> {
        let lone = self.error(ErrorKind::LoneSurrogate);
        let first = self.code_unit()?;
        if !(0xd800..0xe000).contains(&first) {
            return char::from_u32(first).ok_or(lone);
        }
        if first >= 0xdc00 || !self.eat(b'\\') || self.peek() != Some(b'u') {
            return Err(lone);
        }
        let second = self.code_unit()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(lone)
    }

    /// Parses `u` and four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, CanonicalError> {
        self.expect(b'u')?;
        let unit = self
            .text
            .get(self.at..self.at + 4)
            // `from_str_radix` accepts a sign.
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.error(ErrorKind::Syntax))?;
        self.at += 4;
        Ok(unit)
    }

    fn digits(&mut self) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn number(&mut self, out: &mut String) -> Result<(), CanonicalError> {
        let start = self.at;
        let negative = self.eat(b'-');
        let whole = self.digits();
        if whole.is_empty() || (whole.len() > 1 && whole.starts_with('0')) {
            return Err(self.error(ErrorKind::Syntax));
        }
        let fraction = if self.eat(b'.') { Some(self.digits()) } else { None };
        if fraction == Some("") {
            return Err(self.error(ErrorKind::Syntax));
        }
        let mut exponent = 0;
        if self.eat(b'e') || self.eat(b'E') {
            let minus = !self.eat(b'+') && self.eat(b'-');
            let digits = self.digits();
            if digits.is_empty() {
                return Err(self.error(ErrorKind::Syntax));
            }
            // Larger exponents are clamped: no text has enough digits to compensate for them.
            let size: i64 = digits.parse().unwrap_or(i64::MAX).min(i64::MAX / 2);
            exponent = if minus { -size } else { size };
        }
        let literal = self.text.get(start..self.at).unwrap_or_default();
        write_number(out, negative, (whole, fraction.unwrap_or_default(), exponent), literal)
            .ok_or(CanonicalError { kind: ErrorKind::NumberOutOfRange, at: start })
    }
}

/// Writes `whole.fraction × 10^exponent`. Returns `None` if the number is out of range.
fn write_number(
    out: &mut String,
    negative: bool,
    (whole, fraction, exponent): (&str, &str, i64),
    literal: &str,
) -> Option<()> {
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        out.push('0');
        return Some(());
    }
    let trailing = digits.len() - digits.trim_end_matches('0').len();
    // The number is `significant × 10^scale`. It is an integer if and only if the scale is not
    // negative.
    let scale = exponent - i64::try_from(fraction.len()).ok()? + i64::try_from(trailing).ok()?;
    if scale > MAX_EXPONENT {
        return None;
    }
    if let Ok(zeros) = usize::try_from(scale) {
        if negative {
            out.push('-');
        }
        out.push_str(significant);
        if zeros <= MAX_ZEROS {
            out.extend(std::iter::repeat_n('0', zeros));
        } else {
            out.push('e');
            out.push_str(&zeros.to_string());
        }
        return Some(());
    }
    let double: f64 = literal.parse().ok().filter(|d: &f64| d.is_finite())?;
    let mut buffer = ryu_js::Buffer::new();
    let text = buffer.format_finite(double);
    if double.fract() != 0.0 {
        out.push_str(text);
        return Some(());
    }
    // Rounding made it an integer, possibly zero, so it is written as one. Otherwise the canonical
    // form would not be its own canonical form.
    Parser { text, at: 0 }.number(out).ok()
}

/// Writes a string with the shortest escapes.
fn write_string(out: &mut String, text: &str) {
    use std::fmt::Write as _;
    out.push('"');
    let mut rest = text;
    while let Some((at, special)) = rest.bytes().enumerate().find(|(_, byte)| is_special(*byte)) {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        match special {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            8 => out.push_str("\\b"),
            12 => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            // Writing to a string cannot fail.
            control => _ = write!(out, "\\u{control:04x}"),
        }
    }
    out.push_str(rest);
    out.push('"');
}

/// Returns `true` for the bytes that end a string or have to be escaped in one.
fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon(json: &str) -> String {
        canonicalize(json).unwrap_or_else(|e| format!("! {e}"))
    }

    /// The examples of RFC 8785, sections 3.2.2 and 3.2.3.
    #[test]
    fn rfc_8785_examples() {
        let input = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        // The difference from the RFC: `1E30` is an integer, and written as one.
        assert_eq!(
            canon(input),
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        let sorted = canon(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        );
        let order =
            ["Carriage Return", "One", "Control", "Latin Small", "Euro Sign", "Emoji", "Hebrew"];
        let places: Vec<_> = order.iter().map(|name| sorted.find(name).unwrap()).collect();
        assert!(places.is_sorted(), "{sorted}");
    }

    #[test]
    fn equal_values_have_one_form_and_large_integers_stay_distinct() {
        for (same, form) in [
            (vec!["1", "1.0", "1e0", "10e-1", "0.1e1", "1.000"], "1"),
            (vec!["0", "-0", "0.0", "0e99999999999999999999"], "0"),
            (vec!["-10", "-1e1", "-10.0"], "-10"),
            (vec!["0.5", "5e-1", "0.50"], "0.5"),
            (vec!["9007199254740993"], "9007199254740993"),
            (vec!["9007199254740992", "9007199254740992.0"], "9007199254740992"),
            (vec!["123456789012345678901234567890"], "123456789012345678901234567890"),
            (vec![r#" { "b" : 1 , "a" : [ ] } "#, r#"{"a":[],"b":1.0}"#], r#"{"a":[],"b":1}"#),
            (vec![r#""\u00e9""#, r#""é""#], "\"é\""),
            (vec!["1e-400"], "0"),
            (vec!["0.01e-9223372036854775807", "1e-99999999999999999999"], "0"),
            (vec!["1e21", "1000000000000000000000"], "1000000000000000000000"),
            (vec!["1e22", "10000000000000000000000", "10.0e21"], "1e22"),
            (vec!["-12e400"], "-12e400"),
            (vec!["-1e-400"], "0"),
            (vec!["0.99999999999999999999"], "1"),
            (vec!["123456789012345678901234567890.5"], "123456789012345680000000000000"),
            (vec!["1e2147483647", "10e2147483646", "0.1e2147483648"], "1e2147483647"),
        ] {
            for json in same {
                assert_eq!(canon(json), form, "{json}");
            }
        }
        // Unicode is not normalized: composed and decomposed characters differ.
        assert_ne!(canon("\"\u{e9}\""), canon("\"e\u{301}\""));
    }

    #[test]
    fn invalid_json_and_values_without_canonical_form_are_rejected() {
        for (json, why) in [
            (r#"{"a":1,"\u0061":2}"#, "! duplicate key at byte 7"),
            (r#""\ud800""#, "! lone surrogate at byte 2"),
            (r#""\udc00\ud800""#, "! lone surrogate at byte 2"),
            (r#""\ud800\ud800""#, "! lone surrogate at byte 2"),
            (r#""\ud800\n""#, "! lone surrogate at byte 2"),
            (r#""\ud800n""#, "! lone surrogate at byte 2"),
            (r#""\ud800\u0041""#, "! lone surrogate at byte 2"),
            ("10e2147483647", "! number out of range at byte 0"),
            ("1e2147483648", "! number out of range at byte 0"),
            ("1e99999999999999999999", "! number out of range at byte 0"),
            ("1e", "! invalid JSON at byte 2"),
            ("", "! invalid JSON at byte 0"),
            ("01", "! invalid JSON at byte 2"),
            ("1.", "! invalid JSON at byte 2"),
            ("+1", "! invalid JSON at byte 0"),
            ("{,}", "! invalid JSON at byte 1"),
            ("[1,]", "! invalid JSON at byte 3"),
            ("[1 2]", "! invalid JSON at byte 3"),
            ("\"a\nb\"", "! invalid JSON at byte 2"),
            (r#""\x""#, "! invalid JSON at byte 2"),
            (r#""\u00g0""#, "! invalid JSON at byte 3"),
            ("nul", "! invalid JSON at byte 0"),
            ("1 1", "! invalid JSON at byte 2"),
            ("NaN", "! invalid JSON at byte 0"),
        ] {
            assert_eq!(canon(json), why, "{json}");
        }
        assert!(canon(&"[".repeat(100_000)).contains("nesting deeper than 128 levels"));
        assert!(canon(&"{\"a\":".repeat(100_000)).contains("nesting deeper than 128 levels"));
        assert!(canon(&format!("{}.5", "9".repeat(400))).contains("number out of range"));
    }

    /// A short text of a peer has no long canonical form.
    #[test]
    fn canonical_form_is_at_most_five_times_as_long_as_the_text() {
        let text = format!("[{}1]", "1e308,1e21,".repeat(1000));
        assert!(canon(&text).len() < 5 * text.len());
    }

    #[test]
    fn canonical_form_is_its_own_canonical_form() {
        for json in [
            r#"{"z":[1e-7,1e300,-0.1,"\u2028\ud83d\ude00"],"a":{"b":{},"a":null}}"#,
            "[[],{}]",
            "123456789012345678901234567890.5",
            "1234567890123456789012345678901234567890.5",
            "0.99999999999999999999",
        ] {
            assert_eq!(canon(&canon(json)), canon(json));
        }
    }
}
