//! The output schema of an operation.

use http::Method;
use mrtr_schema::Object;
#[cfg(feature = "validate")]
use mrtr_schema::json_schema::Validator;
use serde_json::{Value, json};

use crate::document::Document;
use crate::media_type::is_json;
use crate::schema::{Direction, Schemas};

/// What successful responses are checked against.
#[derive(Debug)]
pub(crate) struct OutputSchema {
    #[cfg(feature = "validate")]
    validator: Validator,
}

impl OutputSchema {
    /// Returns the output schema of an operation, `None` if it has no successful response or one
    /// without JSON, or the reason if the schema is not usable.
    pub(crate) fn new(
        document: &Document,
        method: &Method,
        object: &Value,
    ) -> Result<Option<(Self, Object)>, String> {
        if method == Method::HEAD {
            return Ok(None);
        }
        let responses = object.get("responses").and_then(Value::as_object);
        let successful = responses.into_iter().flatten().filter(|(status, _)| {
            // `2XX` is all of them.
            status.len() == 3 && status.starts_with('2')
        });
        let mut schemas = Schemas::new(document, Direction::Output);
        let mut alternatives = Vec::new();
        for (_, response) in successful {
            let response = document.resolve(response)?;
            let content = response.get("content").and_then(Value::as_object);
            let mut media = content.into_iter().flatten();
            let Some((_, media)) = media.find(|(kind, _)| is_json(kind)) else {
                return Ok(None);
            };
            let schema = match document.resolve(media)?.get("schema") {
                Some(schema) => schemas.convert(without_reference(document, schema)?)?,
                None => json!({}),
            };
            if !alternatives.contains(&schema) {
                alternatives.push(schema);
            }
        }
        let schema = match (alternatives.pop(), alternatives.is_empty()) {
            (None, _) => return Ok(None),
            (Some(Value::Object(only)), true) => only,
            (Some(last), _) => {
                alternatives.push(last);
                Object::from_iter([("anyOf".to_owned(), alternatives.into())])
            }
        };
        let schema = schemas.complete(schema)?;
        let checks = Self {
            #[cfg(feature = "validate")]
            validator: Validator::new(&schema).map_err(|error| error.to_string())?,
        };
        Ok(Some((checks, schema)))
    }

    /// Returns the reason if a value does not match the schema.
    #[cfg(feature = "validate")]
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        self.validator.validate(value).map_err(|error| error.to_string())
    }

    #[cfg(not(feature = "validate"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "the other version may fail")]
    pub(crate) fn check(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// Follows a reference that stands alone: clients of legacy revisions need the type of the value at
/// the top.
fn without_reference<'a>(document: &'a Document, schema: &'a Value) -> Result<&'a Value, String> {
    match schema.as_object() {
        Some(members) if members.len() == 1 => document.resolve(schema),
        _ => Ok(schema),
    }
}
