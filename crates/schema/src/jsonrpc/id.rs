//! Ids of requests.

use std::fmt;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::peer_text;

/// The id of a request: a string or an integer, never null.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer id.
    Number(i64),
    /// An integer id above `i64::MAX`. For other numbers, use `RequestId::from`.
    Unsigned(u64),
    /// A string id.
    String(String),
}

impl From<i64> for RequestId {
    fn from(id: i64) -> Self {
        Self::Number(id)
    }
}

impl From<u64> for RequestId {
    fn from(id: u64) -> Self {
        i64::try_from(id).map_or(Self::Unsigned(id), Self::Number)
    }
}

/// For log lines: a string id is cut to 128 characters, and control characters are replaced,
/// since the peer chose it.
impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Unsigned(n) => n.fmt(f),
            Self::String(s) => f.write_str(&peer_text::truncate(s)),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(n) => serializer.serialize_i64(*n),
            Self::Unsigned(n) => serializer.serialize_u64(*n),
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

    fn visit_u64<E>(self, n: u64) -> Result<RequestId, E> {
        Ok(n.into())
    }

    /// `1.0` is the integer 1, as in JSON Schema.
    fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<RequestId, E> {
        // Larger ones are not exact. A fraction cannot be parsed as an integer.
        let exact = Some(n).filter(|n| n.abs() < 2f64.powi(53));
        let whole = exact.and_then(|n| n.to_string().parse().ok());
        whole.map(RequestId::Number).ok_or_else(|| E::invalid_value(Unexpected::Float(n), &self))
    }

    fn visit_str<E>(self, s: &str) -> Result<RequestId, E> {
        Ok(RequestId::String(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_64_bits_are_ids() {
        let read = serde_json::from_str::<RequestId>;
        for text in ["0", "-9223372036854775808", "18446744073709551615"] {
            let id = read(text).unwrap();
            assert_eq!(serde_json::to_string(&id).unwrap(), text);
            assert_eq!(serde_json::to_value(&id).unwrap().to_string(), text);
        }
        assert_eq!(read("1.0").unwrap(), RequestId::Number(1));
        for text in ["1.5", "1e300", "18446744073709551616", "null", "true", "[]"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn request_id_displays_on_one_line() {
        let id = |text: &str| RequestId::String(text.to_owned()).to_string();
        assert_eq!(id("a-1"), "a-1");
        assert_eq!(id("1\n WARN \u{1b}[2J"), "1  WARN \u{fffd}[2J");
        assert_eq!(id(&"x".repeat(1 << 20)).chars().count(), 129);
    }
}
