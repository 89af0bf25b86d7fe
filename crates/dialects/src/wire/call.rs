//! A request of the current revision, taken apart; and its result, by type.

use mrtr_schema::input::InputResponses;
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_schema::meta::{RequestMeta, key};
use mrtr_schema::result::ResultType;
use mrtr_schema::tasks::RESULT_TYPE;
use mrtr_schema::{RawJson, method};
use serde_json::value::RawValue;

use super::members::{self, Members};

/// The method of `tasks-2322` with the answers to the questions of a task.
pub(crate) const TASKS_INPUT_RESPONSE: &str = "tasks/input_response";

/// Returns true if a request with this method can have several rounds.
pub(crate) fn has_rounds(method: &str) -> bool {
    matches!(method, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ)
}

/// A call, taken apart: the request without its answers and state, and these.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Call {
    /// The request, without the other members of this value in its parameters.
    pub request: Request,
    /// The answers to the questions of the round before.
    pub input_responses: Option<InputResponses>,
    /// The state of the round before.
    pub request_state: Option<String>,
    /// The member `task` of the parameters: the client asks for a task.
    pub task: Option<Box<RawValue>>,
}

impl Call {
    /// Takes a request apart. The members `inputResponses`, `requestState` and `task` of its
    /// parameters are moved, if its method has them: `tools/call` has all, `prompts/get` and
    /// `resources/read` have no `task`, and `tasks/update` and `tasks/input_response` have
    /// `inputResponses`.
    ///
    /// # Errors
    ///
    /// `-32602` if one of them has another type than the protocol's.
    pub fn from_request(request: Request) -> Result<Self, ErrorObject> {
        let Request { id, method, params, .. } = request;
        let mut call = Self {
            request: Request::new(id, method, None),
            input_responses: None,
            request_state: None,
            task: None,
        };
        let Some(params) = params else { return Ok(call) };
        let has_rounds = has_rounds(&call.request.method);
        let answers_task =
            matches!(&*call.request.method, method::TASKS_UPDATE | TASKS_INPUT_RESPONSE);
        let mut members = members::read(params.as_str()).map_err(|e| invalid(&e))?;
        if has_rounds && let Some(state) = members::take(&mut members, "requestState") {
            call.request_state = Some(member("requestState", &state)?);
        }
        if (has_rounds || answers_task)
            && let Some(responses) = members::take(&mut members, "inputResponses")
        {
            call.input_responses = Some(member("inputResponses", &responses)?);
        }
        if call.request.method == method::TOOLS_CALL {
            call.task = members::take(&mut members, "task");
        }
        if call.task.as_deref().is_some_and(|task| !members::is_object(task)) {
            return Err(ErrorObject::invalid_params("Invalid params: `task` must be an object"));
        }
        call.set_params(&members)?;
        Ok(call)
    }

    /// Puts the request together again, without `task`.
    ///
    /// # Errors
    ///
    /// If the parameters cannot be written, which does not happen with JSON that was read.
    pub fn into_request(self) -> Result<Request, ErrorObject> {
        let Self { mut request, input_responses, request_state, .. } = self;
        if input_responses.is_none() && request_state.is_none() {
            return Ok(request);
        }
        let text = request.params.as_ref().map_or("{}", Params::as_str);
        let object = ObjectWriter::with_capacity(text.len() + 1024);
        let members = members::read(text).map_err(|e| invalid(&e))?;
        let mut object = members
            .iter()
            .fold(object, |object, (name, value)| object.raw(name, &members::raw(value)));
        if let Some(responses) = &input_responses {
            object = object.member("inputResponses", responses).map_err(|e| invalid(&e))?;
        }
        if let Some(state) = &request_state {
            object = object.string("requestState", state);
        }
        request.params = Some(Params::new(&object.end()).map_err(|e| invalid(&e))?);
        Ok(request)
    }

    /// Reads the `_meta` of the request, and removes from it what only the current revision has.
    ///
    /// # Errors
    ///
    /// `-32602` if it has another form than the protocol's.
    pub fn take_meta(&mut self) -> Result<RequestMeta, ErrorObject> {
        let Some(params) = &self.request.params else { return Ok(RequestMeta::default()) };
        let mut members = members::read(params.as_str()).map_err(|e| invalid(&e))?;
        let Some(meta) = members::take(&mut members, "_meta") else {
            return Ok(RequestMeta::default());
        };
        let meta: RequestMeta = member("_meta", &meta)?;
        let mut kept = meta.other.clone();
        if let Some(token) = &meta.progress_token {
            kept.insert(key::PROGRESS_TOKEN.to_owned(), serde_json::json!(token));
        }
        if !kept.is_empty() {
            let kept = serde_json::value::to_raw_value(&kept).map_err(|e| invalid(&e))?;
            members.push(("_meta".to_owned(), kept));
        }
        self.set_params(&members)?;
        Ok(meta)
    }

    fn set_params(&mut self, members: &Members) -> Result<(), ErrorObject> {
        self.request.params = if members.is_empty() {
            None
        } else {
            Some(Params::new(&members::write(members)).map_err(|e| invalid(&e))?)
        };
        Ok(())
    }
}

/// A result of the current revision, by its type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reply {
    /// The result of the call.
    Complete(RawJson),
    /// The call needs input, or another round.
    InputRequired {
        /// The input requests, each as JSON with its key.
        requests: Vec<(String, Box<RawValue>)>,
        /// The state to return.
        state: Option<String>,
    },
    /// The call has become a task.
    Task(RawJson),
}

impl Reply {
    /// Reads a result.
    ///
    /// # Errors
    ///
    /// If it is not an object, or if its members have other types than the protocol's.
    pub fn from_result(result: RawJson) -> Result<Self, serde_json::Error> {
        let text: &RawValue = serde_json::from_str(result.as_str())?;
        match ResultType::from_result(text)? {
            ResultType::InputRequired => {
                let mut members = members::read(result.as_str())?;
                let requests = members::take(&mut members, "inputRequests");
                let state = members::take(&mut members, "requestState");
                Ok(Self::InputRequired {
                    requests: requests.map_or_else(
                        || Ok(Members::new()),
                        |requests| members::read(requests.get()),
                    )?,
                    state: state.map(|state| serde_json::from_str(state.get())).transpose()?,
                })
            }
            ResultType::Other(other) if other == RESULT_TYPE => Ok(Self::Task(result)),
            _ => Ok(Self::Complete(result)),
        }
    }
}

/// Removes from a complete result what only the current revision has: the type of the result,
/// caching hints and the server's name. A result of `tools/call` gets the member `isError`, which
/// the proposals always write.
///
/// # Errors
///
/// If the result is not an object.
pub fn plain_result(method: &str, result: &RawJson) -> Result<RawJson, serde_json::Error> {
    let mut kept = Members::new();
    for (name, value) in members::read(result.as_str())? {
        match name.as_str() {
            "resultType" | "ttlMs" | "cacheScope" => {}
            "_meta" if members::is_object(&value) => {
                let mut meta = members::read(value.get())?;
                meta.retain(|(name, _)| name != key::SERVER_INFO);
                if !meta.is_empty() {
                    kept.push((name, members::value(members::write(&meta))?));
                }
            }
            _ => kept.push((name, value)),
        }
    }
    add_is_error(method, &mut kept)?;
    Ok(members::write(&kept))
}

/// Adds the member `isError` to a result of `tools/call` that has none.
pub(crate) fn add_is_error(method: &str, members: &mut Members) -> Result<(), serde_json::Error> {
    let is_call = method == method::TOOLS_CALL;
    if is_call && !members.iter().any(|(name, _)| name == "isError") {
        members.push(("isError".to_owned(), RawValue::from_string("false".to_owned())?));
    }
    Ok(())
}

/// Writes a JSON-RPC response.
pub fn write_response(id: &RequestId, result: &RawJson) -> RawJson {
    ObjectWriter::message(result.as_str().len() + 64)
        .raw("id", &id_json(id))
        .raw("result", result)
        .end()
}

/// Returns an id as JSON.
pub(crate) fn id_json(id: &RequestId) -> RawJson {
    // An id is a number or a string.
    RawJson::new(id).unwrap_or_else(|_| ObjectWriter::with_capacity(2).end())
}

/// Decodes a member of the parameters.
fn member<T: serde::de::DeserializeOwned>(name: &str, value: &RawValue) -> Result<T, ErrorObject> {
    mrtr_schema::json::from_str(value.get())
        .map_err(|error| ErrorObject::invalid_params(format!("Invalid params: `{name}`: {error}")))
}

fn invalid(error: &serde_json::Error) -> ErrorObject {
    ErrorObject::invalid_params(format!("Invalid params: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_methods_that_have_them_lose_members() {
        let all = json!({ "inputResponses": {}, "requestState": "s", "task": {}, "x": 1 });
        for (method, kept) in [
            ("tools/call", &["x"][..]),
            ("prompts/get", &["task", "x"]),
            ("resources/read", &["task", "x"]),
            ("tasks/update", &["requestState", "task", "x"]),
            ("tasks/input_response", &["requestState", "task", "x"]),
            ("vendor/method", &["inputResponses", "requestState", "task", "x"]),
        ] {
            let params = Params::new(&all).unwrap();
            let request = Request::new(RequestId::Number(1), method, Some(params));
            let call = Call::from_request(request).unwrap();
            let params: Value =
                serde_json::from_str(call.request.params.as_ref().unwrap().as_str()).unwrap();
            let mut names: Vec<&String> = params.as_object().unwrap().keys().collect();
            names.sort();
            assert_eq!(names, kept, "{method}");
        }
    }
}
