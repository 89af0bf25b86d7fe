//! One text for equal JSON, so that a request can be recognized after a client wrote it anew.
//!
//! This is RFC 8785 (JSON Canonicalization Scheme) with one difference: numbers that are integers
//! stay exact at any size. As doubles, the account numbers `9007199254740993` and `9007199254740992`
//! would be equal. So:
//!
//! - `1`, `1.0`, `1e0` and `10e-1` are all `1`; `-0` is `0`. An integer with more than [`MAX_ZEROS`]
//!   zeros at its end is written with an exponent: `1e22` is `1e22`, and so is its long form.
//! - Other numbers are written as ECMAScript writes the nearest double; if that is an integer, like one.
//! - Members are sorted by the UTF-16 code units of their keys; no white space; strings with the
//!   shortest escapes. Unicode is not normalized.
//!
//! Refused are duplicate keys, lone surrogates, numbers beyond all bounds, and nesting deeper than
//! [`MAX_DEPTH`].

use std::borrow::Cow;
use std::cmp::Ordering;

/// The deepest nesting that is read.
pub const MAX_DEPTH: usize = 128;
/// How many zeros an integer has at its end before it is written with an exponent. So a short text has no
/// long canonical form.
pub const MAX_ZEROS: usize = 21;

/// Why a text has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {at}")]
pub struct CanonicalError {
    kind: Kind,
    at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Kind {
    #[error("not JSON")]
    Syntax,
    #[error("duplicate key")]
    DuplicateKey,
    #[error("lone surrogate")]
    LoneSurrogate,
    #[error("number beyond all bounds")]
    Number,
    #[error("nested too deeply")]
    Depth,
}

/// Writes `json` in its canonical form.
///
/// # Errors
///
/// If `json` is not one JSON value, or is one that is refused.
pub fn canonicalize(json: &str) -> Result<String, CanonicalError> {
    let mut reader = Reader { text: json, at: 0 };
    let mut out = String::with_capacity(json.len());
    reader.space();
    reader.value(&mut out, 0)?;
    reader.space();
    if reader.at == json.len() { Ok(out) } else { Err(reader.error(Kind::Syntax)) }
}

/// A member of an object.
struct Member<'a> {
    key: Cow<'a, str>,
    /// Where it was read.
    at: usize,
    /// Where it was written.
    start: usize,
}

impl Member<'_> {
    fn order(&self, other: &Self) -> Ordering {
        self.key.encode_utf16().cmp(other.key.encode_utf16())
    }
}

/// Sorts members that stand at the end of `out`.
fn sort(out: &mut String, members: Vec<Member<'_>>) -> Result<(), CanonicalError> {
    let Some(first) = members.first().map(|member| member.start) else { return Ok(()) };
    let written = out.split_off(first);
    let ends = members.iter().skip(1).map(|next| next.start - 1).collect::<Vec<_>>();
    let ends = ends.into_iter().chain([first + written.len()]);
    let mut members: Vec<_> = members.into_iter().zip(ends).collect();
    members.sort_by(|(one, _), (other, _)| one.order(other));
    let twice = members.windows(2).find_map(|pair| match pair {
        [(one, _), (other, _)] if one.key == other.key => Some(other.at),
        _ => None,
    });
    if let Some(at) = twice {
        return Err(CanonicalError { kind: Kind::DuplicateKey, at });
    }
    for (n, (member, end)) in members.into_iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(written.get(member.start - first..end - first).unwrap_or_default());
    }
    Ok(())
}

/// How many zeros an integer may have at its end.
const MAX_ZEROS_READ: i64 = i32::MAX as i64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, kind: Kind) -> CanonicalError {
        CanonicalError { kind, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes `byte` if it is next.
    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8) -> Result<(), CanonicalError> {
        if self.eat(byte) { Ok(()) } else { Err(self.error(Kind::Syntax)) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, out: &mut String, depth: usize) -> Result<(), CanonicalError> {
        if depth >= MAX_DEPTH {
            return Err(self.error(Kind::Depth));
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
                let word =
                    ["true", "false", "null"].into_iter().find(|word| rest.starts_with(word));
                let word = word.ok_or_else(|| self.error(Kind::Syntax))?;
                self.at += word.len();
                out.push_str(word);
                Ok(())
            }
        }
    }

    fn array(&mut self, out: &mut String, depth: usize) -> Result<(), CanonicalError> {
        self.expect(b'[')?;
        out.push('[');
        self.space();
        if !self.eat(b']') {
            loop {
                self.space();
                self.value(out, depth + 1)?;
                self.space();
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
        self.space();
        if !self.eat(b'}') {
            loop {
                self.space();
                let at = self.at;
                let key = self.string()?;
                self.space();
                self.expect(b':')?;
                self.space();
                if !members.is_empty() {
                    out.push(',');
                }
                let start = out.len();
                write_string(out, &key);
                out.push(':');
                self.value(out, depth + 1)?;
                members.push(Member { key, at, start });
                self.space();
                if self.eat(b'}') {
                    break;
                }
                self.expect(b',')?;
            }
        }
        if !members.is_sorted_by(|one, next| one.order(next).is_lt()) {
            sort(out, members)?;
        }
        out.push('}');
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'a, str>, CanonicalError> {
        self.expect(b'"')?;
        let mut unescaped = Cow::Borrowed("");
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest.bytes().position(is_special);
            let plain = plain.ok_or_else(|| self.error(Kind::Syntax))?;
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
            _ => return Err(self.error(Kind::Syntax)),
        };
        self.at += 1;
        Ok(escaped)
    }

    fn unicode_escape(&mut self) -> Result<char, CanonicalError> {
        let lone = self.error(Kind::LoneSurrogate);
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

    /// `u` and four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, CanonicalError> {
        self.expect(b'u')?;
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        let unit = unit.ok_or_else(|| self.error(Kind::Syntax))?;
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
            return Err(self.error(Kind::Syntax));
        }
        let fraction = if self.eat(b'.') { Some(self.digits()) } else { None };
        if fraction == Some("") {
            return Err(self.error(Kind::Syntax));
        }
        let mut exponent = 0;
        if self.eat(b'e') || self.eat(b'E') {
            let minus = !self.eat(b'+') && self.eat(b'-');
            let digits = self.digits();
            if digits.is_empty() {
                return Err(self.error(Kind::Syntax));
            }
            // No text is so long that it could make up for a larger exponent.
            let size: i64 = digits.parse().unwrap_or(i64::MAX).min(i64::MAX / 2);
            exponent = if minus { -size } else { size };
        }
        let literal = self.text.get(start..self.at).unwrap_or_default();
        let beyond = CanonicalError { kind: Kind::Number, at: start };
        write_number(out, negative, (whole, fraction.unwrap_or_default(), exponent), literal)
            .ok_or(beyond)
    }
}

/// Writes `whole.fraction × 10^exponent`; `None` if it is beyond all bounds.
fn write_number(
    out: &mut String,
    negative: bool,
    (whole, fraction, exponent): (&str, &str, i64),
    literal: &str,
) -> Option<()> {
    let all = [whole, fraction].concat();
    let significant = all.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        out.push('0');
        return Some(());
    }
    let trailing = all.len() - all.trim_end_matches('0').len();
    // The number is `significant × 10^scale`, and an integer exactly if the scale is not negative.
    let scale = exponent - i64::try_from(fraction.len()).ok()? + i64::try_from(trailing).ok()?;
    if scale > MAX_ZEROS_READ {
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
    // It is an integer now, zero perhaps, and written like one: so the form is its own form.
    Reader { text, at: 0 }.number(out).ok()
}

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

/// What ends a string, or does not stand in one as it is.
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
    fn rfc_8785() {
        let input = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        // `1E30` is an integer, and so has a form of its own: the one difference to the RFC.
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
    fn equal_values_are_equal_and_account_numbers_are_not() {
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
        // No Unicode normalization: composed and decomposed stay apart.
        assert_ne!(canon("\"\u{e9}\""), canon("\"e\u{301}\""));
    }

    #[test]
    fn what_has_no_canonical_form_is_refused() {
        for (json, why) in [
            (r#"{"a":1,"\u0061":2}"#, "! duplicate key at byte 7"),
            (r#""\ud800""#, "! lone surrogate at byte 2"),
            (r#""\udc00\ud800""#, "! lone surrogate at byte 2"),
            (r#""\ud800\ud800""#, "! lone surrogate at byte 2"),
            (r#""\ud800\n""#, "! lone surrogate at byte 2"),
            (r#""\ud800n""#, "! lone surrogate at byte 2"),
            (r#""\ud800\u0041""#, "! lone surrogate at byte 2"),
            ("10e2147483647", "! number beyond all bounds at byte 0"),
            ("1e2147483648", "! number beyond all bounds at byte 0"),
            ("1e99999999999999999999", "! number beyond all bounds at byte 0"),
            ("1e", "! not JSON at byte 2"),
            ("", "! not JSON at byte 0"),
            ("01", "! not JSON at byte 2"),
            ("1.", "! not JSON at byte 2"),
            ("+1", "! not JSON at byte 0"),
            ("{,}", "! not JSON at byte 1"),
            ("[1,]", "! not JSON at byte 3"),
            ("[1 2]", "! not JSON at byte 3"),
            ("\"a\nb\"", "! not JSON at byte 2"),
            (r#""\x""#, "! not JSON at byte 2"),
            (r#""\u00g0""#, "! not JSON at byte 3"),
            ("nul", "! not JSON at byte 0"),
            ("1 1", "! not JSON at byte 2"),
            ("NaN", "! not JSON at byte 0"),
        ] {
            assert_eq!(canon(json), why, "{json}");
        }
        assert!(canon(&"[".repeat(100_000)).contains("deeply"));
        assert!(canon(&"{\"a\":".repeat(100_000)).contains("deeply"));
        assert!(canon(&format!("{}.5", "9".repeat(400))).contains("bounds"));
    }

    /// What is short to send is not long to hold.
    #[test]
    fn the_canonical_form_is_not_much_longer_than_the_text() {
        let text = format!("[{}1]", "1e308,1e21,".repeat(1000));
        assert!(canon(&text).len() < 5 * text.len());
    }

    #[test]
    fn the_canonical_form_is_its_own() {
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
