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
        /// A derived schema that the handler's type checks is compiled in debug builds only, where
        /// it also checks results, to find attributes and hand-written implementations of
        /// `JsonSchema` that contradict the type. To compile any schema costs a server about 4 MB,
        /// as that needs the schema of schemas.
        ///
        /// # Errors
        ///
        /// The reason why a schema is invalid.
        pub(crate) fn new(tool: &WireTool, custom_schema: bool) -> Result<Self, String> {
            let compile = |schema: &Object, is_result: bool| {
                let is_needed = custom_schema || has_limits(schema, is_result);
                if !is_needed && !cfg!(debug_assertions) {
                    return Ok(None);
                }
                let validator = Validator::new(schema)?;
                Ok::<_, String>(Some(validator).filter(|_| is_needed || is_result))
            };
            let result = tool.output_schema.as_ref().map(|schema| compile(schema, true));
            let arguments = compile(&tool.input_schema, false)?;
            Ok(Self { arguments, result: result.transpose()?.flatten() })
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
    /// not check or, for results, serialization does not keep.
    fn has_limits(schema: &Object, is_result: bool) -> bool {
        has_limits_of(schema, is_result, false)
    }

    /// The same for a part of it. `is_variant` is true for an alternative: those of a tagged enum
    /// have a `const` for the tag, which deserialization checks.
    fn has_limits_of(schema: &Object, is_result: bool, is_variant: bool) -> bool {
        let any = |schemas: &mut dyn Iterator<Item = &Value>, is_variant| {
            let mut schemas = schemas.filter_map(Value::as_object);
            schemas.any(|schema| has_limits_of(schema, is_result, is_variant))
        };
        schema.iter().any(|(keyword, value)| match (keyword.as_str(), value) {
            ("minimum" | "maximum", value) => !is_bound_of_type(schema, keyword, value),
            // Serialization writes NaN and infinite numbers as `null`.
            ("type", kind) => is_result && kind == "number",
            ("const" | "default" | "enum" | "examples", _) => false,
            ("properties", Value::Object(all)) => {
                all.values().any(|value| has_inline_values(value, is_variant))
                    || any(&mut all.values(), false)
            }
            ("items" | "additionalProperties", Value::Object(inner)) => {
                has_inline_values(value, false) || has_limits_of(inner, is_result, false)
            }
            ("$defs", Value::Object(all)) => any(&mut all.values(), false),
            ("oneOf" | "anyOf", Value::Array(items)) => any(&mut items.iter(), true),
            (
                "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" | "minLength" | "maxLength"
                | "pattern" | "minItems" | "maxItems" | "uniqueItems" | "contains"
                | "minProperties" | "maxProperties" | "propertyNames" | "patternProperties"
                | "dependentRequired" | "dependentSchemas" | "not" | "if",
                _,
            ) => true,
            (_, Value::Object(inner)) => has_limits_of(inner, is_result, false),
            (_, Value::Array(items)) => any(&mut items.iter(), false),
            _ => false,
        })
    }

    /// Returns true if a schema lists values. They come from the author: Rust enums are in `$defs`.
    fn has_inline_values(schema: &Value, is_variant: bool) -> bool {
        schema.get("enum").is_some() || !is_variant && schema.get("const").is_some()
    }

    /// Returns true if a bound is that of the integer type which the format names.
    fn is_bound_of_type(schema: &Object, keyword: &str, bound: &Value) -> bool {
        let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
        let bounds = match format {
            "int8" => (i8::MIN.into(), i8::MAX.into()),
            "int16" => (i16::MIN.into(), i16::MAX.into()),
            "int32" => (i32::MIN.into(), i32::MAX.into()),
            "uint8" => (0, u8::MAX.into()),
            "uint16" => (0, u16::MAX.into()),
            "uint32" => (0, u32::MAX.into()),
            "uint" | "uint64" | "uint128" => (0, i64::MAX),
            _ => return false,
        };
        bound.as_i64() == Some(if keyword == "minimum" { bounds.0 } else { bounds.1 })
    }
}
