//! A call that is paused between two of its rounds, as data.

use std::fmt;
use std::time::Duration;

use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use mrtr_schema::tasks::Task;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::answers;
use crate::error::CallError;
use crate::pending_task::PendingTask;

/// The version of the serialized form of a call that is not a task.
const FORMAT: u32 = 1;
/// The version of the serialized form of a task.
const TASK_FORMAT: u32 = 2;

/// A paused call: it waits for input responses, or, without
/// [`input_requests`](Self::input_requests), only to be sent again. If the server turned the call
/// into a task ([`task_id`](Self::task_id)), the server continues it meanwhile.
///
/// It is data. Serialize it (as JSON, or any other format of serde with maps), and resume it with
/// [`Client::resume`](crate::Client::resume) or [`Client::finish`](crate::Client::finish), even in
/// another process and days later. The same principal has to resume it that started it, before the
/// server's request state expires. The state of a server built with mrtr expires after 10 minutes,
/// unless the tool allows more. A task is retained for the `ttlMs` that the server stated.
///
/// # Security
///
/// It contains the arguments of the call, the input requests, and the server's request state or the
/// id of the task, which anyone with the principal's credentials can use: protect it like a
/// session. It contains no input responses and no credentials.
///
/// # Stability
///
/// The serialized form is stable and versioned. A later version of this crate either reads it, or
/// rejects it with an error that names the versions. The request state inside is opaque.
///
/// ```
/// use mrtr_client::{Client, CallOutcome, PendingCall, Transport};
/// use serde_json::json;
///
/// /// Starts a call. If the server requests input, stores the call for another process.
/// async fn start<T: Transport>(client: Client<T>) -> Result<(), Box<dyn std::error::Error>> {
///     match client.begin_tool("book", json!({ "people": 2 })).await? {
///         CallOutcome::Complete(result) => println!("{}", result.text()),
///         CallOutcome::InputRequired(call) | CallOutcome::Working(call) => {
///             std::fs::write("call.json", serde_json::to_string(&call)?)?;
///         }
///     }
///     Ok(())
/// }
///
/// /// Reads the call again, and shows the user the input requests.
/// fn show() -> Result<(), Box<dyn std::error::Error>> {
///     let call: PendingCall = serde_json::from_str(&std::fs::read_to_string("call.json")?)?;
///     for (key, request) in &call.input_requests().0 {
///         println!("{} requests {key}: {}", call.target(), request.method());
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct PendingCall {
    pub(crate) method: String,
    pub(crate) params: Vec<(String, Box<RawValue>)>,
    pub(crate) state: Option<String>,
    pub(crate) requests: Option<InputRequests>,
    pub(crate) task: Option<PendingTask>,
    pub(crate) input_rounds: u32,
    pub(crate) state_rounds: u32,
    /// The greatest number among the ids of its requests, or a greater one.
    pub(crate) last_id: i64,
    /// Rounds with request state alone, or polls of the task, since the last input requests. They
    /// set the delay.
    pub(crate) pace: u32,
}

impl PendingCall {
    /// Creates a call that was not sent yet.
    pub(crate) fn new(method: String, params: Vec<(String, Box<RawValue>)>) -> Self {
        Self {
            method,
            params,
            state: None,
            requests: None,
            task: None,
            input_rounds: 0,
            state_rounds: 0,
            last_id: 0,
            pace: 0,
        }
    }

    /// Returns the method of the call, such as `tools/call`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the name of the tool or prompt, or the URI of the resource; empty for other methods.
    pub fn target(&self) -> String {
        self.param("name").or_else(|| self.param("uri")).unwrap_or_default()
    }

    /// Returns a parameter of the call, if it is there and of this type.
    pub(crate) fn param<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let (_, raw) = self.params.iter().find(|(param, _)| param == name)?;
        serde_json::from_str(raw.get()).ok()
    }

    /// Returns the input requests, with the server's keys.
    pub fn input_requests(&self) -> &InputRequests {
        const NONE: &InputRequests = &InputRequests(Vec::new());
        self.requests.as_ref().unwrap_or(NONE)
    }

    /// Returns the id of the task, if the server turned the call into one.
    pub fn task_id(&self) -> Option<&str> {
        self.task.as_ref().map(|task| task.id.as_str())
    }

    /// Returns the task as the server described it last, if it turned the call into one. `None` if
    /// the call was deserialized, until the task is polled.
    pub fn task(&self) -> Option<&Task> {
        self.task.as_ref()?.described.as_deref()
    }

    /// Returns the number of this round among the rounds with input requests, from 1.
    pub fn input_round(&self) -> u32 {
        self.input_rounds
    }

    /// Returns the delay before the call is sent again, if there are no input requests: 50 ms at
    /// first, doubled in each round, up to 250 ms. For a task, returns the delay before its poll.
    pub(crate) fn delay(&self) -> Duration {
        const FIRST_MS: u64 = 50;
        const MAX_MS: u64 = 250;
        const MAX_DOUBLINGS: u32 = 3;
        if let Some(task) = &self.task {
            return task.delay(self.pace);
        }
        let doublings = self.pace.saturating_sub(1).min(MAX_DOUBLINGS);
        Duration::from_millis(MAX_MS.min(FIRST_MS << doublings))
    }

    /// Validates responses against the input requests, and returns them as they are sent.
    ///
    /// There must be one response for each input request, and a submitted form must match its
    /// schema. The content of declined and cancelled forms is removed.
    ///
    /// # Errors
    ///
    /// [`CallError::is_handler`], with the key of the input request. The call can be resumed with
    /// other responses.
    pub fn validate(&self, responses: &InputResponses) -> Result<InputResponses, CallError> {
        let requests = &self.input_requests().0;
        let unknown =
            responses.0.iter().find(|(key, _)| !requests.iter().any(|(other, _)| other == key));
        if let Some((key, _)) = unknown {
            let key = quote(key);
            return Err(CallError::handler(format!("no input request has the key {key}"), None));
        }
        let validated = requests.iter().map(|(key, request)| {
            let response = responses.get(key).ok_or_else(|| {
                let key = quote(key);
                CallError::handler(format!("missing response to input request {key}"), None)
            })?;
            Ok((key.clone(), answers::validate(key, request, response)?))
        });
        validated.collect::<Result<_, _>>().map(InputResponses)
    }
}

/// The serialized form. Its names do not change; `task` is there since format version 2.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    /// [`FORMAT`] or [`TASK_FORMAT`].
    mrtr_continuation: u32,
    method: String,
    /// JSON texts, so that numbers keep their digits in every format.
    params: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_requests: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<PendingTask>,
    question_rounds: u32,
    state_rounds: u32,
    #[serde(default)]
    last_id: i64,
    pace: u32,
}

impl Serialize for PendingCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let requests = self.requests.as_ref().map(serde_json::to_string).transpose();
        let stored = Stored {
            // So that older clients read the calls that they know.
            mrtr_continuation: if self.task.is_some() { TASK_FORMAT } else { FORMAT },
            method: self.method.clone(),
            params: self
                .params
                .iter()
                .map(|(name, raw)| (name.clone(), raw.get().to_owned()))
                .collect(),
            request_state: self.state.clone(),
            input_requests: requests.map_err(serde::ser::Error::custom)?,
            task: self.task.clone(),
            question_rounds: self.input_rounds,
            state_rounds: self.state_rounds,
            last_id: self.last_id,
            pace: self.pace,
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PendingCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        match (stored.mrtr_continuation, &stored.task) {
            (FORMAT, None) => {}
            (TASK_FORMAT, Some(task)) => task.validate().map_err(D::Error::custom)?,
            (FORMAT, Some(_)) | (TASK_FORMAT, None) => {
                return Err(D::Error::custom(
                    "a pending call has a task if and only if its format version is 2",
                ));
            }
            (other, _) => {
                return Err(D::Error::custom(format_args!(
                    "the pending call has the format version {other}; this client reads versions \
                     {FORMAT} and {TASK_FORMAT}"
                )));
            }
        }
        let allows_method =
            if stored.task.is_some() { allows_task } else { allows_input }(&stored.method);
        if !allows_method {
            return Err(D::Error::custom(format_args!(
                "a pending call cannot have the method {:?}",
                stored.method
            )));
        }
        let is_call = stored.task.is_none();
        if is_call && stored.input_requests.is_none() && stored.request_state.is_none() {
            return Err(D::Error::custom(
                "the pending call has neither input requests nor request state",
            ));
        }
        let raw = |(name, text): (String, String)| {
            let raw = RawValue::from_string(text);
            raw.map(|raw| (name, raw)).map_err(D::Error::custom)
        };
        let requests = stored.input_requests.as_deref().map(serde_json::from_str).transpose();
        Ok(Self {
            method: stored.method,
            params: stored.params.into_iter().map(raw).collect::<Result<_, _>>()?,
            state: stored.request_state,
            requests: requests.map_err(D::Error::custom)?,
            task: stored.task,
            input_rounds: stored.question_rounds,
            state_rounds: stored.state_rounds,
            last_id: stored.last_id,
            pace: stored.pace,
        })
    }
}

/// Returns true if servers may request input in results of `method`.
pub(crate) fn allows_input(method: &str) -> bool {
    matches!(method, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ)
}

/// Returns true if servers may turn calls of `method` into tasks.
pub(crate) fn allows_task(method: &str) -> bool {
    method == method::TOOLS_CALL
}

impl fmt::Debug for PendingCall {
    /// Leaves out the arguments, the request state and the task id, which are not for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.input_requests().0.iter().map(|(key, _)| key).collect();
        f.debug_struct("PendingCall")
            .field("method", &self.method)
            .field("target", &self.target())
            .field("input_requests", &keys)
            .field("input_round", &self.input_rounds)
            .finish_non_exhaustive()
    }
}
