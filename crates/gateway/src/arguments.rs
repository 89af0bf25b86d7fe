//! Arguments that are forwarded as they came.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The arguments of a call as JSON text, so that numbers keep their digits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Arguments(Box<RawValue>);

impl JsonSchema for Arguments {
    fn schema_name() -> Cow<'static, str> {
        "Arguments".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
