//! Validation of arguments and results against the schemas that a tool publishes. Without the
//! feature `validate`, only the types of the handler are checked.

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

    #[expect(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        reason = "as with the feature `validate`"
    )]
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

    /// The validators of a tool's schemas. `None` if the handler's type checks the same rules.
    #[derive(Debug, Default)]
    pub(crate) struct Schemas {
        arguments: Option<Validator>,
        result: Option<Validator>,
    }

    impl Schemas {
        /// Compiles a tool's schemas. `custom_schema` is true if the author set one of them.
        ///
        /// A derived schema that the handler's type checks is compiled in debug builds only, to
        /// find mistakes in hand-written implementations of `JsonSchema`. To compile any schema
        /// costs a server about 4 MB, as that needs the schema of schemas.
        ///
        /// # Errors
        ///
        /// The reason why a schema is invalid.
        pub(crate) fn new(tool: &WireTool, custom_schema: bool) -> Result<Self, String> {
            let compile = |schema: &Object| {
                let is_needed = custom_schema || has_limits(schema);
                if !is_needed && !cfg!(debug_assertions) {
                    return Ok(None);
                }
                let validator = Validator::new(schema)?;
                Ok::<_, String>(Some(validator).filter(|_| is_needed))
            };
            let result = tool.output_schema.as_ref().map(compile).transpose()?.flatten();
            Ok(Self { arguments: compile(&tool.input_schema)?, result })
        }

        pub(crate) fn check_arguments(&self, arguments: &str) -> Result<(), String> {
            let Some(schema) = &self.arguments else { return Ok(()) };
            // Arguments that are not valid JSON were rejected before.
            let arguments = serde_json::from_str(arguments).map_err(|e| e.to_string())?;
            schema.validate(&arguments).map_err(String::from)
        }

        pub(crate) fn check_result(&self, result: &CallToolResult) -> Result<(), String> {
            let Some(schema) = self.result.as_ref().filter(|_| !result.is_error) else {
                return Ok(());
            };
            let value = result.structured_content.as_ref();
            let value = value.ok_or("the result has no structured content")?;
            schema.validate(value).map_err(String::from)
        }
    }

    /// Returns true if a schema that was derived from a type has rules that deserialization does
    /// not check.
    fn has_limits(schema: &Object) -> bool {
        schema.iter().any(|(keyword, value)| match (keyword.as_str(), value) {
            // Deserialization checks the bounds of the integer types.
            ("minimum", Value::Number(n)) => {
                !matches!(n.as_i64(), Some(0 | -128 | -32_768 | -2_147_483_648))
            }
            ("maximum", Value::Number(n)) => !matches!(
                n.as_i64(),
                Some(127 | 255 | 32_767 | 65_535 | 2_147_483_647 | 4_294_967_295)
            ),
            ("const" | "default" | "enum" | "examples", _) => false,
            ("properties" | "$defs", Value::Object(all)) => {
                all.values().filter_map(Value::as_object).any(has_limits)
            }
            (
                "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minLength" | "maxLength"
                | "pattern" | "minItems" | "maxItems" | "uniqueItems" | "contains"
                | "minProperties" | "maxProperties" | "propertyNames" | "patternProperties"
                | "dependentRequired" | "dependentSchemas" | "not" | "if",
                _,
            ) => true,
            (_, Value::Object(inner)) => has_limits(inner),
            (_, Value::Array(items)) => items.iter().filter_map(Value::as_object).any(has_limits),
            _ => false,
        })
    }
}
