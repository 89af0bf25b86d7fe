//! Ids of requests.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::peer_text;

/// The id of a request: a string or an integer, never null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer id.
    Number(i64),
    /// A string id.
    String(String),
}

/// For log lines: a string id is cut to 128 characters, and control characters are replaced,
/// since the peer chose it.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::String(s) => f.write_str(&peer_text::truncate(s)),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(n) => serializer.serialize_i64(*n),
            Self::String(s) => serializer.serialize_str(s),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = RequestId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an integer")
    }

    fn visit_i64<E>(self, n: i64) -> Result<RequestId, E> {
        Ok(RequestId::Number(n))
    }

    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<RequestId, E> {
        i64::try_from(n).map(RequestId::Number).map_err(|_| E::custom("integer beyond 64 bits"))
    }

    fn visit_str<E>(self, s: &str) -> Result<RequestId, E> {
        Ok(RequestId::String(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_id_displays_on_one_line() {
        let id = |text: &str| RequestId::String(text.to_owned()).to_string();
        assert_eq!(id("a-1"), "a-1");
        assert_eq!(id("1\n WARN \u{1b}[2J"), "1  WARN \u{fffd}[2J");
        assert_eq!(id(&"x".repeat(1 << 20)).chars().count(), 129);
    }
}
