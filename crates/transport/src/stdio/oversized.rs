//! Reading the id of a message that is too long to be parsed.

use std::fmt;

use mrtr_schema::jsonrpc::RequestId;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// The id and the kind of a message, as far as its first bytes show them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MessagePrefix {
    /// The id, if it is before the cut and valid.
    pub id: Option<RequestId>,
    /// True if there is a method before the cut: the message is a request or a notification.
    pub has_method: bool,
}

impl MessagePrefix {
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut prefix = Self::default();
        // A number at the end may be cut off, and would be read as another one.
        let end = text.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
        let text = text.get(..end).unwrap_or_default();
        // The text always ends early. The members before its end are sufficient.
        let _ =
            serde_json::Deserializer::from_slice(text).deserialize_map(PrefixVisitor(&mut prefix));
        prefix
    }
}

struct PrefixVisitor<'a>(&'a mut MessagePrefix);

impl<'de> Visitor<'de> for PrefixVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => self.0.id = Some(map.next_value()?),
                "method" => {
                    self.0.has_method = true;
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_finds_id_and_method_before_the_cut() {
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
            assert_eq!(
                MessagePrefix::parse(text.as_bytes()),
                MessagePrefix { id, has_method },
                "{text}"
            );
        }
    }
}
