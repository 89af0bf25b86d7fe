//! A pass over JSON text that refuses what two parsers could read in two ways.
//!
//! It decides; but most messages need not go through it, since [`crate::json::scan`] can vouch for them.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::json::CowStr;

/// Checks that `text` is one JSON value without duplicate keys or lone surrogates, and not nested
/// deeper than serde_json's limit of 128.
pub(crate) fn check(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<Strict>(text).map(|Strict| ())
}

/// How deeply arrays and objects are nested in `text`, be it JSON or not.
pub(crate) fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

pub(crate) struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        while items.next_element::<Strict>()?.is_some() {}
        Ok(Strict)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Strict, A::Error> {
        let mut seen = HashSet::new();
        while let Some(CowStr(key)) = members.next_key()? {
            members.next_value::<Strict>()?;
            if let Some(twice) = seen.replace(key) {
                return Err(A::Error::custom(format_args!("duplicate key {twice:?}")));
            }
        }
        Ok(Strict)
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn accepts_ordinary_json() {
        for text in
            [r#"{"a":{"b":1},"c":{"b":[1,2.5,-3,null,true,"x"]}}"#, "[]", "18446744073709551616"]
        {
            assert!(check(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn refuses_what_two_parsers_could_read_differently() {
        for (text, why) in [
            (r#"{"a":1,"a":2}"#, "duplicate key \"a\""),
            (r#"{"p":{"x":[{"k":1,"\u006b":2}]}}"#, "duplicate key \"k\""),
            (r#""\ud800""#, "surrogate"),
            (r#"{"\ud800":1}"#, "surrogate"),
            ("{} {}", "trailing"),
            ("{\"a\":NaN}", "expected value"),
        ] {
            let error = check(text).expect_err(text).to_string();
            assert!(error.contains(why) || error.contains("hex escape"), "{text}: {error}");
        }
        assert!(check(&"[".repeat(200)).is_err(), "deep nesting");
    }
}
