//! Validation of structured content against the output schema of its tool. Without the feature
//! `validate`, nothing is checked.

use mrtr_schema::tool::{CallToolResult, Tool};

#[cfg(feature = "validate")]
use mrtr_schema::json_schema::Validator;

/// The output schema of a tool.
#[derive(Debug)]
pub(crate) struct OutputSchema {
    #[cfg(feature = "validate")]
    validator: Option<Validator>,
}

#[cfg(feature = "validate")]
impl OutputSchema {
    /// Compiles the output schema of `tool`, if it has one.
    pub(crate) fn from_tool(tool: &Tool) -> Result<Self, String> {
        let validator = tool.output_schema.as_ref().map(Validator::new).transpose();
        validator
            .map(|validator| Self { validator })
            .map_err(|why| format!("invalid outputSchema: {why}"))
    }

    pub(crate) fn validate(&self, result: &CallToolResult) -> Result<(), String> {
        // A failed call has no output.
        let Some(schema) = self.validator.as_ref().filter(|_| !result.is_error) else {
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
    pub(crate) fn from_tool(_: &Tool) -> Result<Self, String> {
        Ok(Self {})
    }

    pub(crate) fn validate(&self, _: &CallToolResult) -> Result<(), String> {
        Ok(())
    }
}
