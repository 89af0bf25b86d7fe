//! Prompts. They ask questions as tools do.

use std::fmt;

use mrtr_schema::content::{ContentBlock, Role};
use mrtr_schema::prompt::{GetPromptResult, Prompt as WirePrompt, PromptArgument, PromptMessage};

use crate::completion::Completer;
use crate::handler::{Erased, Handler, Parts};
use crate::manual::InputRequired;
use crate::tool::{CallOptions, Output};

/// A prompt: its description for clients, and its handler.
///
/// A prompt's arguments are all texts. The handler's type says which there are: its fields are
/// strings, or optional strings.
pub struct Prompt {
    pub(crate) wire: WirePrompt,
    pub(crate) rules: CallOptions,
    pub(crate) handler: Erased<PromptOutput>,
    pub(crate) completers: Vec<(String, Completer)>,
}

impl Prompt {
    /// A prompt. Its arguments come from the handler's type.
    pub fn new<A>(
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl Handler<A, PromptOutput>,
    ) -> Self {
        let Parts { arguments: schema, call: handler, .. } = handler.erase();
        let required = |name: &str| {
            let all = schema.get("required").and_then(|r| r.as_array());
            all.is_some_and(|all| all.iter().any(|one| one == name))
        };
        let properties = schema.get("properties").and_then(|p| p.as_object());
        let arguments = properties.into_iter().flatten().map(|(name, property)| {
            let mut argument = PromptArgument::new(name);
            let description = property.get("description").and_then(|d| d.as_str());
            argument.description = description.map(str::to_owned);
            argument.required = required(name);
            argument
        });
        let mut wire = WirePrompt::new(name).with_description(description);
        wire.arguments = arguments.collect();
        Self { wire, rules: CallOptions::default(), handler, completers: Vec::new() }
    }
}

impl fmt::Debug for Prompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prompt").field("wire", &self.wire).finish_non_exhaustive()
    }
}

/// A prompt's messages. Text turns into one message of the user's.
#[derive(Debug)]
pub struct PromptOutput(pub(crate) Output<GetPromptResult>);

impl PromptOutput {
    /// These messages.
    pub fn messages(messages: impl IntoIterator<Item = (Role, ContentBlock)>) -> Self {
        let messages =
            messages.into_iter().map(|(role, content)| PromptMessage::new(role, content));
        Self(Output::complete(GetPromptResult::new(messages.collect())))
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

impl From<InputRequired> for PromptOutput {
    fn from(questions: InputRequired) -> Self {
        Self(Output::questions(questions))
    }
}
