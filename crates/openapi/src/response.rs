//! Responses of the API as results of tools.

use bytes::Bytes;
use http::{Response, header};
use mrtr_schema::content::ContentBlock;
use mrtr_schema::tool::CallToolResult;
use mrtr_server::ToolOutput;
use serde_json::Value;

use crate::media_type::is_json;

/// How much of the body of an error the model gets to see, in characters.
const MAX_ERROR: usize = 4_000;

pub(crate) fn output(response: &Response<Bytes>) -> ToolOutput {
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
    match text {
        Some("") => ToolOutput::text(format!("The API answered {status}.")),
        Some(text) => {
            let content = ContentBlock::text(text);
            let value =
                kind.filter(|kind| is_json(kind)).and_then(|_| serde_json::from_str(text).ok());
            match value {
                Some(value @ Value::Object(_)) => ToolOutput::structured(value, [content]),
                _ => ToolOutput::content([content]),
            }
        }
        None => {
            let (length, kind) = (response.body().len(), kind.unwrap_or("an unknown type"));
            ToolOutput::text(format!("The API answered {status}, with {length} bytes of {kind}."))
        }
    }
}
