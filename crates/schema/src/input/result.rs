//! The result that asks for input.

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::input::{InputRequest, InputRequests};
use crate::result::ResultType;

/// A result that asks for input instead of completing the call. At least one of `input_requests`
/// and `request_state` is present.
///
/// # Example
///
/// ```
/// use mrtr_schema::elicitation::{ElicitParams, FormParams};
/// use mrtr_schema::form::{Field, FormSchema};
/// use mrtr_schema::input::{InputRequest, InputRequiredResult};
///
/// let form = FormSchema::new([Field::boolean("sure")]);
/// let question = InputRequest::Elicit(FormParams::new("Cancel the booking?", form).into());
/// let requests = vec![("sure".to_owned(), question)];
/// let result = InputRequiredResult::new(requests, Some("v1.x".to_owned()));
///
/// let json = serde_json::to_value(&result)?;
/// assert_eq!(json["resultType"], "input_required");
/// assert_eq!(json["inputRequests"]["sure"]["method"], "elicitation/create");
/// assert_eq!(json["requestState"], "v1.x");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct InputRequiredResult {
    /// Always [`ResultType::InputRequired`].
    pub result_type: ResultType,
    /// The requests that the client must answer before its next round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<InputRequests>,
    /// The opaque state that the client must return unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl InputRequiredResult {
    /// Creates a result. An empty list of requests is omitted from the JSON.
    pub fn new(requests: Vec<(String, InputRequest)>, state: Option<String>) -> Self {
        Self {
            result_type: ResultType::InputRequired,
            input_requests: (!requests.is_empty()).then_some(InputRequests(requests)),
            request_state: state,
            meta: None,
        }
    }
}
