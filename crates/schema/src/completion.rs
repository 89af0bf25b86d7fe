//! `completion/complete` (specification: server utilities, "Completion").

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::meta::RequestMeta;
use crate::result::ResultType;

/// Parameters of `completion/complete`.
#[derive(Debug, Serialize, Deserialize)]
pub struct CompleteParams {
    /// Whose argument it is.
    pub r#ref: Reference,
    /// The argument.
    pub argument: CompleteArgument,
    /// What is known besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CompleteContext>,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

/// Whose argument is to be completed. The variant is picked by `type`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Reference {
    /// A prompt's.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The prompt's name.
        name: String,
    },
    /// A resource template's.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The template.
        uri: String,
    },
}

/// The argument to be completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteArgument {
    /// Its name.
    pub name: String,
    /// What was typed so far.
    pub value: String,
}

/// What is known besides the argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteContext {
    /// Arguments that are known already.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

/// Suggestions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompleteResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The suggestions.
    pub completion: Completion,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

/// See [`CompleteResult`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// At most 100, the best first.
    pub values: Vec<String>,
    /// How many there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}
