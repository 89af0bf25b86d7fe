//! Results of calls whose server may request input.

use mrtr_schema::content::ContentBlock;
use mrtr_schema::icon::Icon;
use mrtr_schema::method;
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use serde::de::DeserializeOwned;

use crate::tool_info::ToolInfo;

/// The result of a call whose server may request input: [`CallToolResult`], [`GetPromptResult`] or
/// [`ReadResourceResult`]. Sealed.
pub trait CallResult: DeserializeOwned + sealed::Sealed {}

impl CallResult for CallToolResult {}
impl CallResult for GetPromptResult {}
impl CallResult for ReadResourceResult {}

pub(crate) mod sealed {
    use super::ToolInfo;

    pub trait Sealed: Sized {
        /// The method of the call.
        const METHOD: &'static str;

        /// Removes what is unsafe to show.
        fn remove_unsafe(&mut self) {}

        /// Checks that a result matches the schema of its tool.
        #[expect(private_interfaces, reason = "the trait is sealed")]
        fn check(&self, _: &ToolInfo) -> Result<(), String> {
            Ok(())
        }
    }
}

impl sealed::Sealed for CallToolResult {
    const METHOD: &'static str = method::TOOLS_CALL;

    fn remove_unsafe(&mut self) {
        self.content.iter_mut().for_each(remove_unsafe_icons);
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn check(&self, tool: &ToolInfo) -> Result<(), String> {
        tool.output_schema.validate(self)
    }
}

impl sealed::Sealed for GetPromptResult {
    const METHOD: &'static str = method::PROMPTS_GET;

    fn remove_unsafe(&mut self) {
        self.messages.iter_mut().for_each(|message| remove_unsafe_icons(&mut message.content));
    }
}

impl sealed::Sealed for ReadResourceResult {
    const METHOD: &'static str = method::RESOURCES_READ;
}

fn remove_unsafe_icons(block: &mut ContentBlock) {
    if let ContentBlock::ResourceLink(link) = block {
        link.icons.retain(Icon::is_safe);
    }
}
