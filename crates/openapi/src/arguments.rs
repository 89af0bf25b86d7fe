//! The arguments of a call.

use std::borrow::Cow;
use std::collections::HashMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The arguments as JSON texts, so that numbers keep their digits.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Arguments(pub(crate) HashMap<String, Box<RawValue>>);

impl JsonSchema for Arguments {
    fn schema_name() -> Cow<'static, str> {
        "Arguments".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
