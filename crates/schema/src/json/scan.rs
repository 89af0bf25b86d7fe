//! One pass over a message as messages are most often written: it vouches for the text, and notes where things stand.

use std::ops::Range;

/// Where a member stands in the text of its object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    /// Between its quotes.
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// A request's members, as they are written, and where those of its `params` stand.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outline<'t> {
    pub(crate) jsonrpc: Option<&'t str>,
    pub(crate) id: Option<&'t str>,
    pub(crate) method: Option<&'t str>,
    pub(crate) params: Option<(&'t str, Vec<Span>)>,
}

/// The outline of `text`, if that is one JSON object that [`crate::json::validate`] would let through, and has no other members. `None`
/// says nothing: then that check decides. So this pass need not know what is rare: `\u` escapes, escapes in keys,
/// exponents, deep nesting, objects with many keys. `known` is an object that was vouched for; where the `_meta` of `params` begins
/// with it, it is not gone over again.
pub(crate) fn of_request<'t>(text: &'t str, known: &'t str) -> Option<Outline<'t>> {
    let mut scan = Scan::new(text, known);
    let mut outline = Outline::default();
    let b'{' = scan.next()? else { return None };
    scan.object(&mut |scan, key| {
        scan.skip_space();
        let start = scan.at();
        let mut spans = Vec::new();
        if key == "params" {
            let b'{' = scan.next()? else { return None };
            spans = scan.spans(start)?;
        } else {
            scan.value(DEEPEST)?;
        }
        let value = text.get(start..scan.at());
        match key {
            "jsonrpc" => outline.jsonrpc = value,
            "id" => outline.id = value,
            "method" => outline.method = value,
            "params" => outline.params = value.map(|value| (value, spans)),
            _ => return None,
        }
        Some(())
    })?;
    scan.end()?;
    Some(outline)
}

/// Where the members of the object `text` stand in it; `None` as above.
pub(crate) fn of_params(text: &str) -> Option<Vec<Span>> {
    let mut scan = Scan::new(text, "");
    let b'{' = scan.next()? else { return None };
    let spans = scan.spans(0)?;
    scan.end()?;
    Some(spans)
}

const DEEPEST: usize = 32;
/// Of all objects that the scan is in at a time.
const MOST_KEYS: usize = 48;
const USUAL_MEMBERS: usize = 6;
/// A number so long is far from what a double can hold.
const LONGEST_NUMBER: usize = 64;

struct Scan<'t> {
    text: &'t str,
    rest: &'t [u8],
    /// An object, or nothing.
    known: &'t [u8],
    /// Those of the objects that the scan is in, the innermost last.
    keys: [&'t str; MOST_KEYS],
    depth: usize,
}

/// `None` gives up.
impl<'t> Scan<'t> {
    fn new(text: &'t str, known: &'t str) -> Self {
        let (rest, known) = (text.as_bytes(), known.as_bytes());
        Self { text, rest, known, keys: [""; MOST_KEYS], depth: 0 }
    }

    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn end(&mut self) -> Option<()> {
        self.skip_space();
        self.rest.is_empty().then_some(())
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// The next byte after space.
    fn next(&mut self) -> Option<u8> {
        self.skip_space();
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// The rest of an object: where its members stand, counted from `start`.
    fn spans(&mut self, start: usize) -> Option<Vec<Span>> {
        let mut spans = Vec::with_capacity(USUAL_MEMBERS);
        self.object(&mut |scan, key| {
            let from = key.as_ptr().addr() - scan.text.as_ptr().addr() - start;
            scan.skip_space();
            let begin = scan.at() - start;
            match scan.rest.strip_prefix(scan.known) {
                Some(rest) if key == "_meta" && !scan.known.is_empty() => scan.rest = rest,
                _ => scan.value(DEEPEST)?,
            }
            let value = begin..scan.at() - start;
            spans.push(Span { key: from..from + key.len(), value });
            Some(())
        })?;
        Some(spans)
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'{' => {
                let depth = depth.checked_sub(1)?;
                self.object(&mut |scan, _| scan.value(depth))
            }
            b'[' => self.array(depth.checked_sub(1)?),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
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

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(rest)?;
        Some(())
    }

    /// The rest of a number that begins with `first`.
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
        (ends && length < LONGEST_NUMBER).then_some(())
    }

    /// How many there were.
    fn digits(&mut self) -> usize {
        let end = self.rest.iter().position(|byte| !byte.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        digits.len()
    }

    /// The rest of a string; whether anything in it is escaped.
    fn string(&mut self) -> Option<bool> {
        let mut escaped = false;
        loop {
            match self.rest.get(plain(self.rest)..)? {
                [b'"', after @ ..] => {
                    self.rest = after;
                    return Some(escaped);
                }
                [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => {
                    (self.rest, escaped) = (after, true);
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
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// The rest of an object; `value` goes over the value of a key.
    fn object<F>(&mut self, value: &mut F) -> Option<()>
    where
        F: FnMut(&mut Self, &'t str) -> Option<()>,
    {
        self.skip_space();
        if let [b'}', rest @ ..] = self.rest {
            self.rest = rest;
            return Some(());
        }
        let outer = self.depth;
        loop {
            // A key that is escaped could be another, written otherwise.
            let b'"' = self.next()? else { return None };
            let start = self.at();
            let false = self.string()? else { return None };
            let key = self.text.get(start..self.at() - 1)?;
            if self.keys.get(outer..self.depth)?.contains(&key) {
                return None;
            }
            *self.keys.get_mut(self.depth)? = key;
            self.depth += 1;
            let b':' = self.next()? else { return None };
            value(self, key)?;
            match self.next()? {
                b',' => {}
                b'}' => {
                    self.depth = outer;
                    return Some(());
                }
                _ => return None,
            }
        }
    }
}

/// Few strings are longer.
const LONG: usize = 64;

const EACH: u64 = u64::from_ne_bytes([1; 8]);

/// A high bit for each byte of a string that ends it, begins an escape or must not be there. Beyond the first, it may be wrong.
fn special(bytes: u64) -> u64 {
    // Bytes that are less than `than`, of those that are ASCII.
    let less = |bytes: u64, than: u64| bytes.wrapping_sub(EACH * than) & !bytes & (EACH << 7);
    let quote = less(bytes ^ (EACH * u64::from(b'"')), 1);
    let backslash = less(bytes ^ (EACH * u64::from(b'\\')), 1);
    quote | backslash | less(bytes, u64::from(b' '))
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\') || byte < b' '
}

/// How many bytes of a string there are before its end, an escape, or what must not be there.
fn plain(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((chunk, after)) = rest.split_first_chunk() {
        let found = special(u64::from_le_bytes(*chunk));
        if found != 0 {
            return text.len() - rest.len() + found.trailing_zeros() as usize / 8;
        }
        rest = after;
        // What was long so far may go on: compilers look at many bytes at once, where there is no early end.
        while text.len() - rest.len() >= LONG
            && let Some((block, after)) = rest.split_first_chunk::<LONG>()
            && !block.iter().fold(false, |any, byte| any | is_special(*byte))
        {
            rest = after;
        }
    }
    let found = rest.iter().position(|byte| is_special(*byte));
    text.len() - rest.len() + found.unwrap_or(rest.len())
}

/// Whether a string is written as it is.
pub(crate) fn is_plain(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else {
        return !text.iter().any(|byte| is_special(*byte));
    };
    // The last ones may be looked at twice.
    let (chunks, _) = text.as_chunks();
    let found = |chunk: &[u8; 8]| special(u64::from_le_bytes(*chunk));
    chunks.iter().fold(found(last), |all, chunk| all | found(chunk)) == 0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::json::validate::Strict;

    fn whole(text: &str) -> bool {
        serde_json::from_str::<Strict>(text).is_ok()
    }

    #[test]
    fn it_says_where_things_stand() {
        let text =
            r#" {"id" : 1, "method":"größe", "params": { "a":[1,-2.5,0,0.25] , "b\u":{} } }"#;
        assert_eq!(of_request(text, ""), None, "an escape in a key");
        let text = text.replace("b\\u", "b");
        let outline = of_request(&text, "").unwrap();
        assert_eq!((outline.jsonrpc, outline.id), (None, Some("1")));
        assert_eq!(outline.method, Some("\"größe\""));
        let (params, spans) = outline.params.unwrap();
        assert_eq!(params, r#"{ "a":[1,-2.5,0,0.25] , "b":{} }"#);
        let shown = |span: &Span| (&params[span.key.clone()], &params[span.value.clone()]);
        let shown: Vec<_> = spans.iter().map(shown).collect();
        assert_eq!(shown, [("a", "[1,-2.5,0,0.25]"), ("b", "{}")]);
        assert_eq!(of_params(params).unwrap(), spans);
        for text in ["{}", "{\"a\" : true}\n", r#"{"a":"x\n\"y\"\\","b":-0,"c":[ ]}"#] {
            assert!(of_params(text).is_some() && whole(text), "{text}");
        }
        for text in [r#"{"result":1}"#, r#"{"params":[]}"#, r#"{"id":1} {}"#] {
            assert!(of_request(text, "").is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_known_is_not_gone_over_again() {
        let text = |meta: &str| format!(r#"{{"id":1,"params":{{"_meta": {meta},"a":[]}}}}"#);
        // Nobody else would vouch for this.
        let known = r#"{"a":1,"a":\2}"#;
        let whole = text(known);
        let outline = of_request(&whole, known).unwrap();
        let (params, spans) = outline.params.unwrap();
        let values: Vec<_> = spans.iter().map(|span| &params[span.value.clone()]).collect();
        assert_eq!(values, [known, "[]"]);
        assert_eq!(of_request(&whole, ""), None);
        assert_eq!(of_request(&whole.replace("_meta", "meta"), known), None, "elsewhere");
        assert_eq!(of_request(&text(&known.replace('2', "3")), known), None, "another");
        assert_eq!(of_request(&whole.replace('2', "2} {"), known), None, "it goes on");
        let other = text(r#"{"a":1}"#);
        assert_eq!(of_request(&other, known), of_request(&other, ""));
    }

    #[test]
    fn a_string_ends_where_it_ends() {
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
                    assert_eq!(plain(text.as_bytes()), expected, "{text:?}");
                    assert_eq!(is_plain(text.as_bytes()), !stops, "{text:?}");
                }
            }
        }
    }

    /// What it vouches for, the whole check lets through: on all that can be made by changing a message a little.
    #[test]
    fn it_vouches_for_nothing_that_the_whole_check_refuses() {
        let seeds = [
            r#"{"a":{"b":[1,-2.5e3,0.25,true,null],"c":"x\n\u00e4\"y"},"d":{"a":"","b":{}},"e":[]}"#,
            "{\"params\":{\"\":-0,\"k\":10,\"p\":{\"k\":1,\"k2\":[[]]}}} ",
        ];
        let bytes = b"\"\\{}[]:,.-+eE0129tfnu xk\n\x01";
        let (mut checked, mut vouched) = (0, 0);
        let mut hold = |text: &[u8]| {
            let Ok(text) = str::from_utf8(text) else { return };
            checked += 1;
            if of_request(text, "").is_some() {
                assert!(whole(text), "{text}");
            }
            if let Some(spans) = of_params(text) {
                vouched += 1;
                assert!(whole(text), "{text}");
                let members: Vec<(String, Value)> =
                    serde_json::from_str::<crate::Object>(text).unwrap().into_iter().collect();
                let read = |span: &Span| {
                    let value = serde_json::from_str(&text[span.value.clone()]).unwrap();
                    (text[span.key.clone()].to_owned(), value)
                };
                assert_eq!(spans.iter().map(read).collect::<Vec<_>>(), members, "{text}");
            }
        };
        for seed in seeds.map(str::as_bytes) {
            for at in 0..seed.len() {
                hold(&seed[..at]);
                hold(&[&seed[..at], &seed[at + 1..]].concat());
                for byte in bytes {
                    hold(&[&seed[..at], &[*byte], &seed[at..]].concat());
                    for next in bytes {
                        hold(&[&seed[..at], &[*byte, *next], &seed[at + 1..]].concat());
                    }
                }
            }
        }
        assert!(checked > 50_000 && vouched > 1_000, "{vouched} of {checked}");
    }

    #[test]
    fn what_is_rare_it_leaves_to_the_whole_check() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
        let many: Vec<_> = (0..100).map(|n| format!("\"{n}\":0")).collect();
        let many = format!("{{{}}}", many.join(","));
        for text in [&*deep, &many, r#"{"a":"\u00e4"}"#, r#"{"\n":1}"#, r#"{"a":1e3}"#, "[]"] {
            assert!(of_params(text).is_none() && whole(text), "{text}");
        }
        let long = format!("{{\"a\":{}}}", "9".repeat(400));
        assert!(of_params(&long).is_none() && !whole(&long));
    }
}
