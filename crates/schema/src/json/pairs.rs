//! JSON objects as lists of pairs, in their order.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Serializes pairs as an object.
pub fn write_pairs<S: Serializer, V: Serialize>(
    serializer: S,
    pairs: &[(String, V)],
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

/// Deserializes an object as pairs. `expected` describes the object in an error.
///
/// Duplicate keys are kept: they are rejected before, by the strict validator.
pub fn read_pairs<'de, D: Deserializer<'de>, K: Deserialize<'de>, V: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Vec<(K, V)>, D::Error> {
    deserializer.deserialize_map(PairsVisitor { expected, pair: PhantomData })
}

struct PairsVisitor<K, V> {
    expected: &'static str,
    pair: PhantomData<(K, V)>,
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<K, V> {
    type Value = Vec<(K, V)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }
}
