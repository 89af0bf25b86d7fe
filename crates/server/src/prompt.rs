//! Prompts, whose handlers can ask questions like those of tools.

use std::fmt;

use mrtr_schema::prompt::{Prompt as WirePrompt, PromptArgument};

use crate::call_options::CallOptions;
use crate::completion::Completers;
use crate::context::Context;
use crate::handler::{ErasedHandler, Handler, HandlerParts};
use crate::manual::ManualContext;
use crate::output::PromptOutput;

/// A prompt: its description for clients, and its handler.
///
/// The arguments of a prompt are the fields of the handler's argument type. All of them are strings
/// or optional strings.
pub struct Prompt {
    pub(crate) wire: WirePrompt,
    pub(crate) options: CallOptions,
    pub(crate) handler: ErasedHandler<PromptOutput>,
    pub(crate) completers: Completers,
}

impl Prompt {
    /// Creates a prompt. Its arguments come from the handler's type.
    pub fn new<P>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Handler<Context, P, PromptOutput>,
    ) -> Self {
        Self::from_parts(name.into(), description.into(), handler.erase(), false)
    }

    /// Creates a prompt whose handler is in the [manual form](crate::manual).
    pub fn manual<P>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Handler<ManualContext, P, PromptOutput>,
    ) -> Self {
        Self::from_parts(name.into(), description.into(), handler.erase(), true)
    }

    /// Replaces the name, the arguments and everything else that clients get to know of the prompt.
    ///
    /// For prompts that are defined by data, such as those of another server.
    pub fn definition(mut self, definition: WirePrompt) -> Self {
        self.wire = definition;
        self
    }

    fn from_parts(
        name: String,
        description: String,
        handler: HandlerParts<PromptOutput>,
        manual: bool,
    ) -> Self {
        let HandlerParts { arguments: schema, requirements, call, .. } = handler;
        let required = |name: &str| {
            let all = schema.get("required").and_then(|r| r.as_array());
            all.is_some_and(|all| all.iter().any(|one| one == name))
        };
        let properties = schema.get("properties").and_then(|p| p.as_object());
        let arguments = properties.into_iter().flatten().map(|(name, property)| {
            let mut argument = PromptArgument::new(name);
            argument.required = required(name);
            argument.description =
                property.get("description").and_then(|d| d.as_str()).map(str::to_owned);
            argument
        });
        let mut wire = WirePrompt::new(name).with_description(description);
        wire.arguments = arguments.collect();
        let options = CallOptions::new(requirements, manual);
        Self { wire, options, handler: call, completers: Completers::default() }
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt").field("wire", &self.wire).finish_non_exhaustive()
    }
}
