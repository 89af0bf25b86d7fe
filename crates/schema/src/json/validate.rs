//! Rejects JSON that two parsers could read differently: duplicate keys, lone surrogates, and keys
//! that serde_json reserves.
//!
//! Most messages bypass this module: [`crate::json::scan`] accepts the common forms in one pass.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::json::CowStr;

/// The deepest nesting of arrays and objects that is accepted: serde_json's recursion limit.
pub const MAX_DEPTH: usize = 128;

/// The beginning of keys that have a meaning for serde_json. With `RawValue`, it reads the string
/// in the object as JSON, with a recursion limit of its own: a text in a text could be nested so
/// deeply that the stack overflows.
pub(crate) const RESERVED: &str = "$serde_json::private::";

/// Checks that `text` is one JSON value without duplicate keys, lone surrogates, or keys that
/// serde_json reserves, nested at most [`MAX_DEPTH`] deep.
///
/// # Errors
///
/// If it is not.
pub fn validate(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<Validated>(text).map(|Validated| ())
}

/// Returns the nesting depth of arrays and objects in `text`, which need not be valid JSON.
pub fn nesting_depth(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    let mut in_string = false;
    let mut escaped = false;
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

/// Deserializes from any value that [`validate`] accepts, and discards it.
#[derive(Debug)]
pub struct Validated;

impl<'de> Deserialize<'de> for Validated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValidatedVisitor)
    }
}

struct ValidatedVisitor;

impl<'de> Visitor<'de> for ValidatedVisitor {
    type Value = Validated;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Validated, E> {
        Ok(Validated)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Validated, E> {
        Ok(Validated)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Validated, E> {
        Ok(Validated)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Validated, E> {
        Ok(Validated)
    }

    fn visit_str<E>(self, _: &str) -> Result<Validated, E> {
        Ok(Validated)
    }

    fn visit_unit<E>(self) -> Result<Validated, E> {
        Ok(Validated)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Validated, A::Error> {
        while items.next_element::<Validated>()?.is_some() {}
        Ok(Validated)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Validated, A::Error> {
        let mut seen = HashSet::new();
        while let Some(CowStr(key)) = members.next_key()? {
            members.next_value::<Validated>()?;
            if key.starts_with(RESERVED) {
                return Err(A::Error::custom(format_args!("reserved key {key:?}")));
            }
            if let Some(duplicate) = seen.replace(key) {
                return Err(A::Error::custom(format_args!("duplicate key {duplicate:?}")));
            }
        }
        Ok(Validated)
    }
}

#[cfg(test)]
mod tests {
    use super::validate;

    #[test]
    fn validator_accepts_ordinary_json() {
        for text in
            [r#"{"a":{"b":1},"c":{"b":[1,2.5,-3,null,true,"x"]}}"#, "[]", "18446744073709551616"]
        {
            assert!(validate(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn validator_rejects_what_two_parsers_could_read_differently() {
        for (text, why) in [
            (r#"{"a":1,"a":2}"#, "duplicate key \"a\""),
            (r#"{"p":{"x":[{"k":1,"\u006b":2}]}}"#, "duplicate key \"k\""),
            (r#"{"a":[{"$serde_json::private::RawValue":"[]"}]}"#, "reserved key"),
            (r#"{"\u0024serde_json::private::RawValue":"[]"}"#, "reserved key"),
            (r#""\ud800""#, "surrogate"),
            (r#"{"\ud800":1}"#, "surrogate"),
            ("{} {}", "trailing"),
            ("{\"a\":NaN}", "expected value"),
        ] {
            let error = validate(text).expect_err(text).to_string();
            assert!(error.contains(why) || error.contains("hex escape"), "{text}: {error}");
        }
        assert!(validate(&"[".repeat(200)).is_err(), "deep nesting");
    }
}
