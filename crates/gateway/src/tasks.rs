//! Tasks of upstreams: their creation, and the requests about them.

use std::sync::Arc;

use mrtr_client::Transport;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::{InputRequests, InputResponses};
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::peer_text::truncate;
use mrtr_schema::tasks::{EXTENSION, Task};
use mrtr_schema::{Object, method};
use mrtr_server::manual::ManualOutput;
use mrtr_server::{Error, ExtensionRequest, RequestParts, Result, ServerBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::task_ids::TaskIds;
use crate::upstream::{Upstream, fault};

impl<T: Transport> Upstream<T> {
    /// Returns a task that the upstream has made of a call, with an id for the caller.
    pub(crate) fn offer_task<O>(
        &self,
        mut task: Task,
        caller: &RequestParts,
    ) -> Result<ManualOutput<O>> {
        let ids = self.tasks.as_ref();
        let ids = ids.ok_or_else(|| Error::internal("the upstream made a task unasked"))?;
        task.task_id = ids.seal(&self.name, &task.task_id, caller)?;
        Ok(ManualOutput::Task(Box::new(task)))
    }

    /// Logs a malformed answer of the upstream, and returns the error for the caller.
    fn violation(&self, why: &dyn std::fmt::Display) -> Error {
        let why = truncate(&why.to_string()).into_owned();
        tracing::warn!(target: "mrtr::gateway", upstream = self.name, why, "malformed answer");
        fault("cannot complete the call")
    }
}

/// Lets `server` answer requests about tasks of upstreams.
pub(crate) fn serve_tasks<T: Transport>(
    mut server: ServerBuilder,
    upstreams: &Arc<[Arc<Upstream<T>>]>,
    ids: &TaskIds,
) -> ServerBuilder {
    for method in [method::TASKS_GET, method::TASKS_UPDATE, method::TASKS_CANCEL] {
        let (upstreams, ids) = (Arc::clone(upstreams), ids.clone());
        server = server.method(method, move |request| {
            let (upstreams, ids) = (Arc::clone(&upstreams), ids.clone());
            async move { forward(method, &request, &upstreams, &ids).await }
        });
    }
    server.extension(EXTENSION, Object::new())
}

/// The parameters of all requests about tasks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams {
    task_id: String,
    input_responses: Option<InputResponses>,
}

/// Forwards a request about a task, and returns its result with the id that the caller knows.
async fn forward<T: Transport>(
    method: &str,
    request: &ExtensionRequest,
    upstreams: &[Arc<Upstream<T>>],
    ids: &TaskIds,
) -> Result<Object> {
    if !request.capabilities().has_extension(EXTENSION) {
        let required = ClientCapabilities::new().with_extension(EXTENSION, Object::new());
        return Err(Error::response(ErrorObject::missing_client_capability(&required)));
    }
    let TaskParams { task_id, input_responses } = request.read()?;
    let opened = ids.open(&task_id, request.parts());
    let found = opened.and_then(|(name, id)| {
        Some((upstreams.iter().find(|upstream| upstream.name == name)?, id))
    });
    let unknown = || Error::invalid("Invalid params: unknown `taskId`: the task does not exist");
    let (upstream, id) = found.ok_or_else(unknown)?;
    let mut params = request_params(&id);
    if method == method::TASKS_UPDATE {
        let missing = || Error::invalid("Invalid params: missing field `inputResponses`");
        let responses = input_responses.ok_or_else(missing)?;
        params.insert("inputResponses".to_owned(), json!(responses));
    }
    let client = upstream.client_of_task(request.parts());
    let result = upstream.outcome(client.request::<Object>(method, params)).await?;
    result_for_caller(result, &id, task_id, upstream, request.parts())
}

pub(crate) fn request_params(id: &str) -> Object {
    Object::from_iter([("taskId".to_owned(), json!(id))])
}

/// Checks an upstream's result about its task `own`, and gives it the id that the caller knows.
pub(crate) fn result_for_caller<T: Transport>(
    mut result: Object,
    own: &str,
    task_id: String,
    upstream: &Upstream<T>,
    caller: &RequestParts,
) -> Result<Object> {
    if let Some(of_upstream) = result.get_mut("taskId") {
        if *of_upstream != own {
            return Err(upstream.violation(&"it returned another task"));
        }
        *of_upstream = Value::String(task_id);
    }
    if let Some(forwarded) = result.get_mut("inputRequests") {
        let requests = serde_json::from_value::<InputRequests>(forwarded.clone());
        let requests = requests.map_err(|error| upstream.violation(&error))?;
        requests.0.iter().try_for_each(|(_, request)| {
            request.validate().map_err(|error| upstream.violation(&error))
        })?;
        upstream.check_questions(&requests, caller)?;
        if !caller.capabilities().has_sampling_context() {
            // As in rounds: the caller may ignore it, and the gateway's server refuses it.
            let requests = forwarded.as_object_mut().into_iter().flat_map(Object::values_mut);
            let params = requests.filter_map(|request| request.get_mut("params")?.as_object_mut());
            params.for_each(|params| drop(params.remove("includeContext")));
        }
    }
    if let Some(failed) = result.get_mut("error").filter(|error| !error.is_null()) {
        let error = serde_json::from_value(failed.clone());
        let error = error.map_err(|error| upstream.violation(&error))?;
        *failed = json!(upstream.task_error(error));
    }
    // The server adds its own.
    result.remove("_meta");
    Ok(result)
}
