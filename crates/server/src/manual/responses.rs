//! The input responses that arrived with a request.

use mrtr_schema::input::InputResponses;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::form::form_of;
use crate::form_answer::read_form;
use crate::rounds::ElicitOutcome;

/// The input of a handler in the manual form: its state, and the answers of the request.
#[derive(Debug, Default)]
pub(crate) struct ManualInput {
    pub(crate) state: Option<String>,
    pub(crate) answers: Answers,
    pub(crate) unsolicited: Answers,
}

/// The answers that arrived with a request, for a handler in the manual form.
///
/// The answers are not validated before they are read. The state does not contain the form that was
/// sent: [`Answers::form`] validates an answer against the form of the type that it is read into.
#[derive(Debug, Clone, Default)]
pub struct Answers(pub(crate) InputResponses);

impl Answers {
    /// Returns the content of the form under `key`, if the user submitted it and it is valid for
    /// the form of `T`, including limits and formats.
    pub fn form<T: DeserializeOwned + JsonSchema + 'static>(&self, key: &str) -> Option<T> {
        match read_form(&*form_of::<T>().ok()?, self.get(key)?.get()) {
            Ok(ElicitOutcome::Accept(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the answer under `key`, if it deserializes as `T`: an `ElicitResult`,
    /// `CreateMessageResult` or `ListRootsResult`.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        self.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    /// Returns the answer under `key` as JSON text.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.get(key)
    }

    /// Returns true if there are no answers.
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}
