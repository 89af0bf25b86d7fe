//! Schemas of the document as JSON Schemas of arguments.

use std::collections::BTreeSet;

use mrtr_schema::Object;
use serde_json::{Value, json};

use crate::document::Document;

const COMPONENTS: &str = "#/components/schemas/";

/// Keywords whose values are data, not schemas.
const DATA: [&str; 6] = ["const", "default", "enum", "example", "examples", "required"];

/// Keywords that only serve documentation, and one that this server would follow.
const DROPPED: [&str; 5] = ["discriminator", "externalDocs", "xml", "example", "x-mcp-header"];

/// Converts schemas, and collects those that they refer to.
pub(crate) struct Schemas<'a> {
    document: &'a Document,
    /// Names of referenced schemas.
    referenced: BTreeSet<String>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(document: &'a Document) -> Self {
        Self { document, referenced: BTreeSet::new() }
    }

    /// Converts a schema for use in arguments.
    pub(crate) fn convert(&mut self, schema: &Value) -> Result<Value, String> {
        match schema {
            Value::Object(object) => self.convert_object(object).map(Value::Object),
            other => Ok(other.clone()),
        }
    }

    fn convert_object(&mut self, schema: &Object) -> Result<Object, String> {
        let mut converted = Object::new();
        for (key, value) in schema {
            let value = match (key.as_str(), value) {
                (dropped, _) if DROPPED.contains(&dropped) => continue,
                ("$ref", Value::String(reference)) => {
                    let name = reference.strip_prefix(COMPONENTS).ok_or_else(|| {
                        format!("the schema reference {reference:?} must start with {COMPONENTS:?}")
                    })?;
                    let first = name.split('/').next().unwrap_or_default();
                    self.referenced.insert(first.to_owned());
                    Value::String(format!("#/$defs/{name}"))
                }
                (data, value) if DATA.contains(&data) => value.clone(),
                // Maps from names to schemas.
                (
                    "properties" | "patternProperties" | "$defs" | "dependentSchemas",
                    Value::Object(map),
                ) => {
                    let mut schemas = Object::new();
                    for (name, schema) in map {
                        schemas.insert(name.clone(), self.convert(schema)?);
                    }
                    Value::Object(schemas)
                }
                (_, Value::Array(all)) => {
                    Value::Array(all.iter().map(|one| self.convert(one)).collect::<Result<_, _>>()?)
                }
                (_, value) => self.convert(value)?,
            };
            converted.insert(key.clone(), value);
        }
        leave_out_read_only(&mut converted);
        if self.document.is_3_0 {
            upgrade(&mut converted);
        }
        Ok(converted)
    }

    /// Returns the definitions of all schemas that were referred to.
    pub(crate) fn definitions(mut self) -> Result<Object, String> {
        let mut definitions = Object::new();
        while let Some(name) = self.referenced.pop_first() {
            if definitions.contains_key(&name) {
                continue;
            }
            let schema = self.document.at(&format!("{COMPONENTS}{name}"))?;
            let converted = self.convert(schema)?;
            definitions.insert(name, converted);
        }
        Ok(definitions)
    }
}

/// Removes the properties that only responses have.
fn leave_out_read_only(schema: &mut Object) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let is_read_only = |schema: &Value| schema.get("readOnly") == Some(&Value::Bool(true));
    let names: Vec<_> =
        properties.iter().filter(|(_, s)| is_read_only(s)).map(|(name, _)| name.clone()).collect();
    properties.retain(|name, _| !names.contains(name));
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !names.iter().any(|n| n == name)));
    }
}

/// Converts keywords of OpenAPI 3.0 to JSON Schema 2020-12.
fn upgrade(schema: &mut Object) {
    if schema.remove("nullable") == Some(Value::Bool(true)) {
        if let Some(Value::Array(values)) = schema.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
        // `nullable` beside a reference or `allOf` has no type.
        let is_composed = schema.contains_key("allOf") || schema.contains_key("$ref");
        match schema.get_mut("type") {
            Some(kind @ Value::String(_)) => *kind = json!([kind.take(), "null"]),
            None if is_composed => {
                let inner = std::mem::take(schema);
                schema.insert("anyOf".to_owned(), json!([inner, { "type": "null" }]));
            }
            _ => {}
        }
    }
    for (flag, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match schema.get(flag) {
            Some(Value::Bool(true)) => match schema.remove(limit) {
                Some(value) => drop(schema.insert(flag.to_owned(), value)),
                None => drop(schema.remove(flag)),
            },
            Some(Value::Bool(false)) => drop(schema.remove(flag)),
            _ => {}
        }
    }
}
