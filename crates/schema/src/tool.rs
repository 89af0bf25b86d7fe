//! `tools/list` and `tools/call` (specification: server, "Tools").

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Object;
use crate::content::ContentBlock;
use crate::icon::Icon;
use crate::input::InputResponses;
use crate::json;
use crate::jsonrpc::{ErrorObject, Request};
use crate::meta::RequestMeta;
use crate::result::{CacheScope, ResultType, ttl_ms};
use crate::setters::setters;

/// Returns true if the name of a tool is valid: 1 to 128 of the characters `A-Z`, `a-z`, `0-9`,
/// `_`, `-` and `.` (specification: tools, "Tool Names").
pub fn is_valid_name(name: &str) -> bool {
    let is_valid = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
    (1..=128).contains(&name.len()) && name.bytes().all(is_valid)
}

/// The description of a tool, as `tools/list` returns it.
///
/// # Example
///
/// ```
/// use mrtr_schema::tool::{Tool, ToolAnnotations};
/// use serde_json::json;
///
/// let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
/// let tool = Tool::new("weather", schema.as_object().unwrap().clone())
///     .with_description("Returns the weather forecast of a city")
///     .with_annotations(ToolAnnotations::default().with_read_only_hint(true));
///
/// let json = serde_json::to_value(&tool)?;
/// assert_eq!(json["inputSchema"], schema);
/// assert_eq!(json["annotations"], json!({ "readOnlyHint": true }));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tool {
    /// The name for programs: 1 to 128 characters of `A-Z a-z 0-9 _ - .`
    pub name: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of the arguments; its `type` is `object`.
    pub input_schema: Object,
    /// The JSON Schema of `structuredContent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Object>,
    /// Hints for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(Tool {
    with_title(title: String),
    with_description(description: String),
    with_output_schema(output_schema: Object),
    with_annotations(annotations: ToolAnnotations),
    with_meta(meta: Object),
});

impl Tool {
    /// Creates the description of a tool from its name and the JSON Schema of its arguments.
    pub fn new(name: impl Into<String>, input_schema: Object) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema,
            output_schema: None,
            annotations: None,
            icons: Vec::new(),
            meta: None,
        }
    }
}

/// Hints about a tool. A client must not rely on them unless it trusts the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolAnnotations {
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool changes nothing. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy data. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Repeating a call with the same arguments has no further effect. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool interacts with external systems. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

setters!(ToolAnnotations {
    with_title(title: String),
    with_read_only_hint(read_only_hint: bool),
    with_destructive_hint(destructive_hint: bool),
    with_idempotent_hint(idempotent_hint: bool),
    with_open_world_hint(open_world_hint: bool),
});

/// Parameters of `tools/list` and of all other lists.
#[derive(Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListParams {
    /// The cursor of the page; absent for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

impl ListParams {
    /// Decodes the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn from_request(request: &Request) -> Result<Self, ErrorObject> {
        request.decode_params()
    }
}

/// A page of tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListToolsResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The tools.
    pub tools: Vec<Tool>,
    /// The cursor of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The time in milliseconds for which the result is fresh.
    #[serde(default, deserialize_with = "ttl_ms")]
    pub ttl_ms: u64,
    /// The clients that may reuse the result.
    #[serde(default)]
    pub cache_scope: CacheScope,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl ListToolsResult {
    /// Creates the only page, which may not be cached.
    pub fn new(tools: Vec<Tool>) -> Self {
        Self { tools, ..Self::default() }
    }
}

/// Parameters of `tools/call`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallToolParams {
    /// The name of the tool.
    pub name: String,
    /// The arguments, not decoded yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Box<RawValue>>,
    /// The responses to the input requests of the previous round.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<InputResponses>,
    /// The state of the previous round, as the server sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

impl CallToolParams {
    /// Creates the parameters of a first round, without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            arguments: None,
            input_responses: None,
            request_state: None,
            meta: RequestMeta::default(),
        }
    }
}

/// Result of `tools/call`.
///
/// # Example
///
/// ```
/// use mrtr_schema::content::ContentBlock;
/// use mrtr_schema::tool::CallToolResult;
/// use serde_json::json;
///
/// let result = CallToolResult::new(vec![ContentBlock::text("18 °C")])
///     .with_structured_content(json!({ "celsius": 18 }));
/// let json = serde_json::to_string(&result)?;
///
/// let read: CallToolResult = serde_json::from_str(&json)?;
/// assert_eq!(read.text(), "18 °C");
/// assert!(!read.is_error);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallToolResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The result for the model.
    #[serde(default)]
    pub content: Vec<ContentBlock>,
    /// The result for programs: any JSON value, including `null`.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// True if the tool failed. The content then explains the failure to the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(CallToolResult {
    with_structured_content(structured_content: Value),
    with_meta(meta: Object),
});

impl CallToolResult {
    /// Creates a result from the content for the model.
    pub fn new(content: Vec<ContentBlock>) -> Self {
        Self { content, ..Self::default() }
    }

    /// Creates the result of a failed call. The model reads the content.
    pub fn error(content: Vec<ContentBlock>) -> Self {
        Self { content, is_error: true, ..Self::default() }
    }

    /// Returns all text blocks, joined by line breaks.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(ContentBlock::as_text).collect::<Vec<_>>().join("\n")
    }
}
