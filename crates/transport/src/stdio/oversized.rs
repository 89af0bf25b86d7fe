//! What can be known of a message that is too long to be taken.

use std::fmt;

use mrtr_schema::jsonrpc::RequestId;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// What the beginning of a message says of it, as far as it goes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Beginning {
    /// Absent where it comes later, or is none.
    pub(super) id: Option<RequestId>,
    /// Whether it is a request or a notification.
    pub(super) has_method: bool,
}

impl Beginning {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut known = Self::default();
        // A number may have been cut off in its middle.
        let end = text.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
        let text = text.get(..end).unwrap_or_default();
        // It breaks off somewhere: what was found until then counts.
        let _ = serde_json::Deserializer::from_slice(text).deserialize_map(Found(&mut known));
        known
    }
}

struct Found<'a>(&'a mut Beginning);

impl<'de> Visitor<'de> for Found<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => self.0.id = Some(map.next_value()?),
                "method" => {
                    self.0.has_method = true;
                    map.next_value::<IgnoredAny>()?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_early_is_known() {
        let number = |n| Some(RequestId::Number(n));
        for (text, id, has_method) in [
            (
                r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t","arg"#,
                number(5),
                true,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a\"b","result":{"content":[{"typ"#,
                Some(RequestId::String("a\"b".to_owned())),
                false,
            ),
            (r#"{"method":"tools/call","params":{"id":7,"argume"#, None, true),
            (r#"{"result":{"id":7},"jsonrpc":"2.0","id":8"#, None, false),
            (r#"{"result":{"id":7},"jsonrpc":"2.0","id":8}"#, number(8), false),
            (r#"{"jsonrpc":"2.0","id":5"#, None, false),
            (r#"{"jsonrpc":"2.0","id":5,"#, number(5), false),
            (r#"{"jsonrpc":"2.0","id":-"#, None, false),
            ("555", None, false),
            (r#"{"jsonrpc":"2.0","id":"5"#, None, false),
            (r#"{"id":null,"error":{"#, None, false),
            (r#"["id",5,"method"#, None, false),
            ("{{{{{{{{", None, false),
            ("", None, false),
        ] {
            assert_eq!(Beginning::of(text.as_bytes()), Beginning { id, has_method }, "{text}");
        }
    }
}
