//! Questions and answers of tools that ask, for all servers on rmcp.

use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationSchema, ErrorData, InputRequest, InputRequests,
    InputRequiredResult, InputResponses,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub type Outcome = Result<CallToolResponse, ErrorData>;
pub type Answers = Option<InputResponses>;

pub fn done(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

pub fn ask<const N: usize>(questions: [(&str, InputRequest); N]) -> InputRequiredResult {
    let questions = questions.map(|(key, question)| (key.to_owned(), question));
    InputRequiredResult::from_input_requests(InputRequests::from(questions))
}

/// Returns a form with one field. `sure` and `ok` are boolean, and all others are strings.
pub fn form<'a>(key: &'a str, field: &str, message: &str) -> (&'a str, InputRequest) {
    let schema = ElicitationSchema::builder();
    let schema = if ["sure", "ok"].contains(&field) {
        schema.required_bool(field)
    } else {
        schema.required_string(field)
    };
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema: schema.build_unchecked(),
    };
    (key, InputRequest::Elicitation(ElicitRequest::new(params)))
}

pub fn answer<T: DeserializeOwned>(answers: &Answers, key: &str) -> Result<Option<T>, ErrorData> {
    let answer = answers.as_ref().and_then(|answers| answers.get(key));
    answer
        .map(T::deserialize)
        .transpose()
        .map_err(|e| ErrorData::invalid_params(e.to_string(), None))
}

/// Returns the field of an accepted form, or `None` while there is no answer. A declined question
/// is not asked again.
pub fn accepted(answers: &Answers, key: &str, field: &str) -> Result<Option<Value>, ErrorData> {
    match answer::<ElicitResult>(answers, key)? {
        Some(ElicitResult { action: ElicitationAction::Accept, content, .. }) => {
            Ok(content.and_then(|content| content.get(field).cloned()))
        }
        Some(_) => Err(ErrorData::invalid_params(format!("no answer to {key:?}"), None)),
        None => Ok(None),
    }
}

pub fn string(value: Value) -> Result<String, ErrorData> {
    serde_json::from_value(value).map_err(|e| ErrorData::invalid_params(e.to_string(), None))
}
