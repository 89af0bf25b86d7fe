//! Whether arguments and results fit the schemas that a tool publishes. Without the feature `validate`, the
//! types of the handler alone decide.

use mrtr_schema::tool::{CallToolResult, Tool as WireTool};

#[cfg(not(feature = "validate"))]
pub(crate) use without::Schemas;

#[cfg(feature = "validate")]
pub(crate) use with::Schemas;

#[cfg(not(feature = "validate"))]
mod without {
    use super::{CallToolResult, WireTool};

    #[derive(Debug, Default)]
    pub(crate) struct Schemas {}

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    impl Schemas {
        pub(crate) fn new(_: &WireTool, _: bool) -> Result<Self, String> {
            Ok(Self {})
        }

        pub(crate) fn check_arguments(&self, _: &str) -> Result<(), String> {
            Ok(())
        }

        pub(crate) fn check_result(&self, _: &CallToolResult) -> Result<(), String> {
            Ok(())
        }
    }
}

#[cfg(feature = "validate")]
mod with {
    use mrtr_schema::Object;
    use mrtr_schema::json_schema::Validator;
    use serde_json::Value;

    use super::{CallToolResult, WireTool};

    /// The schemas that say more than the types that were made of them, or that were not made of types.
    #[derive(Debug, Default)]
    pub(crate) struct Schemas {
        arguments: Option<Validator>,
        result: Option<Validator>,
    }

    impl Schemas {
        /// Reads a tool's schemas; an error if one is none. `custom_schema` if their author wrote one.
        pub(crate) fn new(tool: &WireTool, custom_schema: bool) -> Result<Self, String> {
            let read = |schema: &Object| {
                let validator = Validator::new(schema)?;
                Ok::<_, String>(Some(validator).filter(|_| custom_schema || limits(schema)))
            };
            let result = tool.output_schema.as_ref().map(read).transpose()?.flatten();
            Ok(Self { arguments: read(&tool.input_schema)?, result })
        }

        pub(crate) fn check_arguments(&self, arguments: &str) -> Result<(), String> {
            let Some(schema) = &self.arguments else { return Ok(()) };
            // What is no JSON does not get here.
            let arguments = serde_json::from_str(arguments).map_err(|e| e.to_string())?;
            schema.validate(&arguments).map_err(String::from)
        }

        pub(crate) fn check_result(&self, result: &CallToolResult) -> Result<(), String> {
            let Some(schema) = self.result.as_ref().filter(|_| !result.is_error) else {
                return Ok(());
            };
            let value = result.structured_content.as_ref();
            let value = value.ok_or("there is no structured content")?;
            schema.validate(value).map_err(String::from)
        }
    }

    /// Whether a schema that was made of a type says something that reading the type does not check.
    fn limits(schema: &Object) -> bool {
        schema.iter().any(|(keyword, value)| match (keyword.as_str(), value) {
            // The bounds of the integer types.
            ("minimum", Value::Number(n)) => {
                !matches!(n.as_i64(), Some(0 | -128 | -32_768 | -2_147_483_648))
            }
            ("maximum", Value::Number(n)) => !matches!(
                n.as_i64(),
                Some(127 | 255 | 32_767 | 65_535 | 2_147_483_647 | 4_294_967_295)
            ),
            ("const" | "default" | "enum" | "examples", _) => false,
            ("properties" | "$defs", Value::Object(all)) => {
                all.values().filter_map(Value::as_object).any(limits)
            }
            (
                "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minLength" | "maxLength"
                | "pattern" | "minItems" | "maxItems" | "uniqueItems" | "contains"
                | "minProperties" | "maxProperties" | "propertyNames" | "patternProperties"
                | "dependentRequired" | "dependentSchemas" | "not" | "if",
                _,
            ) => true,
            (_, Value::Object(inner)) => limits(inner),
            (_, Value::Array(items)) => items.iter().filter_map(Value::as_object).any(limits),
            _ => false,
        })
    }
}
