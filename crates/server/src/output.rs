//! The results of tools, prompts and resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mrtr_schema::content::{ContentBlock, ResourceContents, Role};
use mrtr_schema::prompt::{GetPromptResult, PromptMessage};
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use serde_json::Value;

/// What a tool came to. Text turns into it, and so does [`InputRequired`].
#[derive(Debug)]
pub struct ToolOutput(pub(crate) Box<CallToolResult>);

impl ToolOutput {
    /// Text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self::content([ContentBlock::text(text)])
    }

    /// Any content for the model.
    pub fn content(blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        let content = blocks.into_iter().collect();
        Self(Box::new(CallToolResult::new(content)))
    }

    /// A value for programs, and content for the model that says the same in its own way. For most
    /// tools, [`Json`] is simpler.
    pub fn structured(value: Value, blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        let content = blocks.into_iter().collect();
        Self(Box::new(CallToolResult::new(content).with_structured_content(value)))
    }

    /// A failure that the model should read.
    pub(crate) fn failure(message: String) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text(message)])
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<ContentBlock> for ToolOutput {
    fn from(block: ContentBlock) -> Self {
        Self::content([block])
    }
}

impl From<Vec<ContentBlock>> for ToolOutput {
    fn from(blocks: Vec<ContentBlock>) -> Self {
        Self::content(blocks)
    }
}

/// No content.
impl From<()> for ToolOutput {
    fn from((): ()) -> Self {
        Self::content([])
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// A prompt's messages. Text turns into one message of the user's.
#[derive(Debug)]
pub struct PromptOutput(pub(crate) Box<GetPromptResult>);

impl PromptOutput {
    /// These messages.
    pub fn messages(messages: impl IntoIterator<Item = (Role, ContentBlock)>) -> Self {
        let messages =
            messages.into_iter().map(|(role, content)| PromptMessage::new(role, content));
        Self(Box::new(GetPromptResult::new(messages.collect())))
    }
}

impl From<String> for PromptOutput {
    fn from(text: String) -> Self {
        Self::messages([(Role::User, ContentBlock::text(text))])
    }
}

impl From<&str> for PromptOutput {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A resource's contents. Text turns into it.
#[derive(Debug)]
pub struct ResourceOutput(pub(crate) Box<ReadResourceResult>);

impl ResourceOutput {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::many([ResourceContents::text("", text)])
    }

    /// Bytes.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::many([ResourceContents::blob("", STANDARD.encode(bytes))])
    }

    /// Several contents, with URIs of their own: a directory.
    pub fn many(contents: impl IntoIterator<Item = ResourceContents>) -> Self {
        let contents = contents.into_iter().collect();
        Self(Box::new(ReadResourceResult::new(contents)))
    }
}

impl From<String> for ResourceOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ResourceOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}
