//! The manual form: the handler returns its questions and keeps its state itself.
//!
//! Use it where a flow is a table of states rather than a line of questions, or to bring a handler
//! that was written for another SDK. What it keeps is sealed like a journal.
//!
//! ```
//! use mrtr_server::{Context, InputRequired, Result, ToolOutput};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Draft {
//!     text: String,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Consent {
//!     send: bool,
//! }
//!
//! async fn send(cx: Context) -> Result<ToolOutput> {
//!     let Some(draft) = cx.state::<Draft>()? else {
//!         let draft = Draft { text: "Dear all".to_owned() };
//!         return Ok(InputRequired::new().elicit::<Consent>("send", "Send it?").state(&draft).into());
//!     };
//!     Ok(match cx.answers().form::<Consent>("send") {
//!         Some(Consent { send: true }) => format!("Sent: {}", draft.text).into(),
//!         _ => "Not sent.".into(),
//!     })
//! }
//! ```

use mrtr_schema::elicitation::{ElicitParams, FormParams, UrlParams};
use mrtr_schema::input::{InputRequest, InputResponses};
use mrtr_schema::sampling::CreateMessageParams;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::context::read_form;
use crate::form::form_of;
use crate::rounds::ElicitOutcome;

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

    /// Keeps `state` for the next leg. What was kept before is forgotten.
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

/// What the manual form reads.
#[derive(Default)]
pub(crate) struct Manual {
    pub(crate) state: Option<String>,
    pub(crate) answers: Answers,
    pub(crate) unasked: Answers,
}

/// Answers that came with a request, for the manual form.
///
/// They are what the client sent, held against nothing before they are read. The form that was asked for is not
/// in the state: [`Answers::form`] holds an answer against the form of the type it is read into.
#[derive(Debug, Clone, Default)]
pub struct Answers(pub(crate) InputResponses);

impl Answers {
    /// The form's contents under `key`, if the person submitted it and it fits the form of `T`, limits and
    /// formats included.
    pub fn form<T: DeserializeOwned + JsonSchema + 'static>(&self, key: &str) -> Option<T> {
        match read_form(&*form_of::<T>().ok()?, self.get(key)?.get()) {
            Ok(ElicitOutcome::Accept(value)) => Some(value),
            _ => None,
        }
    }

    /// The answer under `key`, if it reads as `T`: an `ElicitResult`, `CreateMessageResult` or
    /// `ListRootsResult`.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    /// The answer under `key`, unread.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.get(key)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}
