//! A single-pass scanner for messages in their common form: it validates the text and records the
//! positions of members.
//!
//! The scanner gives up (`None`) on rare forms: `\u` escapes, escapes in keys, exponents, deep
//! nesting, objects with many keys. [`crate::json::validate`] then decides. So the scanner may be
//! incomplete, but it must never accept a text that the validator rejects.

use std::ops::Range;

use crate::json::validate::RESERVED;

/// The position of a member in the text of its object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MemberSpan {
    /// The key, without its quotes.
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The members of a message as raw JSON, and the positions of the members of its `params`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct MessageOutline<'t> {
    pub(crate) jsonrpc: Option<&'t str>,
    pub(crate) id: Option<&'t str>,
    pub(crate) method: Option<&'t str>,
    pub(crate) params: Option<(&'t str, Vec<MemberSpan>)>,
    pub(crate) result: Option<&'t str>,
}

/// Returns what follows a prefix of a text, if the text has it.
pub(crate) type StripPrefix<'p> = &'p dyn for<'t> Fn(&'t [u8]) -> Option<&'t [u8]>;

/// Scans a message: one JSON object without other members than those of [`MessageOutline`].
///
/// `known_meta` returns what follows a `_meta` that was validated before, if the one in `params` is
/// the same. It is then skipped.
pub(crate) fn scan_message<'t>(
    text: &'t str,
    known_meta: StripPrefix<'t>,
) -> Option<MessageOutline<'t>> {
    let mut scanner = Scanner::new(text, Some(known_meta));
    let mut outline = MessageOutline::default();
    let b'{' = scanner.next_byte()? else { return None };
    scanner.object(&mut |scanner, key| {
        scanner.skip_space();
        let start = scanner.position();
        let mut spans = Vec::new();
        if key == "params" {
            let b'{' = scanner.next_byte()? else { return None };
            spans = scanner.member_spans(start)?;
        } else {
            scanner.value(MAX_DEPTH)?;
        }
        let value = text.get(start..scanner.position());
        match key {
            "jsonrpc" => outline.jsonrpc = value,
            "id" => outline.id = value,
            "method" => outline.method = value,
            "result" => outline.result = value,
            "params" => outline.params = value.map(|value| (value, spans)),
            _ => return None,
        }
        Some(())
    })?;
    scanner.end()?;
    Some(outline)
}

/// Scans an object and returns the positions of its members.
pub(crate) fn scan_object(text: &str) -> Option<Vec<MemberSpan>> {
    let mut scanner = Scanner::new(text, None);
    let b'{' = scanner.next_byte()? else { return None };
    let spans = scanner.member_spans(0)?;
    scanner.end()?;
    Some(spans)
}

/// Recursion limit. Deeper texts are rare; the validator's limit is 128.
const MAX_DEPTH: usize = 32;

/// Maximum number of keys of all objects that are open at a time. Each new key is compared with the
/// keys of its object, and the array that holds them is on the stack.
const MAX_KEYS: usize = 48;

/// Initial capacity for the members of `params`.
const TYPICAL_MEMBERS: usize = 6;

/// Maximum number of digits. 64 digits are far below the range of a double, so the validator
/// accepts every number that the scanner accepts.
const MAX_DIGITS: usize = 64;

struct Scanner<'t> {
    text: &'t str,
    /// The unread end of `text`.
    rest: &'t [u8],
    known_meta: Option<StripPrefix<'t>>,
    /// The keys of the open objects, those of the innermost one last.
    keys: [&'t str; MAX_KEYS],
    key_count: usize,
}

/// Every method returns `None` to give up.
impl<'t> Scanner<'t> {
    fn new(text: &'t str, known_meta: Option<StripPrefix<'t>>) -> Self {
        Self { text, rest: text.as_bytes(), known_meta, keys: [""; MAX_KEYS], key_count: 0 }
    }

    fn position(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    /// Accepts the end of the text, after any space.
    fn end(&mut self) -> Option<()> {
        self.skip_space();
        self.rest.is_empty().then_some(())
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Takes the next byte that is not space.
    fn next_byte(&mut self) -> Option<u8> {
        self.skip_space();
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// Scans the rest of an object. The positions of its members are relative to `start`.
    fn member_spans(&mut self, start: usize) -> Option<Vec<MemberSpan>> {
        let mut spans = Vec::with_capacity(TYPICAL_MEMBERS);
        self.object(&mut |scanner, key| {
            let key_start = key.as_ptr().addr() - scanner.text.as_ptr().addr() - start;
            scanner.skip_space();
            let value_start = scanner.position() - start;
            let known_meta = scanner.known_meta.filter(|_| key == "_meta");
            match known_meta.and_then(|strip| strip(scanner.rest)) {
                Some(rest) => scanner.rest = rest,
                None => scanner.value(MAX_DEPTH)?,
            }
            let value = value_start..scanner.position() - start;
            spans.push(MemberSpan { key: key_start..key_start + key.len(), value });
            Some(())
        })?;
        Some(spans)
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.next_byte()? {
            b'"' => {
                self.string()?;
                Some(())
            }
            b'{' => {
                let depth = depth.checked_sub(1)?;
                self.object(&mut |scanner, _| scanner.value(depth))
            }
            b'[' => self.array(depth.checked_sub(1)?),
            b't' => self.literal(b"rue"),
            b'f' => self.literal(b"alse"),
            b'n' => self.literal(b"ull"),
            b'-' => match self.rest {
                [digit @ b'0'..=b'9', rest @ ..] => {
                    self.rest = rest;
                    self.number(*digit)
                }
                _ => None,
            },
            digit @ b'0'..=b'9' => self.number(digit),
            _ => None,
        }
    }

    fn literal(&mut self, rest: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(rest)?;
        Some(())
    }

    /// Scans the rest of a number whose first digit is `first`.
    fn number(&mut self, first: u8) -> Option<()> {
        let mut length = if first == b'0' { 0 } else { self.digits() };
        if let [b'.', rest @ ..] = self.rest {
            self.rest = rest;
            let decimals = self.digits();
            if decimals == 0 {
                return None;
            }
            length += decimals;
        }
        let ends = !matches!(self.rest, [b'0'..=b'9' | b'e' | b'E' | b'.', ..]);
        (ends && length < MAX_DIGITS).then_some(())
    }

    /// Skips digits and returns their number.
    fn digits(&mut self) -> usize {
        let end = self.rest.iter().position(|byte| !byte.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        digits.len()
    }

    /// Scans the rest of a string. Returns true if it contains an escape.
    fn string(&mut self) -> Option<bool> {
        let mut escaped = false;
        loop {
            match self.rest.get(plain_length(self.rest)..)? {
                [b'"', after @ ..] => {
                    self.rest = after;
                    return Some(escaped);
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => {
                    self.rest = after;
                    escaped = true;
                }
                _ => return None,
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.skip_space();
        if let [b']', rest @ ..] = self.rest {
            self.rest = rest;
            return Some(());
        }
        loop {
            self.value(depth)?;
            match self.next_byte()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Scans the rest of an object. `value` scans the value of each key.
    fn object<F>(&mut self, value: &mut F) -> Option<()>
    where
        F: FnMut(&mut Self, &'t str) -> Option<()>,
    {
        self.skip_space();
        if let [b'}', rest @ ..] = self.rest {
            self.rest = rest;
            return Some(());
        }
        let outer_keys = self.key_count;
        loop {
            let b'"' = self.next_byte()? else { return None };
            let start = self.position();
            // A key with an escape could equal another key that is spelled differently.
            let false = self.string()? else { return None };
            let key = self.text.get(start..self.position() - 1)?;
            if key.starts_with(RESERVED)
                || self.keys.get(outer_keys..self.key_count)?.contains(&key)
            {
                return None;
            }
            *self.keys.get_mut(self.key_count)? = key;
            self.key_count += 1;
            let b':' = self.next_byte()? else { return None };
            value(self, key)?;
            match self.next_byte()? {
                b',' => {}
                b'}' => {
                    self.key_count = outer_keys;
                    return Some(());
                }
                _ => return None,
            }
        }
    }
}

/// Length from which strings are scanned in blocks of this size. Most strings are shorter.
const BLOCK: usize = 64;

/// A one in each byte.
const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// Sets the high bit of each byte that ends a string, begins an escape or is a control character.
///
/// Only the lowest set bit is exact: a borrow of the subtraction can set the bit of a later byte.
fn special_bits(bytes: u64) -> u64 {
    // Marks the ASCII bytes that are less than `limit`.
    let less = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes & (ONES << 7);
    let quote = less(bytes ^ (ONES * u64::from(b'"')), 1);
    let backslash = less(bytes ^ (ONES * u64::from(b'\\')), 1);
    quote | backslash | less(bytes, u64::from(b' '))
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\') || byte < b' '
}

/// Returns the length of the longest prefix without a quote, a backslash or a control character.
fn plain_length(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((chunk, after)) = rest.split_first_chunk() {
        let found = special_bits(u64::from_le_bytes(*chunk));
        if found != 0 {
            return text.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = after;
        // A string that is long so far is likely to be longer still. Without an early exit, the
        // fold over a whole block is vectorized by the compiler.
        while text.len() - rest.len() >= BLOCK
            && let Some((block, after)) = rest.split_first_chunk::<BLOCK>()
            && !block.iter().fold(false, |any, byte| any | is_special(*byte))
        {
            rest = after;
        }
    }
    let found = rest.iter().position(|byte| is_special(*byte));
    text.len() - rest.len() + found.unwrap_or(rest.len())
}

/// Returns true if a string can be written between quotes without escapes.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else {
        return !text.iter().any(|byte| is_special(*byte));
    };
    // The last chunk may overlap the one before: some bytes are tested twice.
    let (chunks, _) = text.as_chunks();
    let found = |chunk: &[u8; 8]| special_bits(u64::from_le_bytes(*chunk));
    chunks.iter().fold(found(last), |all, chunk| all | found(chunk)) == 0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::json::validate::Validated;

    fn scan(text: &str) -> Option<MessageOutline<'_>> {
        scan_message(text, &|_| None)
    }

    fn is_valid(text: &str) -> bool {
        serde_json::from_str::<Validated>(text).is_ok()
    }

    #[test]
    fn scan_reports_the_position_of_each_member() {
        let text =
            r#" {"id" : 1, "method":"größe", "params": { "a":[1,-2.5,0,0.25] , "b\u":{} } }"#;
        assert_eq!(scan(text), None, "an escape in a key");
        let text = text.replace("b\\u", "b");
        let outline = scan(&text).unwrap();
        assert_eq!((outline.jsonrpc, outline.id), (None, Some("1")));
        assert_eq!(outline.method, Some("\"größe\""));
        let (params, spans) = outline.params.unwrap();
        assert_eq!(params, r#"{ "a":[1,-2.5,0,0.25] , "b":{} }"#);
        let shown = |span: &MemberSpan| (&params[span.key.clone()], &params[span.value.clone()]);
        let shown: Vec<_> = spans.iter().map(shown).collect();
        assert_eq!(shown, [("a", "[1,-2.5,0,0.25]"), ("b", "{}")]);
        assert_eq!(scan_object(params).unwrap(), spans);
        for text in ["{}", "{\"a\" : true}\n", r#"{"a":"x\n\"y\"\\","b":-0,"c":[ ]}"#] {
            assert!(scan_object(text).is_some() && is_valid(text), "{text}");
        }
        for text in [r#"{"error":1}"#, r#"{"params":[]}"#, r#"{"id":1} {}"#] {
            assert!(scan(text).is_none(), "{text}");
        }
        let outline = scan(r#"{"id":1,"result":{"a":[1] } }"#).unwrap();
        assert_eq!((outline.id, outline.result), (Some("1"), Some(r#"{"a":[1] }"#)));
    }

    #[test]
    fn scan_skips_known_meta() {
        let text = |meta: &str| format!(r#"{{"id":1,"params":{{"_meta": {meta},"a":[]}}}}"#);
        // Not valid JSON: the scanner can only accept it by skipping it.
        let text_of_known = r#"{"a":1,"a":\2}"#;
        let known: StripPrefix<'_> = &|text| text.strip_prefix(text_of_known.as_bytes());
        let whole = text(text_of_known);
        let outline = scan_message(&whole, known).unwrap();
        let (params, spans) = outline.params.unwrap();
        let values: Vec<_> = spans.iter().map(|span| &params[span.value.clone()]).collect();
        assert_eq!(values, [text_of_known, "[]"]);
        assert_eq!(scan(&whole), None);
        assert_eq!(scan_message(&whole.replace("_meta", "meta"), known), None, "under another key");
        assert_eq!(
            scan_message(&text(&text_of_known.replace('2', "3")), known),
            None,
            "different text"
        );
        assert_eq!(scan_message(&whole.replace('2', "2} {"), known), None, "more text after it");
        let other = text(r#"{"a":1}"#);
        assert_eq!(scan_message(&other, known), scan(&other));
    }

    #[test]
    fn plain_length_ends_at_the_first_special_byte() {
        for length in (0..40).chain(120..150) {
            for at in 0..length {
                for (special, stops) in [
                    ("\"", true),
                    ("\\", true),
                    ("\n", true),
                    ("\u{1f}", true),
                    (" ", false),
                    ("é", false),
                    ("!", false),
                    ("#", false),
                ] {
                    let text =
                        ["x".repeat(at), special.to_owned(), "x".repeat(length - at)].concat();
                    let expected = if stops { at } else { text.len() };
                    assert_eq!(plain_length(text.as_bytes()), expected, "{text:?}");
                    assert_eq!(is_plain(text.as_bytes()), !stops, "{text:?}");
                }
            }
        }
    }

    /// Tries every text that is one or two bytes away from a seed.
    #[test]
    fn scanner_accepts_nothing_that_the_validator_rejects() {
        let seeds = [
            r#"{"a":{"b":[1,-2.5e3,0.25,true,null],"c":"x\n\u00e4\"y"},"d":{"a":"","b":{}},"e":[]}"#,
            "{\"params\":{\"\":-0,\"k\":10,\"p\":{\"k\":1,\"k2\":[[]]}}} ",
        ];
        let bytes = b"\"\\{}[]:,.-+eE0129tfnu xk\n\x01";
        let mut checked = 0;
        let mut accepted = 0;
        let mut compare = |text: &[u8]| {
            let Ok(text) = str::from_utf8(text) else { return };
            checked += 1;
            if scan(text).is_some() {
                assert!(is_valid(text), "{text}");
            }
            if let Some(spans) = scan_object(text) {
                accepted += 1;
                assert!(is_valid(text), "{text}");
                let members: Vec<(String, Value)> =
                    serde_json::from_str::<serde_json::Map<String, Value>>(text)
                        .unwrap()
                        .into_iter()
                        .collect();
                let read = |span: &MemberSpan| {
                    let value = serde_json::from_str(&text[span.value.clone()]).unwrap();
                    (text[span.key.clone()].to_owned(), value)
                };
                assert_eq!(spans.iter().map(read).collect::<Vec<_>>(), members, "{text}");
            }
        };
        for seed in seeds.map(str::as_bytes) {
            for at in 0..seed.len() {
                compare(&seed[..at]);
                compare(&[&seed[..at], &seed[at + 1..]].concat());
                for byte in bytes {
                    compare(&[&seed[..at], &[*byte], &seed[at..]].concat());
                    for next in bytes {
                        compare(&[&seed[..at], &[*byte, *next], &seed[at + 1..]].concat());
                    }
                }
            }
        }
        assert!(checked > 50_000 && accepted > 1_000, "{accepted} of {checked}");
    }

    #[test]
    fn scanner_leaves_rare_forms_to_the_validator() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
        let many: Vec<_> = (0..100).map(|n| format!("\"{n}\":0")).collect();
        let many = format!("{{{}}}", many.join(","));
        for text in [&*deep, &many, r#"{"a":"\u00e4"}"#, r#"{"\n":1}"#, r#"{"a":1e3}"#, "[]"] {
            assert!(scan_object(text).is_none() && is_valid(text), "{text}");
        }
        let long = format!("{{\"a\":{}}}", "9".repeat(400));
        assert!(scan_object(&long).is_none() && !is_valid(&long));
    }
}
