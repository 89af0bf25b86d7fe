//! The input responses that arrived with a request.

use mrtr_schema::input::InputResponses;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::form::form_of;
use crate::form_answer::read_form;
use crate::rounds::ElicitOutcome;

/// What a request brings to a handler in the manual form.
#[derive(Debug, Default)]
pub(crate) struct ManualInput {
    pub(crate) state: Option<String>,
    pub(crate) answers: Answers,
    pub(crate) unsolicited: Answers,
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
