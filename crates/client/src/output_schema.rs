//! Validation of structured content against the output schema of its tool. Without the feature
//! `validate`, nothing is checked.

#[cfg(feature = "validate")]
use std::sync::OnceLock;

use mrtr_schema::tool::{CallToolResult, Tool};

#[cfg(feature = "validate")]
use mrtr_schema::{Object, json_schema::Validator};

/// The output schema of a tool.
#[derive(Debug)]
pub(crate) struct OutputSchema {
    #[cfg(feature = "validate")]
    schema: Option<Object>,
    /// Compiled when the tool is called for the first time: a list has many tools, and the
    /// compiled schemas of a hostile one would exhaust the memory.
    #[cfg(feature = "validate")]
    validator: OnceLock<Result<Validator, String>>,
}

#[cfg(feature = "validate")]
impl OutputSchema {
    pub(crate) fn of(tool: &Tool) -> Self {
        Self { schema: tool.output_schema.clone(), validator: OnceLock::new() }
    }

    /// Returns the compiled schema, `None` if the tool has none, or the reason why it is invalid.
    fn validator(&self) -> Result<Option<&Validator>, String> {
        let Some(schema) = &self.schema else { return Ok(None) };
        let compile = || Validator::new(schema).map_err(|why| why.to_string());
        let compiled = self.validator.get_or_init(compile).as_ref().map(Some);
        compiled.map_err(|why| format!("invalid outputSchema: {why}"))
    }

    /// Returns an error if results cannot be validated.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.validator().map(drop)
    }

    pub(crate) fn validate(&self, result: &CallToolResult) -> Result<(), String> {
        // A failed call has no output.
        let Some(schema) = self.validator()?.filter(|_| !result.is_error) else {
            return Ok(());
        };
        let value = result.structured_content.as_ref();
        let value =
            value.ok_or("structuredContent is missing, but the tool has an outputSchema")?;
        schema
            .validate(value)
            .map_err(|why| format!("structuredContent does not match the outputSchema: {why}"))
    }
}

#[cfg(not(feature = "validate"))]
#[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
impl OutputSchema {
    pub(crate) fn of(_: &Tool) -> Self {
        Self {}
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        Ok(())
    }

    pub(crate) fn validate(&self, _: &CallToolResult) -> Result<(), String> {
        Ok(())
    }
}
