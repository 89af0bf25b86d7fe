//! What all results share (specification: basic, "ResultType"; server utilities, "Caching").

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// What kind of result an object is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ResultType {
    /// The request is done. Also what an absent `resultType` means, in servers of older revisions.
    #[default]
    Complete,
    /// The request needs input; see [`crate::input::InputRequiredResult`].
    InputRequired,
    /// A type that an extension defines. A client that does not know it must refuse the result.
    Other(String),
}

impl ResultType {
    /// Reads the `resultType` of a raw result.
    ///
    /// # Errors
    ///
    /// If the result is no object, or its `resultType` no string.
    pub fn of(result: &RawValue) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Peek {
            #[serde(default)]
            result_type: ResultType,
        }
        // A derived reader would take an array for a struct.
        if !result.get().starts_with('{') {
            return Err(serde_json::Error::custom("a result must be an object"));
        }
        serde_json::from_str::<Peek>(result.get()).map(|peek| peek.result_type)
    }
}

impl Serialize for ResultType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Complete => "complete",
            Self::InputRequired => "input_required",
            Self::Other(other) => other,
        })
    }
}

impl<'de> Deserialize<'de> for ResultType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.as_str() {
            "complete" => Self::Complete,
            "input_required" => Self::InputRequired,
            _ => Self::Other(text),
        })
    }
}

/// Who may reuse a cached result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Anyone: the result holds nothing specific to a user.
    Public,
    /// Only the same authorization context.
    #[default]
    Private,
}
