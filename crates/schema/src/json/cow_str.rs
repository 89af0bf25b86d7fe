//! A string that borrows from the JSON text where it can.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// A string that borrows from the input unless it contains an escape.
///
/// Deserializing a plain `Cow<str>` always copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CowStr<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for CowStr<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(CowStrVisitor)
    }
}

struct CowStrVisitor;

impl<'de> Visitor<'de> for CowStrVisitor {
    type Value = CowStr<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<CowStr<'de>, E> {
        Ok(CowStr(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<CowStr<'de>, E> {
        Ok(CowStr(text.to_owned().into()))
    }

    fn visit_string<E>(self, text: String) -> Result<CowStr<'de>, E> {
        Ok(CowStr(text.into()))
    }
}
