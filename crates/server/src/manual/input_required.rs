//! The return values of handlers in the manual form.

use mrtr_schema::elicitation::{ElicitParams, FormParams, UrlParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::sampling::CreateMessageParams;
use schemars::JsonSchema;
use serde::Serialize;

use crate::form::form_of;
use crate::output::{PromptOutput, ResourceOutput, ToolOutput};

/// Questions to return instead of a result.
#[derive(Debug, Default)]
#[must_use = "return it from the handler"]
pub struct InputRequired {
    pub(crate) requests: Vec<(String, InputRequest)>,
    pub(crate) state: Option<String>,
    /// The first mistake; it is reported when the handler returns.
    pub(crate) mistake: Option<String>,
}

impl InputRequired {
    /// No questions yet. One that stays so ends the round with state alone, and the client comes back
    /// at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the person to fill in the form of `T`.
    pub fn elicit<T: JsonSchema + 'static>(
        self,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        match form_of::<T>() {
            Ok(form) => {
                let params = FormParams::new(message, (*form).clone());
                self.ask(key, InputRequest::Elicit(ElicitParams::Form(params)))
            }
            Err(why) => {
                self.mistake(format!("the question {:?} cannot be asked: {why}", key.into()))
            }
        }
    }

    /// Asks the person to visit a URL.
    pub fn elicit_url(
        self,
        key: impl Into<String>,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Self {
        let params = UrlParams::new(message, url);
        self.ask(key, InputRequest::Elicit(ElicitParams::Url(params)))
    }

    /// Asks a model. Deprecated in this revision of the protocol.
    pub fn sample(self, key: impl Into<String>, params: CreateMessageParams) -> Self {
        self.ask(key, InputRequest::Sample(Box::new(params)))
    }

    /// Asks for the client's roots. Deprecated in this revision of the protocol.
    pub fn roots(self, key: impl Into<String>) -> Self {
        self.ask(key, InputRequest::Roots)
    }

    /// Asks anything.
    pub fn ask(mut self, key: impl Into<String>, request: InputRequest) -> Self {
        let key = key.into();
        if self.requests.iter().any(|(other, _)| *other == key) {
            return self.mistake(format!("the key {key:?} is used twice"));
        }
        self.requests.push((key, request));
        self
    }

    /// Seals `state` into the request state, for the next round. It replaces what was sealed before.
    pub fn state(mut self, state: &impl Serialize) -> Self {
        match serde_json::to_string(state) {
            Ok(text) => {
                self.state = Some(text);
                self
            }
            Err(error) => self.mistake(format!("the state cannot be kept: {error}")),
        }
    }

    fn mistake(mut self, why: String) -> Self {
        self.mistake.get_or_insert(why);
        self
    }
}

/// The return value of a handler in the manual form: a result, or input requests.
///
/// Text, `O` and [`InputRequired`] convert into it.
#[derive(Debug)]
pub enum ManualOutput<O> {
    /// The call is complete.
    Complete(O),
    /// The client has to answer first.
    InputRequired(InputRequired),
}

impl<O> From<InputRequired> for ManualOutput<O> {
    fn from(required: InputRequired) -> Self {
        Self::InputRequired(required)
    }
}

macro_rules! complete {
    ($($output:ident: $($from:ty),*;)*) => {$($(
        impl From<$from> for ManualOutput<$output> {
            fn from(output: $from) -> Self {
                Self::Complete(output.into())
            }
        }
    )*)*};
}
complete! {
    ToolOutput: ToolOutput, String, &str;
    PromptOutput: PromptOutput, String, &str;
    ResourceOutput: ResourceOutput, String, &str;
}
