//! Validation of input responses against their input requests.

use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult};
use mrtr_schema::form::FormSchema;
use mrtr_schema::input::InputRequest;
use mrtr_schema::peer_text::quote;
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::CreateMessageResult;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::json::encode_response;

/// Validates a response that the application passed as JSON, and writes it as it is sent.
pub(crate) fn validate(
    key: &str,
    request: &InputRequest,
    response: &RawValue,
) -> Result<Box<RawValue>, CallError> {
    match request {
        InputRequest::Elicit(ElicitParams::Form(form)) => {
            let result = decode(key, response)?;
            encode_response(&validate_form(key, &form.requested_schema, result)?)
        }
        InputRequest::Elicit(ElicitParams::Url(_)) => {
            encode_response(&without_content(decode(key, response)?))
        }
        InputRequest::Sample(params) => {
            let result = decode(key, response)?;
            validate_sampling(key, params.may_use_tools(), &result)?;
            encode_response(&result)
        }
        InputRequest::Roots => {
            let result: ListRootsResult = decode(key, response)?;
            validate_roots(&result.roots)?;
            encode_response(&result)
        }
        other => Err(unknown_method(key, other)),
    }
}

fn decode<R: DeserializeOwned>(key: &str, response: &RawValue) -> Result<R, CallError> {
    serde_json::from_str(response.get()).map_err(|error| {
        let key = quote(key);
        CallError::handler(format!("malformed response to input request {key}: {error}"), None)
    })
}

/// Validates submitted content, and removes content that was not submitted.
pub(crate) fn validate_form(
    key: &str,
    schema: &FormSchema,
    mut result: ElicitResult,
) -> Result<ElicitResult, CallError> {
    result.content = match result.action {
        ElicitAction::Accept => {
            let content = schema.validate(result.content.unwrap_or_default());
            Some(content.map_err(|problems| {
                let key = quote(key);
                let why = format!(
                    "the response to input request {key} does not match its form: {problems}"
                );
                CallError::handler(why, None)
            })?)
        }
        ElicitAction::Decline | ElicitAction::Cancel => None,
    };
    Ok(result)
}

/// Removes content from the response to a URL: only forms have content.
pub(crate) fn without_content(mut result: ElicitResult) -> ElicitResult {
    result.content = None;
    result
}

/// Rejects a result that is malformed, or uses a tool although the request does not allow it.
pub(crate) fn validate_sampling(
    key: &str,
    may_use_tools: bool,
    result: &CreateMessageResult,
) -> Result<(), CallError> {
    result.validate(may_use_tools).map_err(|why| {
        let key = quote(key);
        let why = format!("the response to input request {key} is invalid: {why}");
        CallError::handler(why, None)
    })
}

pub(crate) fn validate_roots(roots: &[Root]) -> Result<(), CallError> {
    roots.iter().try_for_each(|root| {
        root.validate()
            .map_err(|why| CallError::handler(format!("invalid root {:?}: {why}", root.uri), None))
    })
}

pub(crate) fn unknown_method(key: &str, request: &InputRequest) -> CallError {
    CallError::protocol(format!(
        "input request {} has the unknown method {}",
        quote(key),
        request.method()
    ))
}
