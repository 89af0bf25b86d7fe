//! The results of tools, prompts and resources.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mrtr_schema::content::{ContentBlock, ResourceContents, Role};
use mrtr_schema::prompt::{GetPromptResult, PromptMessage};
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use serde_json::Value;

/// The result of a tool. Text and content blocks convert into it.
#[derive(Debug)]
pub struct ToolOutput(pub(crate) Box<CallToolResult>);

impl ToolOutput {
    /// Creates a result with text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        Self::content([ContentBlock::text(text)])
    }

    /// Creates a result with any content for the model.
    pub fn content(blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        let content = blocks.into_iter().collect();
        Self(Box::new(CallToolResult::new(content)))
    }

    /// Creates a result with a value for programs, and content with the same meaning for the model.
    /// For most tools, [`Json`](crate::Json) is simpler.
    pub fn structured(value: Value, blocks: impl IntoIterator<Item = ContentBlock>) -> Self {
        let content = blocks.into_iter().collect();
        Self(Box::new(CallToolResult::new(content).with_structured_content(value)))
    }

    /// Creates the result of a failed tool, with a message for the model.
    pub(crate) fn failure(message: String) -> CallToolResult {
        CallToolResult::error(vec![ContentBlock::text(message)])
    }
}

impl From<CallToolResult> for ToolOutput {
    fn from(result: CallToolResult) -> Self {
        Self(Box::new(result))
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

/// Creates a result without content.
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

/// The messages of a prompt. Text converts into one message of the user.
#[derive(Debug)]
pub struct PromptOutput(pub(crate) Box<GetPromptResult>);

impl PromptOutput {
    /// Creates a result with these messages.
    pub fn messages(messages: impl IntoIterator<Item = (Role, ContentBlock)>) -> Self {
        let messages =
            messages.into_iter().map(|(role, content)| PromptMessage::new(role, content));
        Self(Box::new(GetPromptResult::new(messages.collect())))
    }
}

impl From<GetPromptResult> for PromptOutput {
    fn from(result: GetPromptResult) -> Self {
        Self(Box::new(result))
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

/// The contents of a resource. Text converts into them.
///
/// A [`ReadResourceResult`] converts, too, and keeps its own caching hints. Other contents have
/// those of the resource.
#[derive(Debug)]
pub struct ResourceOutput(pub(crate) Box<ReadOutput>);

#[derive(Debug)]
pub(crate) struct ReadOutput {
    pub(crate) result: ReadResourceResult,
    pub(crate) has_own_hints: bool,
}

impl ResourceOutput {
    /// Creates the contents of a text resource.
    pub fn text(text: impl Into<String>) -> Self {
        Self::many([ResourceContents::text("", text)])
    }

    /// Creates the contents of a binary resource.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::many([ResourceContents::blob("", STANDARD.encode(bytes))])
    }

    /// Creates several contents, each with its own URI: for example, those of a directory.
    pub fn many(contents: impl IntoIterator<Item = ResourceContents>) -> Self {
        let contents = contents.into_iter().collect();
        let result = ReadResourceResult::new(contents);
        Self(Box::new(ReadOutput { result, has_own_hints: false }))
    }
}

impl From<ReadResourceResult> for ResourceOutput {
    fn from(result: ReadResourceResult) -> Self {
        Self(Box::new(ReadOutput { result, has_own_hints: true }))
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
