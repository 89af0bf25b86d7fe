//! Requests of a legacy server in the middle of a call.

use mrtr_schema::RawJson;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::elicitation::ElicitParams;
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
    let question: InputRequest = serde_json::from_str(object.as_str())
        .map_err(|error| ErrorObject::invalid_params(format!("Invalid params: {error}")))?;
    let is_declared = match &question {
        InputRequest::Elicit(params) => match params {
            ElicitParams::Url(_) => capabilities.has_url(),
            _ => capabilities.has_form(),
        },
        InputRequest::Sample(_) => capabilities.has_sampling(),
        _ => capabilities.has_roots(),
    };
    if is_declared {
        Ok(Some(question))
    } else {
        Err(ErrorObject::method_not_found(&request.method))
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
