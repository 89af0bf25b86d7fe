//! Results of calls whose server may request input.

use mrtr_schema::content::ContentBlock;
use mrtr_schema::icon::Icon;
use mrtr_schema::method;
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use serde::de::DeserializeOwned;

use crate::error::CallError;
use crate::tool_info::ToolInfo;

/// The result of a call whose server may request input: [`CallToolResult`], [`GetPromptResult`] or
/// [`ReadResourceResult`]. Sealed.
pub trait CallResult: DeserializeOwned + sealed::Sealed {}

impl CallResult for CallToolResult {}
impl CallResult for GetPromptResult {}
impl CallResult for ReadResourceResult {}

pub(crate) mod sealed {
    use super::{CallError, ToolInfo};

    pub trait Sealed: Sized {
        /// The method of the call.
        const METHOD: &'static str;

        /// Validates a received result, and removes what is unsafe to show.
        #[expect(private_interfaces, reason = "the trait is sealed")]
        fn received(self, target: &str, tool: Option<&ToolInfo>) -> Result<Self, CallError>;
    }
}

impl sealed::Sealed for CallToolResult {
    const METHOD: &'static str = method::TOOLS_CALL;

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn received(mut self, target: &str, tool: Option<&ToolInfo>) -> Result<Self, CallError> {
        self.content.iter_mut().for_each(remove_unsafe_icons);
        if let Some(tool) = tool {
            tool.output_schema.validate(&self).map_err(|why| {
                CallError::protocol(format!("invalid result of tool {target:?}: {why}"))
            })?;
        }
        Ok(self)
    }
}

impl sealed::Sealed for GetPromptResult {
    const METHOD: &'static str = method::PROMPTS_GET;

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn received(mut self, _: &str, _: Option<&ToolInfo>) -> Result<Self, CallError> {
        self.messages.iter_mut().for_each(|message| remove_unsafe_icons(&mut message.content));
        Ok(self)
    }
}

impl sealed::Sealed for ReadResourceResult {
    const METHOD: &'static str = method::RESOURCES_READ;

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn received(self, _: &str, _: Option<&ToolInfo>) -> Result<Self, CallError> {
        Ok(self)
    }
}

fn remove_unsafe_icons(block: &mut ContentBlock) {
    if let ContentBlock::ResourceLink(link) = block {
        link.icons.retain(Icon::is_safe);
    }
}
