//! Answers, held against their questions.

use mrtr_schema::elicitation::{ElicitAction, ElicitParams, ElicitResult};
use mrtr_schema::form::FormSchema;
use mrtr_schema::input::InputRequest;
use mrtr_schema::peer_text::quote;
use mrtr_schema::roots::{ListRootsResult, Root};
use mrtr_schema::sampling::CreateMessageResult;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::error::CallError;
use crate::pending_call::write;

/// Holds an answer that was written elsewhere against its question.
pub(crate) fn check(
    key: &str,
    request: &InputRequest,
    answer: &RawValue,
) -> Result<Box<RawValue>, CallError> {
    match request {
        InputRequest::Elicit(params) => {
            let result: ElicitResult = read(key, answer)?;
            match params {
                ElicitParams::Form(form) => write(&fit(key, &form.requested_schema, result)?),
                ElicitParams::Url(_) => write(&ElicitResult::new(result.action, None)),
                _ => Err(CallError::protocol("unknown mode of elicitation")),
            }
        }
        InputRequest::Sample(_) => write(&read::<CreateMessageResult>(key, answer)?),
        InputRequest::Roots => {
            let result: ListRootsResult = read(key, answer)?;
            check_roots(&result.roots)?;
            write(&result)
        }
        other => Err(CallError::protocol(format!("unknown kind of question: {}", other.method()))),
    }
}

fn read<T: DeserializeOwned>(key: &str, answer: &RawValue) -> Result<T, CallError> {
    serde_json::from_str(answer.get()).map_err(|error| {
        let why = format!("the answer to {} is malformed: {error}", quote(key));
        CallError::handler(why, None)
    })
}

/// What of an answer to a form goes out: what was submitted has to fit, and of what was not submitted nothing does.
pub(crate) fn fit(
    key: &str,
    schema: &FormSchema,
    mut result: ElicitResult,
) -> Result<ElicitResult, CallError> {
    result.content = match result.action {
        ElicitAction::Accept => {
            let content = schema.validate(result.content.unwrap_or_default());
            Some(content.map_err(|problems| {
                let key = quote(key);
                let why = format!("the answer to {key} does not fit its form: {problems}");
                CallError::handler(why, None)
            })?)
        }
        ElicitAction::Decline | ElicitAction::Cancel => None,
    };
    Ok(result)
}

pub(crate) fn check_roots(roots: &[Root]) -> Result<(), CallError> {
    roots.iter().try_for_each(|root| {
        root.validate()
            .map_err(|why| CallError::handler(format!("root {:?}: {why}", root.uri), None))
    })
}
