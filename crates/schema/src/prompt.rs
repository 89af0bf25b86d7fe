//! `prompts/list` and `prompts/get` (specification: server, "Prompts").

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::content::{ContentBlock, Role};
use crate::icon::Icon;
use crate::input::InputResponses;
use crate::json;
use crate::jsonrpc::{ErrorObject, Request};
use crate::meta::RequestMeta;
use crate::result::{CacheScope, ResultType, ttl_ms};
use crate::setters::setters;

/// The description of a prompt, as `prompts/list` returns it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prompt {
    /// The name for programs.
    pub name: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Icon>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(Prompt {
    with_title(title: String),
    with_description(description: String),
    with_meta(meta: Object),
});

impl Prompt {
    /// Creates the description of a prompt without arguments.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            icons: Vec::new(),
            meta: None,
        }
    }
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The name for programs.
    pub name: String,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if the argument must be present.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

setters!(PromptArgument { with_title(title: String), with_description(description: String) });

impl PromptArgument {
    /// Creates an optional argument.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), title: None, description: None, required: false }
    }

    /// Makes the argument required.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

/// A page of prompts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ListPromptsResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The prompts.
    pub prompts: Vec<Prompt>,
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

impl ListPromptsResult {
    /// Creates the only page, which may not be cached.
    pub fn new(prompts: Vec<Prompt>) -> Self {
        Self { prompts, ..Self::default() }
    }
}

/// Parameters of `prompts/get`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GetPromptParams {
    /// The name of the prompt.
    pub name: String,
    /// The arguments; all are strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
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

impl GetPromptParams {
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

    /// Decodes the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn from_request(request: &Request) -> Result<Self, ErrorObject> {
        request.decode_params()
    }
}

/// Result of `prompts/get`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GetPromptResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages.
    pub messages: Vec<PromptMessage>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(GetPromptResult { with_description(description: String), with_meta(meta: Object) });

impl GetPromptResult {
    /// Creates a result.
    pub fn new(messages: Vec<PromptMessage>) -> Self {
        Self { messages, ..Self::default() }
    }
}

/// A message of a prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptMessage {
    /// The sender.
    pub role: Role,
    /// The content.
    pub content: ContentBlock,
}

impl PromptMessage {
    /// Creates a message.
    pub fn new(role: Role, content: ContentBlock) -> Self {
        Self { role, content }
    }
}
