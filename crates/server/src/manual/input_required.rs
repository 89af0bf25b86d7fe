//! The return values of handlers in the manual form.

use mrtr_schema::elicitation::{ElicitParams, FormParams, UrlParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::sampling::CreateMessageParams;
use mrtr_schema::tasks::Task;
use schemars::JsonSchema;
use serde::Serialize;

use crate::form::form_of;
use crate::output::{PromptOutput, ResourceOutput, ToolOutput};

/// The input requests that a handler returns instead of a result, and the state for the next round.
#[derive(Debug, Default)]
#[must_use = "return it from the handler"]
pub struct InputRequired {
    pub(crate) requests: Vec<(String, InputRequest)>,
    pub(crate) state: Option<String>,
    /// The first mistake. It is reported when the handler returns.
    pub(crate) mistake: Option<String>,
}

impl InputRequired {
    /// Creates a value without questions. If none is added, the round ends with request state
    /// alone, and the client sends its next request without user input.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the user to fill in the form of `T`.
    ///
    /// The call fails with an internal error if `T` has no form, or if the key is used twice.
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
            Err(why) => self.mistake(format!("the question {:?} is invalid: {why}", key.into())),
        }
    }

    /// Asks the user to visit a URL.
    pub fn elicit_url(
        self,
        key: impl Into<String>,
        message: impl Into<String>,
        url: impl Into<String>,
    ) -> Self {
        let params = UrlParams::new(message, url);
        self.ask(key, InputRequest::Elicit(ElicitParams::Url(params)))
    }

    /// Requests a message of the client's language model. Deprecated in this revision of the
    /// protocol.
    pub fn sample(self, key: impl Into<String>, params: CreateMessageParams) -> Self {
        self.ask(key, InputRequest::Sample(Box::new(params)))
    }

    /// Requests the client's roots. Deprecated in this revision of the protocol.
    pub fn roots(self, key: impl Into<String>) -> Self {
        self.ask(key, InputRequest::Roots)
    }

    /// Adds any input request under `key`.
    pub fn ask(mut self, key: impl Into<String>, request: InputRequest) -> Self {
        let key = key.into();
        if self.requests.iter().any(|(other, _)| *other == key) {
            return self.mistake(format!("the key {key:?} is used twice"));
        }
        self.requests.push((key, request));
        self
    }

    /// Seals `state` into the request state, for the next round. It replaces an earlier `state`.
    /// Without it, the next round has no state.
    pub fn state(mut self, state: &impl Serialize) -> Self {
        match serde_json::to_string(state) {
            Ok(text) => {
                self.state = Some(text);
                self
            }
            Err(error) => self.mistake(format!("the state cannot be serialized as JSON: {error}")),
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
    /// Another server has made a task of the call. For handlers that forward calls: the handler's
    /// server must answer requests about it (extension `io.modelcontextprotocol/tasks`).
    ///
    /// Only tools can return it, to clients that declared the extension. For other calls it is an
    /// internal error.
    Task(Box<Task>),
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
