//! `elicitation/create` as an input request (specification: client, "Elicitation").

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Object;
use crate::form::FormSchema;
use crate::jsonrpc::take;

/// What the server asks a person. The variant is picked by `mode`; none means form.
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitParams {
    /// Fill in a form, in the client.
    Form(FormParams),
    /// Visit a URL, out of the client's sight.
    Url(UrlParams),
}

/// A form.
#[derive(Debug, Clone, PartialEq)]
pub struct FormParams {
    /// Why the form is needed.
    pub message: String,
    /// Its fields.
    pub requested_schema: FormSchema,
}

/// A URL to visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlParams {
    /// Why the visit is needed.
    pub message: String,
    /// Where to go. A client shows all of it, asks for consent and never fetches it by itself.
    pub url: String,
}

impl ElicitParams {
    /// Why the person is asked.
    pub fn message(&self) -> &str {
        match self {
            Self::Form(form) => &form.message,
            Self::Url(url) => &url.message,
        }
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
        fn read(mut object: Object) -> Result<ElicitParams, String> {
            fn need<T>(name: &str, value: Option<T>) -> Result<T, String> {
                value.ok_or_else(|| format!("missing field `{name}`"))
            }
            let mode: Option<String> = take(&mut object, "mode")?;
            let message = need("message", take(&mut object, "message")?)?;
            match mode.as_deref() {
                None | Some("form") => Ok(ElicitParams::Form(FormParams {
                    message,
                    requested_schema: need(
                        "requestedSchema",
                        take(&mut object, "requestedSchema")?,
                    )?,
                })),
                Some("url") => {
                    let url = need("url", take(&mut object, "url")?)?;
                    Ok(ElicitParams::Url(UrlParams { message, url }))
                }
                Some(other) => {
                    Err(format!("unknown `mode` {other:?}, expected \"form\" or \"url\""))
                }
            }
        }
        read(Object::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// What the person did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElicitResult {
    /// Submitted, refused or dismissed.
    pub action: ElicitAction,
    /// The form's contents; only with [`ElicitAction::Accept`] and only in form mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Object>,
}

impl ElicitResult {
    /// Submitted, with the form's contents: anything that is written as a JSON object.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn accept(content: impl Serialize) -> Result<Self, serde_json::Error> {
        match serde_json::to_value(content)? {
            serde_json::Value::Object(content) => {
                Ok(Self { action: ElicitAction::Accept, content: Some(content) })
            }
            _ => Err(serde_json::Error::custom("the contents of a form must be an object")),
        }
    }

    /// Agreed to visit the URL.
    pub fn consent() -> Self {
        Self { action: ElicitAction::Accept, content: None }
    }

    /// Refused.
    pub fn decline() -> Self {
        Self { action: ElicitAction::Decline, content: None }
    }

    /// Dismissed.
    pub fn cancel() -> Self {
        Self { action: ElicitAction::Cancel, content: None }
    }
}

/// The three things a person can do with a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElicitAction {
    /// Submit or agree.
    Accept,
    /// Refuse.
    Decline,
    /// Dismiss without a choice.
    Cancel,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_picks_the_variant_and_none_means_form() {
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
