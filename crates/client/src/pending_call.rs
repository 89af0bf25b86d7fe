//! A call between two of its rounds.

use std::fmt;
use std::time::Duration;

use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::peer_text::quote;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::answers;
use crate::error::CallError;

/// The version of the serialized form.
const FORMAT: u32 = 1;

/// A call that waits: for answers, or, if it has no [`questions`](Self::questions), only to be sent again.
///
/// It is data: write it down (as JSON, or in any other format of serde that knows maps), let days pass, and go on with
/// [`Client::resume`](crate::Client::resume) or [`Client::finish`](crate::Client::finish) in another process. Whoever goes on has
/// to be the caller that began, as the server knows it, and before the server's state runs out, which for a server made
/// with mrtr is after 10 minutes unless the tool allows more.
///
/// It holds what was called, with its arguments, what was asked, how many rounds there were, and the server's state, which whoever
/// has the caller's credentials can use: keep it like a session. There are no answers in it, and no credentials.
///
/// The form of the JSON is stable: a later version of this crate reads what an earlier one wrote, or refuses it and says which
/// versions it knows. The state is the server's own bytes, whatever they are.
#[derive(Clone)]
pub struct PendingCall {
    pub(crate) method: String,
    pub(crate) params: Vec<(String, Box<RawValue>)>,
    pub(crate) state: Option<String>,
    pub(crate) asked: Option<InputRequests>,
    pub(crate) question_rounds: u32,
    pub(crate) state_rounds: u32,
    /// State-only rounds since the last questions; they set the pace.
    pub(crate) pace: u32,
}

impl PendingCall {
    /// A call that is to begin.
    pub(crate) fn new(method: String, params: Vec<(String, Box<RawValue>)>) -> Self {
        Self {
            method,
            params,
            state: None,
            asked: None,
            question_rounds: 0,
            state_rounds: 0,
            pace: 0,
        }
    }

    /// The method that was called, such as `tools/call`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The name of the tool or prompt, or the URI of the resource; empty for other methods.
    pub fn target(&self) -> String {
        self.param("name").or_else(|| self.param("uri")).unwrap_or_default()
    }

    pub(crate) fn param<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, raw) = self.params.iter().find(|(param, _)| param == name)?;
        serde_json::from_str(raw.get()).ok()
    }

    /// What the server asks, under its keys.
    pub fn questions(&self) -> &InputRequests {
        const NONE: &InputRequests = &InputRequests(Vec::new());
        self.asked.as_ref().unwrap_or(NONE)
    }

    /// Which round with questions this is, from 1.
    pub fn round(&self) -> u32 {
        self.question_rounds
    }

    /// How long to wait before it is sent again, if nothing is asked.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(250.min(50 << self.pace.saturating_sub(1).min(3)))
    }

    /// Holds answers against the questions: one for each, forms as they were asked for, and nothing of a form that was
    /// declined or dismissed.
    ///
    /// # Errors
    ///
    /// [`CallError::is_handler`], with the question's key. The call can be gone on with by other answers.
    pub fn check(&self, answers: &InputResponses) -> Result<InputResponses, CallError> {
        let extra =
            answers.0.iter().find(|(key, _)| !self.questions().0.iter().any(|(k, _)| k == key));
        if let Some((key, _)) = extra {
            let key = quote(key);
            return Err(CallError::handler(format!("there is no question {key} to answer"), None));
        }
        let checked = self.questions().0.iter().map(|(key, request)| {
            let missing = || {
                let key = quote(key);
                CallError::handler(format!("there is no answer to the question {key}"), None)
            };
            let answer = answers.get(key).ok_or_else(missing)?;
            Ok((key.clone(), answers::check(key, request, answer)?))
        });
        checked.collect::<Result<_, _>>().map(InputResponses)
    }
}

/// As it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    /// The version of this form.
    mrtr_continuation: u32,
    method: String,
    /// JSON texts, so that numbers stay as they were written, whatever the format.
    params: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_requests: Option<String>,
    question_rounds: u32,
    state_rounds: u32,
    pace: u32,
}

impl Serialize for PendingCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let asked = self.asked.as_ref().map(serde_json::to_string).transpose();
        let written = Written {
            mrtr_continuation: FORMAT,
            method: self.method.clone(),
            params: self
                .params
                .iter()
                .map(|(name, raw)| (name.clone(), raw.get().to_owned()))
                .collect(),
            request_state: self.state.clone(),
            input_requests: asked.map_err(serde::ser::Error::custom)?,
            question_rounds: self.question_rounds,
            state_rounds: self.state_rounds,
            pace: self.pace,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PendingCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        if written.mrtr_continuation != FORMAT {
            return Err(D::Error::custom(format_args!(
                "a continuation of version {}; this client knows version {FORMAT}",
                written.mrtr_continuation
            )));
        }
        if !may_ask(&written.method) {
            return Err(D::Error::custom(format_args!(
                "{:?} is no call that asks",
                written.method
            )));
        }
        if written.input_requests.is_none() && written.request_state.is_none() {
            return Err(D::Error::custom("a continuation with neither questions nor a state"));
        }
        let raw = |(name, text): (String, String)| {
            let raw = RawValue::from_string(text);
            raw.map(|raw| (name, raw)).map_err(D::Error::custom)
        };
        let asked = written.input_requests.as_deref().map(serde_json::from_str).transpose();
        Ok(Self {
            method: written.method,
            params: written.params.into_iter().map(raw).collect::<Result<_, _>>()?,
            state: written.request_state,
            asked: asked.map_err(D::Error::custom)?,
            question_rounds: written.question_rounds,
            state_rounds: written.state_rounds,
            pace: written.pace,
        })
    }
}

/// Whether a method is one whose results may ask.
pub(crate) fn may_ask(method: &str) -> bool {
    use mrtr_schema::method;
    matches!(method, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ)
}

impl fmt::Debug for PendingCall {
    /// Without arguments and state.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.questions().0.iter().map(|(key, _)| key).collect();
        f.debug_struct("PendingCall")
            .field("method", &self.method)
            .field("target", &self.target())
            .field("questions", &keys)
            .field("round", &self.question_rounds)
            .finish_non_exhaustive()
    }
}

/// An answer as JSON.
pub(crate) fn write(answer: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    serde_json::value::to_raw_value(answer)
        .map_err(|e| CallError::handler(format!("the answer is no JSON: {e}"), None))
}
