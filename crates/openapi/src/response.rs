//! Responses of the API as results of tools.

use bytes::Bytes;
use http::{Response, header};
use mrtr_schema::content::ContentBlock;
use mrtr_schema::json::{MAX_DEPTH, nesting_depth, validate};
use mrtr_schema::tool::CallToolResult;
use mrtr_server::ToolOutput;
use serde_json::Value;

use crate::media_type::is_json;
use crate::output_schema::OutputSchema;

/// How much of the body of an error the model gets to see, in characters.
const MAX_ERROR: usize = 4_000;

/// How many levels of a message, and of what may forward it, are around the value of a response.
const OUTER_DEPTH: usize = 16;

/// Returns the result of a tool: with the output schema, that of a tool that has one.
pub(crate) fn output(response: &Response<Bytes>, schema: Option<&OutputSchema>) -> ToolOutput {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let text = std::str::from_utf8(response.body()).ok();
    if !status.is_success() {
        let text = text.unwrap_or_default();
        let body: String = text.chars().take(MAX_ERROR).collect();
        let rest = if body.len() < text.len() { "… (truncated)" } else { "" };
        let message = format!("The API answered {status}. {body}{rest}");
        let mut result = CallToolResult::new(vec![ContentBlock::text(message.trim_end())]);
        result.is_error = true;
        return result.into();
    }
    let content = ContentBlock::text(match text {
        Some("") => format!("The API answered {status}."),
        Some(text) => text.to_owned(),
        None => {
            let (length, kind) = (response.body().len(), kind.unwrap_or("an unknown type"));
            format!("The API answered {status}, with {length} bytes of {kind}.")
        }
    });
    // In the result of the tool, the value is nested more deeply.
    let fits = |text: &&str| {
        nesting_depth(text.as_bytes()) + OUTER_DEPTH <= MAX_DEPTH && validate(text).is_ok()
    };
    let json = text.filter(|_| kind.is_some_and(is_json)).filter(fits);
    let value = json.and_then(|text| serde_json::from_str(text).ok());
    let Some(schema) = schema else {
        return match value {
            Some(value @ Value::Object(_)) => ToolOutput::structured(value, [content]),
            _ => ToolOutput::content([content]),
        };
    };
    let checked = value.ok_or_else(|| "it is not JSON, or nested too deeply".to_owned());
    match checked.and_then(|value| schema.check(&value).map(|()| value)) {
        Ok(value) => ToolOutput::structured(value, [content]),
        Err(why) => {
            // The model gets the whole response: the request was carried out.
            let why: String = why.chars().take(MAX_ERROR).collect();
            let message = format!(
                "The API carried out the request and answered {status}, but its response does not \
                 match the output schema of this tool: {why}. The response:"
            );
            CallToolResult::error(vec![ContentBlock::text(message), content]).into()
        }
    }
}
