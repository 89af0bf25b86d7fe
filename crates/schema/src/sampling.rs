//! `sampling/createMessage` as an input request (specification: client, "Sampling"). Deprecated in
//! this revision.

mod validate;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Object;
use crate::content::{ContentBlock, MediaContent, Role, TextContent};
use crate::json;
use crate::setters::setters;
use crate::tool::Tool;

/// A request to a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageParams {
    /// The conversation.
    pub messages: Vec<SamplingMessage>,
    /// Hints for the choice of a model. The client may ignore them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The servers whose context to include. All values but `none` are deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// The temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The maximum number of tokens.
    pub max_tokens: u64,
    /// The sequences that end the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// Parameters for the provider of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// Tools that the model may use. Needs the capability `sampling.tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// Rules for the use of tools. Needs the capability `sampling.tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

setters!(CreateMessageParams {
    with_model_preferences(model_preferences: ModelPreferences),
    with_system_prompt(system_prompt: String),
    with_include_context(include_context: IncludeContext),
    with_temperature(temperature: f64),
    with_stop_sequences(stop_sequences: Vec<String>),
    with_metadata(metadata: Object),
    with_tools(tools: Vec<Tool>),
    with_tool_choice(tool_choice: ToolChoice),
});

impl CreateMessageParams {
    /// Creates a request from a conversation.
    pub fn new(messages: Vec<SamplingMessage>, max_tokens: u64) -> Self {
        Self { messages, max_tokens, ..Self::default() }
    }

    /// Creates a request with one message of the user.
    pub fn user(text: impl Into<String>, max_tokens: u64) -> Self {
        let content = vec![SamplingContent::text(text)];
        Self::new(vec![SamplingMessage::new(Role::User, content)], max_tokens)
    }

    /// Returns true if the request needs the capability `sampling.tools`.
    pub fn uses_tools(&self) -> bool {
        self.tools.is_some() || self.tool_choice.is_some()
    }

    /// Returns true if the model may use tools (specification: client, "Sampling", tool choice
    /// modes).
    pub fn may_use_tools(&self) -> bool {
        let mode = self.tool_choice.as_ref().and_then(|choice| choice.mode);
        self.tools.is_some() && mode != Some(ToolChoiceMode::None)
    }

    /// Returns true if the request needs the capability `sampling.context`.
    pub fn uses_context(&self) -> bool {
        !matches!(self.include_context, None | Some(IncludeContext::None))
    }
}

/// The servers whose context a model sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum IncludeContext {
    /// None.
    None,
    /// This server. Deprecated.
    ThisServer,
    /// All servers. Deprecated.
    AllServers,
}

/// The rules for the use of tools by the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolChoice {
    /// Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ToolChoiceMode>,
}

setters!(ToolChoice { with_mode(mode: ToolChoiceMode) });

/// The mode of a [`ToolChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ToolChoiceMode {
    /// The model decides.
    Auto,
    /// The model must use a tool.
    Required,
    /// The model must not use a tool.
    None,
}

/// Hints for the choice of a model. Each priority is between 0 and 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelPreferences {
    /// Models in order of preference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<ModelHint>>,
    /// The importance of low cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_priority: Option<f64>,
    /// The importance of speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_priority: Option<f64>,
    /// The importance of capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intelligence_priority: Option<f64>,
}

setters!(ModelPreferences {
    with_hints(hints: Vec<ModelHint>),
    with_cost_priority(cost_priority: f64),
    with_speed_priority(speed_priority: f64),
    with_intelligence_priority(intelligence_priority: f64),
});

/// A hint at a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelHint {
    /// A part of the model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ModelHint {
    /// Creates a hint from a part of a model's name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()) }
    }
}

/// A message of a conversation with a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SamplingMessage {
    /// The sender.
    pub role: Role,
    /// The content.
    pub content: SamplingContents,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(SamplingMessage { with_meta(meta: Object) });

impl SamplingMessage {
    /// Creates a message.
    pub fn new(role: Role, content: impl Into<SamplingContents>) -> Self {
        Self { role, content: content.into(), meta: None }
    }
}

/// The message of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CreateMessageResult {
    /// The sender.
    pub role: Role,
    /// The content.
    pub content: SamplingContents,
    /// The name of the model.
    pub model: String,
    /// The reason why the message ends: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or a
    /// reason of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(CreateMessageResult { with_stop_reason(stop_reason: String), with_meta(meta: Object) });

impl CreateMessageResult {
    /// Creates a message of the assistant without a stop reason.
    pub fn new(content: impl Into<SamplingContents>, model: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            content: content.into(),
            model: model.into(),
            stop_reason: None,
            meta: None,
        }
    }

    /// Creates a message of text that ends the assistant's turn.
    pub fn text(text: impl Into<String>, model: impl Into<String>) -> Self {
        Self::new(vec![SamplingContent::text(text)], model).with_stop_reason("endTurn")
    }
}

/// The content of a message: one block or a list of blocks. A single block is written without a
/// list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingContents(Vec<SamplingContent>);

impl SamplingContents {
    /// Returns the blocks.
    pub fn blocks(&self) -> &[SamplingContent] {
        &self.0
    }

    /// Returns all text, joined by line breaks.
    pub fn joined_text(&self) -> String {
        let texts = self.0.iter().filter_map(|block| match block {
            SamplingContent::Text(content) => Some(content.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl From<Vec<SamplingContent>> for SamplingContents {
    fn from(blocks: Vec<SamplingContent>) -> Self {
        Self(blocks)
    }
}

impl Serialize for SamplingContents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            many => many.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SamplingContents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |value: &Value| json::from_str(&value.to_string()).map_err(D::Error::custom);
        match Value::deserialize(deserializer)? {
            Value::Array(items) => items.iter().map(read).collect::<Result<_, _>>().map(Self),
            value => Ok(Self(vec![read(&value)?])),
        }
    }
}

/// A block of a conversation with a model. The variant is picked by `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SamplingContent {
    /// Text.
    Text(TextContent),
    /// An image.
    Image(MediaContent),
    /// Audio.
    Audio(MediaContent),
    /// A use of a tool by the model.
    ToolUse(ToolUse),
    /// The result of a tool.
    ToolResult(ToolResult),
}

impl SamplingContent {
    /// Creates a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent::new(text))
    }
}

/// A use of a tool by the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolUse {
    /// The id, which the [`ToolResult`] repeats.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    pub input: Object,
    /// Metadata, to be preserved in later messages.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(ToolUse { with_meta(meta: Object) });

impl ToolUse {
    /// Creates a use of a tool.
    pub fn new(id: impl Into<String>, name: impl Into<String>, input: Object) -> Self {
        Self { id: id.into(), name: name.into(), input, meta: None }
    }
}

/// The result of a tool, for the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the [`ToolUse`].
    pub tool_use_id: String,
    /// The result for the model.
    pub content: Vec<ContentBlock>,
    /// The result for programs: any JSON value, including `null`.
    #[serde(default, deserialize_with = "json::present", skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// True if the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Metadata, to be preserved in later messages.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

setters!(ToolResult { with_structured_content(structured_content: Value), with_meta(meta: Object) });

impl ToolResult {
    /// Creates the result of a successful use of a tool.
    pub fn new(tool_use_id: impl Into<String>, content: Vec<ContentBlock>) -> Self {
        Self {
            tool_use_id: tool_use_id.into(),
            content,
            structured_content: None,
            is_error: false,
            meta: None,
        }
    }
}
