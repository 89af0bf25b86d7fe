//! The client's answer to a form, checked against the form.

use mrtr_schema::elicitation::{ElicitAction, ElicitResult};
use mrtr_schema::form::FormSchema;
use mrtr_schema::json::from_value;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::rounds::ElicitOutcome;

/// Deserializes the client's response to a question. An error is the reason why it is rejected.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| format!("the answer is malformed: {e}"))
}

/// Deserializes an answer and validates it against its form. The content of a declined or cancelled
/// form is ignored.
///
/// # Errors
///
/// The reason why the answer is rejected.
pub(crate) fn read_form<T: DeserializeOwned>(
    form: &FormSchema,
    text: &str,
) -> Result<ElicitOutcome<T>, String> {
    let result: ElicitResult = read(text)?;
    match result.action {
        ElicitAction::Decline => Ok(ElicitOutcome::Decline),
        ElicitAction::Cancel => Ok(ElicitOutcome::Cancel),
        ElicitAction::Accept => {
            let content =
                form.validate(result.content.unwrap_or_default()).map_err(|p| p.to_string())?;
            let value = from_value(&Value::Object(content));
            value.map(ElicitOutcome::Accept).map_err(|e| e.to_string())
        }
    }
}
