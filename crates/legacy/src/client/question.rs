//! Requests of a legacy server in the middle of a call.

use mrtr_schema::RawJson;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::InputRequest;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use serde_json::json;
use serde_json::value::RawValue;

use super::connection::{Connection, Link};
use crate::legacy_method;

/// The longest id that is answered, in bytes. It is repeated in the answer, which may have to wait.
const MAX_ID: usize = 256;

/// A request of the server that is a question to the client.
pub(super) type Question = (RequestId, InputRequest);

/// Returns the question in a request of the server; `None` if it is answered here.
///
/// An answer that the server does not accept is no error of the call: what comes next tells.
pub(super) async fn receive<C: Connection>(
    link: &Link<C>,
    request: Request,
    capabilities: &ClientCapabilities,
) -> Option<Question> {
    let Request { id, method, .. } = &request;
    if is_too_long(id) {
        tracing::warn!(target: "mrtr::client", %id, "request of the server has too long an id");
        return None;
    }
    let answer = match read_question(&request, capabilities) {
        Ok(Some(question)) => return Some((request.id, question)),
        Ok(None) => respond(id, "result", "{}"),
        Err(error) => {
            tracing::warn!(
                target: "mrtr::client",
                method = %quote(method),
                %error,
                "request of the server rejected"
            );
            respond_error(id, &error)
        }
    };
    if let Err(error) = link.post(answer).await {
        tracing::debug!(target: "mrtr::client", ?error, "a request of the server got no answer");
    }
    None
}

/// Rejects questions of a call that has ended before they were answered.
pub(super) fn reject_all<C: Connection>(link: &Link<C>, mut questions: Vec<RequestId>) {
    questions.retain(|id| !is_too_long(id));
    if questions.is_empty() {
        return;
    }
    // Without a runtime, the process is ending.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let link = link.clone();
    runtime.spawn(async move {
        let error = ErrorObject::internal("the call has ended");
        for id in questions {
            let _ = link.post(respond_error(&id, &error)).await;
        }
    });
}

fn is_too_long(id: &RequestId) -> bool {
    matches!(id, RequestId::String(id) if id.len() > MAX_ID)
}

/// Reads a question; `None` for a `ping`.
fn read_question(
    request: &Request,
    capabilities: &ClientCapabilities,
) -> Result<Option<InputRequest>, ErrorObject> {
    if request.method == legacy_method::PING {
        return Ok(None);
    }
    let known = [method::ELICITATION_CREATE, method::SAMPLING_CREATE_MESSAGE, method::ROOTS_LIST];
    if !known.contains(&request.method.as_str()) {
        return Err(ErrorObject::method_not_found(&request.method));
    }
    let params = request.params.as_ref().map_or("{}", Params::as_str);
    let params = RawValue::from_string(params.to_owned())
        .map_err(|error| ErrorObject::invalid_params(error.to_string()))?;
    let object = ObjectWriter::with_capacity(params.get().len() + 64)
        .string("method", &request.method)
        .raw("params", &RawJson::from(params))
        .end();
    let mut question: InputRequest = serde_json::from_str(object.as_str())
        .map_err(|error| ErrorObject::invalid_params(format!("Invalid params: {error}")))?;
    let has_method = match &question {
        InputRequest::Elicit(_) => capabilities.elicitation.is_some(),
        InputRequest::Sample(_) => capabilities.has_sampling(),
        _ => capabilities.has_roots(),
    };
    match question.undeclared_capability(capabilities) {
        None => {
            question.remove_undeclared(capabilities);
            Ok(Some(question))
        }
        // A mode, or another part (2025-11-25, client: elicitation, "Error Handling").
        Some(part) if has_method => Err(ErrorObject::invalid_params(format!(
            "Invalid params: the client has not declared {part}"
        ))),
        Some(_) => Err(ErrorObject::method_not_found(&request.method)),
    }
}

/// Returns the text of a response to a request of the server.
pub(super) fn respond(id: &RequestId, member: &str, value: &str) -> String {
    let id = json!(id);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

/// Returns the text of an error response to a request of the server.
pub(super) fn respond_error(id: &RequestId, error: &ErrorObject) -> String {
    respond(id, "error", &json!(error).to_string())
}

#[cfg(test)]
mod tests {
    use mrtr_schema::capabilities::{ElicitationCapability, SamplingCapability};
    use mrtr_schema::jsonrpc::code;

    use super::*;

    #[test]
    fn undeclared_methods_and_undeclared_parts_have_different_errors() {
        let url = json!({
            "mode": "url", "message": "Sign in", "url": "https://login.example/", "elicitationId": "1",
        });
        let sample = json!({
            "messages": [], "maxTokens": 1,
            "tools": [{ "name": "t", "inputSchema": { "type": "object" } }],
        });
        let form = ClientCapabilities::new().with_elicitation(ElicitationCapability::form());
        let sampling = ClientCapabilities::new().with_sampling(SamplingCapability::new());
        let tools = SamplingCapability::new().with_tools(mrtr_schema::Object::new());
        let tools = ClientCapabilities::new().with_sampling(tools);
        for (method, params, declared, error) in [
            (method::ELICITATION_CREATE, &url, &form, Some(code::INVALID_PARAMS)),
            (method::ELICITATION_CREATE, &url, &tools, Some(code::METHOD_NOT_FOUND)),
            (method::SAMPLING_CREATE_MESSAGE, &sample, &sampling, Some(code::INVALID_PARAMS)),
            (method::SAMPLING_CREATE_MESSAGE, &sample, &form, Some(code::METHOD_NOT_FOUND)),
            (method::SAMPLING_CREATE_MESSAGE, &sample, &tools, None),
        ] {
            let params = Params::new(params).ok();
            let request = Request::new(RequestId::Number(1), method, params);
            let read = read_question(&request, declared);
            assert_eq!(read.err().map(|error| error.code), error, "{method}");
        }
    }
}
