//! Input responses.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::json::{read_pairs, write_pairs};

/// Input responses under the server's keys.
///
/// The type of a response depends on the request with the same key, so each stays raw until it is
/// matched to its request.
///
/// Their [`Debug`](fmt::Debug) form has the keys only.
#[derive(Clone, Default)]
pub struct InputResponses(pub Vec<(String, Box<RawValue>)>);

impl InputResponses {
    /// Returns the response under `key`.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// Adds a response.
    ///
    /// # Errors
    ///
    /// Fails if JSON cannot represent `response`.
    pub fn push(
        &mut self,
        key: impl Into<String>,
        response: &impl Serialize,
    ) -> Result<(), serde_json::Error> {
        self.0.push((key.into(), to_raw_value(response)?));
        Ok(())
    }
}

impl fmt::Debug for InputResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

impl Serialize for InputResponses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write_pairs(serializer, &self.0)
    }
}

impl<'de> Deserialize<'de> for InputResponses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An error of serde would have the text of a string, which may be an answer.
        let all: Vec<(String, Box<RawValue>)> = read_pairs(deserializer, "an object")
            .map_err(|_| D::Error::custom("inputResponses must be an object"))?;
        match all.iter().find(|(_, response)| !response.get().starts_with('{')) {
            Some((key, _)) => {
                Err(D::Error::custom(format_args!("the response to {key:?} must be an object")))
            }
            None => Ok(Self(all)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_responses_must_be_objects() {
        let error = serde_json::from_str::<InputResponses>(r#"{"a":{},"b":5}"#).unwrap_err();
        assert!(error.to_string().contains("the response to \"b\" must be an object"), "{error}");
        assert!(serde_json::from_str::<InputResponses>("null").is_err());
    }

    /// Servers log errors. A client may encode its answers twice.
    #[test]
    fn error_does_not_contain_an_answer() {
        let twice = r#""{\"pin\":{\"content\":4711}}""#;
        let error = serde_json::from_str::<InputResponses>(twice).unwrap_err().to_string();
        assert!(error.contains("must be an object") && !error.contains("4711"), "{error}");
    }
}
