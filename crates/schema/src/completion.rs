//! `completion/complete` (specification: server utilities, "Completion").

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Object;
use crate::jsonrpc::{ErrorObject, Request};
use crate::meta::RequestMeta;
use crate::result::ResultType;
use crate::setters::setters;

/// Parameters of `completion/complete`.
#[derive(Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteParams {
    /// The prompt or resource template that has the argument.
    pub r#ref: Reference,
    /// The argument to complete.
    pub argument: CompleteArgument,
    /// The arguments that are known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CompleteContext>,
    /// The request's `_meta`.
    #[serde(rename = "_meta", default)]
    pub meta: RequestMeta,
}

impl CompleteParams {
    /// Creates parameters without context.
    pub fn new(r#ref: Reference, argument: CompleteArgument) -> Self {
        Self { r#ref, argument, context: None, meta: RequestMeta::default() }
    }

    /// Decodes the parameters of a request.
    ///
    /// # Errors
    ///
    /// [`INVALID_PARAMS`](crate::jsonrpc::code::INVALID_PARAMS), naming the offending field.
    pub fn from_request(request: &Request) -> Result<Self, ErrorObject> {
        request.decode_params()
    }
}

/// A prompt or a resource template. The variant is picked by `type`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum Reference {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The name of the prompt.
        name: String,
    },
    /// A resource template.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The URI template.
        uri: String,
    },
}

/// An argument to complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteArgument {
    /// The name of the argument.
    pub name: String,
    /// The text that the user typed so far.
    pub value: String,
}

impl CompleteArgument {
    /// Creates an argument from its name and the text typed so far.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// The context of a completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompleteContext {
    /// The arguments that are known already.
    #[serde(default)]
    pub arguments: BTreeMap<String, String>,
}

impl CompleteContext {
    /// Creates a context from the arguments that are known already.
    pub fn new(arguments: BTreeMap<String, String>) -> Self {
        Self { arguments }
    }
}

/// Result of `completion/complete`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CompleteResult {
    /// Always complete.
    #[serde(default)]
    pub result_type: ResultType,
    /// The suggested values.
    pub completion: Completion,
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl CompleteResult {
    /// Creates a result.
    pub fn new(completion: Completion) -> Self {
        Self { completion, ..Self::default() }
    }
}

/// Suggested values of an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Completion {
    /// The suggestions, at most 100, the best first.
    pub values: Vec<String>,
    /// The number of all suggestions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// True if there are more suggestions than `values`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

setters!(Completion { with_total(total: u64), with_has_more(has_more: bool) });

impl Completion {
    /// Maximum number of values in one completion.
    pub const MAX_VALUES: usize = 100;

    /// Creates a completion from at most 100 suggestions.
    pub fn new(values: Vec<String>) -> Self {
        Self { values, total: None, has_more: None }
    }
}

/// Creates a completion from all suggestions: their number is the total, and those after the first
/// 100 are left out.
impl From<Vec<String>> for Completion {
    fn from(mut values: Vec<String>) -> Self {
        let (total, has_more) = (values.len() as u64, values.len() > Self::MAX_VALUES);
        values.truncate(Self::MAX_VALUES);
        Self { values, total: Some(total), has_more: Some(has_more) }
    }
}
