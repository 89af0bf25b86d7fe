//! Fields that all results share (specification: basic, "ResultType"; server utilities, "Caching").

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
use serde_json::value::RawValue;

/// The type of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ResultType {
    /// The request is complete. Also the meaning of an absent `resultType`, which servers of older
    /// revisions do not send.
    #[default]
    Complete,
    /// The request needs input; see [`crate::input::InputRequiredResult`].
    InputRequired,
    /// A type of an extension. A client that does not know it must reject the result.
    Other(String),
}

impl ResultType {
    /// Reads the `resultType` of a raw result.
    ///
    /// # Errors
    ///
    /// Fails if the result is not an object, or its `resultType` is not a string.
    pub fn from_result(result: &RawValue) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Peek {
            #[serde(default)]
            result_type: ResultType,
        }
        // A derived `Deserialize` would also accept an array.
        if !result.get().starts_with('{') {
            return Err(serde_json::Error::custom("a result must be an object"));
        }
        serde_json::from_str::<Peek>(result.get()).map(|peek| peek.result_type)
    }

    /// Returns the type as it is written in JSON.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Complete => "complete",
            Self::InputRequired => "input_required",
            Self::Other(other) => other,
        }
    }
}

impl Serialize for ResultType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
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

/// The sharing that a cached result permits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Any client may reuse the result: it contains nothing specific to a user.
    Public,
    /// Only the same authorization context may reuse the result.
    #[default]
    Private,
}

/// Deserializes a `ttlMs`. By the specification, clients treat a negative value as 0 and not as a
/// malformed result.
pub(crate) fn ttl_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Number::deserialize(deserializer)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Ok(number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as u64))
}

/// The caching hints of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CacheHints {
    /// The time in milliseconds for which the result is fresh. 0 if absent or negative.
    #[serde(default, deserialize_with = "ttl_ms")]
    pub ttl_ms: u64,
    /// The clients that may reuse the result. Default: private.
    #[serde(default)]
    pub cache_scope: CacheScope,
}

impl CacheHints {
    /// Reads the hints of a raw result.
    ///
    /// # Errors
    ///
    /// Fails if the result is not an object, or a hint has the wrong type.
    pub fn from_result(result: &RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(result.get())
    }
}
