//! The response that layers see.

use mrtr_schema::RawJson;
use serde::Deserialize;

/// The result of a request.
#[derive(Debug, Clone)]
pub struct Response(pub(crate) RawJson);

/// The type of a result (specification: basic, "Result Responses").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultType {
    /// The request is complete.
    Complete,
    /// The call needs input, and another round.
    InputRequired,
    /// The call has become a task.
    Task,
    /// A type of an extension.
    Other,
}

/// The members of a result that say how it ended.
#[derive(Default, Deserialize)]
pub(crate) struct ResultSummary<'a> {
    #[serde(borrow, default, rename = "resultType")]
    pub(crate) result_type: Option<&'a str>,
    #[serde(default, rename = "isError")]
    pub(crate) is_error: bool,
}

impl ResultSummary<'_> {
    pub(crate) fn of(result: &RawJson) -> ResultSummary<'_> {
        serde_json::from_str(result.as_str()).unwrap_or_default()
    }
}

impl Response {
    /// Creates a response from a result, for a layer that responds without calling
    /// [`Next`](super::Next).
    ///
    /// The result must be an object with every field that the method requires, including
    /// `resultType`.
    pub fn new(result: RawJson) -> Self {
        Self(result)
    }

    /// Returns the result.
    pub fn result(&self) -> &RawJson {
        &self.0
    }

    /// Returns the type of the result.
    pub fn result_type(&self) -> ResultType {
        match ResultSummary::of(&self.0).result_type {
            Some("complete") | None => ResultType::Complete,
            Some("input_required") => ResultType::InputRequired,
            Some("task") => ResultType::Task,
            Some(_) => ResultType::Other,
        }
    }

    /// Returns true if a tool failed: its result has `isError`.
    pub fn is_tool_error(&self) -> bool {
        ResultSummary::of(&self.0).is_error
    }
}
