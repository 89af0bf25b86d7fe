//! CowStr that is taken from JSON as it stands there.

use std::borrow::Cow;
use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// A string: a piece of the input where it holds no escape. A `Cow` by itself is always a copy.
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
