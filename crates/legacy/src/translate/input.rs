//! Input requests, as requests from the server to a legacy client.

use mrtr_schema::Object;
use mrtr_schema::elicitation::{ElicitParams, FormParams, UrlParams};
use mrtr_schema::form::FieldKind;
use mrtr_schema::input::InputRequest;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::sampling::{CreateMessageParams, SamplingMessage};
use serde::Serialize;
use serde_json::{Value, json};

use super::result::NO_QUESTIONS;
use crate::{LegacyVersion, code};

/// Translates an input request into the parameters of the request of the same method.
///
/// # Errors
///
/// The reason why the version has no such request. A client declares its capabilities, so that
/// this concerns details only: the kind of a form field, or the content of a message.
pub(crate) fn legacy_input(
    version: LegacyVersion,
    request: &InputRequest,
    elicitation_id: &str,
) -> Result<Object, String> {
    match request {
        InputRequest::Elicit(ElicitParams::Url(params)) => {
            url_params(version, params, elicitation_id)
        }
        InputRequest::Elicit(ElicitParams::Form(params)) => form_params(version, params),
        InputRequest::Sample(params) => sampling_params(version, params),
        InputRequest::Roots => Ok(Object::new()),
        _ => Err(format!("{} is not part of revision {version}", request.method())),
    }
}

/// Returns the error that asks for input without a request of the server: pages to visit, before
/// the client calls again (2025-11-25, client: elicitation, "URL Elicitation Required Error").
///
/// Other questions are not asked: then the error says so.
pub(crate) fn url_elicitation_required(
    questions: &[(String, InputRequest)],
    mut new_id: impl FnMut() -> String,
) -> ErrorObject {
    let elicitations = questions.iter().map(|(_, question)| match question {
        InputRequest::Elicit(ElicitParams::Url(params)) => {
            url_params(LegacyVersion::V2025_11_25, params, &new_id()).ok()
        }
        _ => None,
    });
    match elicitations.collect::<Option<Vec<_>>>() {
        Some(elicitations) => {
            let message = "Visit the page and call again";
            ErrorObject::new(code::URL_ELICITATION_REQUIRED, message)
                .with_data(json!({ "elicitations": elicitations }))
        }
        None => ErrorObject::internal(NO_QUESTIONS),
    }
}

fn url_params(
    version: LegacyVersion,
    params: &UrlParams,
    elicitation_id: &str,
) -> Result<Object, String> {
    if !version.has_url_elicitation() {
        return Err(format!("revision {version} has no URL elicitation"));
    }
    let mut object = object(&ElicitParams::Url(params.clone()))?;
    object.insert("elicitationId".to_owned(), elicitation_id.into());
    Ok(object)
}

fn form_params(version: LegacyVersion, params: &FormParams) -> Result<Object, String> {
    let mut params = params.clone();
    if version.has_url_elicitation() {
        return object(&ElicitParams::Form(params));
    }
    for field in &mut params.requested_schema.fields {
        match &mut field.kind {
            FieldKind::Choices { .. } => {
                return Err(format!(
                    "the field {:?} takes several choices, which revision {version} does not have",
                    field.name
                ));
            }
            FieldKind::Choice { options, enum_names, .. } => {
                *enum_names = options.iter().any(|option| option.title.is_some());
            }
            _ => {}
        }
    }
    let mut object = object(&ElicitParams::Form(params))?;
    // There is only one mode.
    object.remove("mode");
    Ok(object)
}

fn sampling_params(version: LegacyVersion, params: &CreateMessageParams) -> Result<Object, String> {
    if version.has_url_elicitation() {
        return object(params);
    }
    // The content of a message is one block there: several blocks become several messages.
    let mut params = params.clone();
    params.messages = params.messages.into_iter().flat_map(split_message).collect();
    object(&params)
}

fn split_message(message: SamplingMessage) -> Vec<SamplingMessage> {
    let blocks = message.content.blocks();
    if blocks.len() <= 1 {
        return vec![message];
    }
    blocks.iter().map(|block| SamplingMessage::new(message.role, vec![block.clone()])).collect()
}

fn object(params: &impl Serialize) -> Result<Object, String> {
    match json!(params) {
        Value::Object(object) => Ok(object),
        other => Err(format!("the parameters are not an object: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mrtr_schema::content::Role;
    use mrtr_schema::form::{ChoiceOption, Field, FormSchema};
    use mrtr_schema::sampling::SamplingContent;

    fn form(fields: Vec<Field>) -> InputRequest {
        InputRequest::Elicit(FormParams::new("Which?", FormSchema::new(fields)).into())
    }

    fn translated(version: LegacyVersion, request: &InputRequest) -> Result<Value, String> {
        legacy_input(version, request, "id-1").map(Value::Object)
    }

    #[test]
    fn choices_have_the_form_of_their_revision() {
        let options = || vec![ChoiceOption::new("a").with_title("A"), ChoiceOption::new("b")];
        let one = form(vec![Field::choice("c", options())]);
        let new = translated(LegacyVersion::V2025_11_25, &one).unwrap();
        assert_eq!(new["mode"], "form");
        assert!(new["requestedSchema"]["properties"]["c"].get("oneOf").is_some(), "{new}");
        let old = translated(LegacyVersion::V2025_06_18, &one).unwrap();
        assert!(old.get("mode").is_none());
        let choice = &old["requestedSchema"]["properties"]["c"];
        assert_eq!(choice["enum"], json!(["a", "b"]));
        assert_eq!(choice["enumNames"], json!(["A", "b"]));
        assert!(choice.get("oneOf").is_none());

        let many = form(vec![Field::choices("c", options())]);
        assert!(translated(LegacyVersion::V2025_11_25, &many).is_ok());
        let why = translated(LegacyVersion::V2025_06_18, &many).unwrap_err();
        assert!(why.contains("\"c\" takes several choices"), "{why}");
    }

    #[test]
    fn url_elicitation_has_an_id_and_a_revision() {
        let url = InputRequest::Elicit(UrlParams::new("Sign in", "https://a.example/").into());
        let new = translated(LegacyVersion::V2025_11_25, &url).unwrap();
        assert_eq!((&new["mode"], &new["elicitationId"]), (&json!("url"), &json!("id-1")));
        assert!(translated(LegacyVersion::V2025_06_18, &url).is_err());
    }

    #[test]
    fn message_of_several_blocks_is_split_for_older_revisions() {
        let blocks = vec![SamplingContent::text("a"), SamplingContent::text("b")];
        let messages = vec![SamplingMessage::new(Role::User, blocks)];
        let request = InputRequest::Sample(Box::new(CreateMessageParams::new(messages, 10)));
        for (version, count) in [(LegacyVersion::V2025_11_25, 1), (LegacyVersion::V2025_06_18, 2)] {
            let params = translated(version, &request).unwrap();
            assert_eq!(params["messages"].as_array().unwrap().len(), count, "{version}");
        }
    }
}
