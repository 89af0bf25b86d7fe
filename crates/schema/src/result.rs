//! What all results share (specification: basic, "ResultType"; server utilities, "Caching").

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;
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

/// Reads a `ttlMs`. Clients are to take a negative one for none at all, not for a broken result.
pub(crate) fn ttl_ms<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = Number::deserialize(deserializer)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    Ok(number.as_u64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as u64))
}

/// What a result says about its reuse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheHints {
    /// For how many milliseconds the result stays fresh. 0 if the server does not say, or less than 0.
    #[serde(default, deserialize_with = "ttl_ms")]
    pub ttl_ms: u64,
    /// Who may reuse it.
    #[serde(default)]
    pub cache_scope: CacheScope,
}

impl CacheHints {
    /// Reads the hints of a raw result.
    ///
    /// # Errors
    ///
    /// If the result is no object, or a hint is malformed.
    pub fn of(result: &RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(result.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_below_zero_or_absent_is_none() {
        for (result, ttl_ms) in [
            ("{}", 0),
            (r#"{"ttlMs":0}"#, 0),
            (r#"{"ttlMs":-5}"#, 0),
            (r#"{"ttlMs":-1e300}"#, 0),
            (r#"{"ttlMs":1500.5}"#, 1500),
            (r#"{"ttlMs":300000}"#, 300_000),
            (r#"{"ttlMs":1e300}"#, u64::MAX),
        ] {
            let list = result.replacen('{', r#"{"tools":[],"#, 1).replace(",}", "}");
            let list: crate::tool::ListToolsResult = serde_json::from_str(&list).unwrap();
            let raw = RawValue::from_string(result.to_owned()).unwrap();
            assert_eq!(CacheHints::of(&raw).unwrap().ttl_ms, ttl_ms, "{result}");
            assert_eq!(list.ttl_ms, ttl_ms, "{result}");
        }
    }
}
