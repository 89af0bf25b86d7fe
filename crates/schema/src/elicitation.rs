//! `elicitation/create` as an input request (specification: client, "Elicitation").

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::form::FormSchema;
use crate::json::take_member;
use crate::{Object, uri};

/// A question to the user. The variant is picked by `mode`; an absent mode means form.
///
/// # Example
///
/// ```
/// use mrtr_schema::elicitation::{ElicitParams, UrlParams};
///
/// let json = r#"{"message":"How many?","requestedSchema":{"type":"object","properties":{
///     "people": {"type":"integer","minimum":1}},"required":["people"]}}"#;
/// let ElicitParams::Form(form) = serde_json::from_str(json)? else { panic!("not a form") };
/// assert_eq!(form.requested_schema.fields[0].name, "people");
///
/// let visit = UrlParams::new("Sign in", "https://id.example/login?state=x");
/// assert_eq!(visit.host(), "id.example");
/// let json = serde_json::to_value(ElicitParams::from(visit))?;
/// assert_eq!(json["mode"], "url");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ElicitParams {
    /// Asks the user to fill in a form in the client.
    Form(FormParams),
    /// Asks the user to visit a URL, outside the client.
    Url(UrlParams),
}

/// A form to fill in.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FormParams {
    /// The question.
    pub message: String,
    /// The fields of the form.
    pub requested_schema: FormSchema,
}

impl FormParams {
    /// Creates a question with a form.
    pub fn new(message: impl Into<String>, requested_schema: FormSchema) -> Self {
        Self { message: message.into(), requested_schema }
    }
}

/// A URL to visit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UrlParams {
    /// The reason for the visit.
    pub message: String,
    /// The URL. A client must show all of it, ask for consent before it opens it, and never fetch
    /// it itself.
    pub url: String,
}

impl UrlParams {
    /// Creates a question with a URL.
    pub fn new(message: impl Into<String>, url: impl Into<String>) -> Self {
        Self { message: message.into(), url: url.into() }
    }

    /// Returns the host and port of the URL, to be shown to the user: without user information,
    /// which can look like a host. Empty if the URL has no host.
    pub fn host(&self) -> &str {
        uri::host(&self.url)
    }
}

impl ElicitParams {
    /// Returns the message for the user.
    pub fn message(&self) -> &str {
        match self {
            Self::Form(form) => &form.message,
            Self::Url(url) => &url.message,
        }
    }
}

impl From<FormParams> for ElicitParams {
    fn from(params: FormParams) -> Self {
        Self::Form(params)
    }
}

impl From<UrlParams> for ElicitParams {
    fn from(params: UrlParams) -> Self {
        Self::Url(params)
    }
}

impl Serialize for ElicitParams {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        match self {
            Self::Form(form) => {
                map.serialize_entry("mode", "form")?;
                map.serialize_entry("message", &form.message)?;
                map.serialize_entry("requestedSchema", &form.requested_schema)?;
            }
            Self::Url(url) => {
                map.serialize_entry("mode", "url")?;
                map.serialize_entry("message", &url.message)?;
                map.serialize_entry("url", &url.url)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ElicitParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_params(Object::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn read_params(mut object: Object) -> Result<ElicitParams, String> {
    fn require<T>(name: &str, value: Option<T>) -> Result<T, String> {
        value.ok_or_else(|| format!("missing field `{name}`"))
    }
    let mode: Option<String> = take_member(&mut object, "mode")?;
    let message = require("message", take_member(&mut object, "message")?)?;
    match mode.as_deref() {
        None | Some("form") => {
            let schema = take_member(&mut object, "requestedSchema")?;
            let requested_schema = require("requestedSchema", schema)?;
            Ok(ElicitParams::Form(FormParams { message, requested_schema }))
        }
        Some("url") => {
            let url = require("url", take_member(&mut object, "url")?)?;
            Ok(ElicitParams::Url(UrlParams { message, url }))
        }
        Some(other) => Err(format!("unknown `mode` {other:?}, expected \"form\" or \"url\"")),
    }
}

/// The user's answer to an elicitation.
///
/// # Example
///
/// ```
/// use mrtr_schema::elicitation::{ElicitAction, ElicitResult};
/// use serde_json::json;
///
/// let answer = ElicitResult::accept(json!({ "people": 4 }))?;
/// let expected = json!({ "action": "accept", "content": { "people": 4 } });
/// assert_eq!(serde_json::to_value(&answer)?, expected);
/// assert!(ElicitResult::accept(4).is_err(), "the content of a form is an object");
///
/// let declined: ElicitResult = serde_json::from_str(r#"{"action":"decline"}"#)?;
/// assert_eq!(declined.action, ElicitAction::Decline);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ElicitResult {
    /// The user's choice.
    pub action: ElicitAction,
    /// The content of the form; only with [`ElicitAction::Accept`], and only in form mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Object>,
}

impl ElicitResult {
    /// Creates an answer from its parts.
    pub fn new(action: ElicitAction, content: Option<Object>) -> Self {
        Self { action, content }
    }

    /// Submits a form. `content` must serialize to a JSON object.
    ///
    /// # Errors
    ///
    /// Fails if `content` does not serialize to a JSON object.
    pub fn accept(content: impl Serialize) -> Result<Self, serde_json::Error> {
        match serde_json::to_value(content)? {
            Value::Object(content) => Ok(Self::new(ElicitAction::Accept, Some(content))),
            _ => Err(serde_json::Error::custom("the content of a form must be an object")),
        }
    }

    /// Agrees to visit a URL.
    pub fn accept_url() -> Self {
        Self::new(ElicitAction::Accept, None)
    }

    /// Declines the request.
    pub fn decline() -> Self {
        Self::new(ElicitAction::Decline, None)
    }

    /// Cancels the request: the user made no choice.
    pub fn cancel() -> Self {
        Self::new(ElicitAction::Cancel, None)
    }
}

/// The user's choice. The protocol has exactly these three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElicitAction {
    /// Submitted the form or agreed to the visit.
    Accept,
    /// Declined explicitly.
    Decline,
    /// Cancelled: no choice was made.
    Cancel,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_picks_the_variant_and_absent_mode_means_form() {
        let read = serde_json::from_str::<ElicitParams>;
        let schema = r#""requestedSchema":{"type":"object","properties":{}}"#;
        let form = format!(r#"{{"message":"m",{schema}}}"#);
        assert!(matches!(read(&form), Ok(ElicitParams::Form(_))));
        assert!(matches!(
            read(r#"{"mode":"url","message":"m","url":"https://a.example"}"#),
            Ok(ElicitParams::Url(_))
        ));
        for (text, part) in [
            (r#"{"mode":"video","message":"m"}"#, "unknown `mode` \"video\""),
            (r#"{"mode":"url","message":"m"}"#, "missing field `url`"),
            (r#"{"message":"m"}"#, "missing field `requestedSchema`"),
            (r#"{"mode":"form"}"#, "missing field `message`"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
