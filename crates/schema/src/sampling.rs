//! `sampling/createMessage` as an input request (specification: client, "Sampling"). Deprecated in
//! this revision.

mod validate;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::Object;
use crate::content::{ContentBlock, MediaContent, Role, TextContent};
use crate::json::read;
use crate::tool::{Tool, some};

/// What the server asks a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessageParams {
    /// The conversation.
    pub messages: Vec<SamplingMessage>,
    /// Which model would suit. The client may ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// A system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Context of which servers to include; all but `none` is deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_context: Option<IncludeContext>,
    /// Temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// At most how many tokens.
    pub max_tokens: u64,
    /// Where to stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// For the model's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// Tools that the model may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
    /// How it may use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
}

impl CreateMessageParams {
    /// One user message.
    pub fn user(text: impl Into<String>, max_tokens: u64) -> Self {
        let message = SamplingMessage {
            role: Role::User,
            content: vec![SamplingContent::text(text)].into(),
            meta: None,
        };
        Self { messages: vec![message], max_tokens, ..Self::default() }
    }

    /// Whether the client needs the `sampling.tools` capability for this.
    pub fn uses_tools(&self) -> bool {
        self.tools.is_some() || self.tool_choice.is_some()
    }
}

/// Context of which servers a model should see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncludeContext {
    /// Of none.
    None,
    /// Of this server. Deprecated.
    ThisServer,
    /// Of all servers. Deprecated.
    AllServers,
}

/// Whether the model uses tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChoice {
    /// Default: `auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ToolChoiceMode>,
}

/// See [`ToolChoice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoiceMode {
    /// The model decides.
    Auto,
    /// It must use one.
    Required,
    /// It must use none.
    None,
}

/// Which model would suit; each priority is from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    /// In order of preference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<ModelHint>>,
    /// How much cost matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_priority: Option<f64>,
    /// How much speed matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_priority: Option<f64>,
    /// How much ability matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intelligence_priority: Option<f64>,
}

/// Part of a model's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHint {
    /// Part of a model's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One message of a conversation with a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: SamplingContents,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessageResult {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: SamplingContents,
    /// Which model said it.
    pub model: String,
    /// Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse` or the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl CreateMessageResult {
    /// An assistant's text.
    pub fn text(text: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            role: Role::Assistant,
            content: vec![SamplingContent::text(text)].into(),
            model: model.into(),
            stop_reason: Some("endTurn".to_owned()),
            meta: None,
        }
    }
}

/// One block or a list of blocks; both forms are on the wire, a single block is written alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingContents(Vec<SamplingContent>);

impl SamplingContents {
    /// The blocks.
    pub fn blocks(&self) -> &[SamplingContent] {
        &self.0
    }

    /// All text, joined by line breaks.
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
        let read = |value: &Value| read(&value.to_string()).map_err(D::Error::custom);
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
    /// A picture.
    Image(MediaContent),
    /// Sound.
    Audio(MediaContent),
    /// The model wants to use a tool.
    ToolUse(ToolUse),
    /// What the tool came to.
    ToolResult(ToolResult),
}

impl SamplingContent {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent { text: text.into(), annotations: None, meta: None })
    }
}

/// A model's wish to use a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Matches the result to the wish.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments.
    pub input: Object,
    /// Metadata; preserve it.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

/// What a tool came to, for a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The id of the [`ToolUse`].
    pub tool_use_id: String,
    /// The result.
    pub content: Vec<ContentBlock>,
    /// The result for programs: any JSON value, `null` too.
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Metadata; preserve it.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}
