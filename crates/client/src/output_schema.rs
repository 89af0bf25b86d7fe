//! Whether structured content fits the schema that its tool was listed with. Without the feature `validate`,
//! nothing is checked.

use mrtr_schema::tool::{CallToolResult, Tool};

#[cfg(feature = "validate")]
use mrtr_schema::json_schema::Validator;

/// A tool's output schema.
#[derive(Debug)]
pub(crate) struct OutputSchema {
    #[cfg(feature = "validate")]
    validator: Option<Validator>,
}

#[cfg(feature = "validate")]
impl OutputSchema {
    /// Reads it; an error if values cannot be held against it.
    pub(crate) fn of(tool: &Tool) -> Result<Self, String> {
        let validator = tool.output_schema.as_ref().map(Validator::new).transpose();
        validator
            .map(|validator| Self { validator })
            .map_err(|why| format!("its outputSchema: {why}"))
    }

    pub(crate) fn check(&self, result: &CallToolResult) -> Result<(), String> {
        let Some(schema) = self.validator.as_ref().filter(|_| !result.is_error) else {
            return Ok(());
        };
        let value = result.structured_content.as_ref();
        let value = value.ok_or("it has no structuredContent, but its tool has an outputSchema")?;
        schema.validate(value).map_err(|why| format!("its structuredContent does not fit: {why}"))
    }
}

#[cfg(not(feature = "validate"))]
#[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
impl OutputSchema {
    pub(crate) fn of(_: &Tool) -> Result<Self, String> {
        Ok(Self {})
    }

    pub(crate) fn check(&self, _: &CallToolResult) -> Result<(), String> {
        Ok(())
    }
}
