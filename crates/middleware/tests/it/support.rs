//! Servers and requests.

use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId};
use mrtr_server::{Context, Principal, Result, Server, ServerBuilder, Tool};
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};

#[derive(serde::Deserialize, schemars::JsonSchema)]
pub(crate) struct Name {
    pub(crate) name: String,
}

/// A tool that asks once.
pub(crate) fn ask() -> Tool {
    Tool::new("ask", "", async |cx: Context| -> Result<String> {
        let answer: Name = cx.elicit("name", "Who?").await?;
        Ok(answer.name)
    })
}

pub(crate) fn server(edit: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Server {
    edit(Server::builder("test", "1").allow_anonymous().ephemeral_key()).build().unwrap()
}

pub(crate) fn principal(subject: &str) -> Principal {
    Principal::new("https://login.example", subject)
}

/// Sends `tools/call` with more parameters.
pub(crate) async fn call(
    server: &Server,
    caller: Option<&str>,
    tool: &str,
    more: Value,
) -> std::result::Result<Value, ErrorObject> {
    let mut params = json!({ "name": tool, "arguments": {} });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    send_as(server, caller, "tools/call", params).await
}

/// Sends a request of an anonymous caller.
pub(crate) async fn send(
    server: &Server,
    method: &str,
    params: Value,
) -> std::result::Result<Value, ErrorObject> {
    send_as(server, None, method, params).await
}

async fn send_as(
    server: &Server,
    caller: Option<&str>,
    method: &str,
    mut params: Value,
) -> std::result::Result<Value, ErrorObject> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    send_raw(server, caller, method, Params::new(&params).unwrap()).await
}

/// Sends a request whose parameters are complete, as they are written.
pub(crate) async fn send_raw(
    server: &Server,
    caller: Option<&str>,
    method: &str,
    params: Params,
) -> std::result::Result<Value, ErrorObject> {
    let mut transport = InProcess::new(server.clone());
    if let Some(subject) = caller {
        transport = transport.with_extension(principal(subject));
    }
    let request = Request::new(RequestId::Number(1), method, Some(params));
    let response = transport.send(OutgoingRequest::new(request)).await.unwrap();
    response.outcome.map(|result| serde_json::from_str(result.get()).unwrap())
}

/// The parameters of the round after `result`.
pub(crate) fn answer(result: &Value) -> Value {
    let answer = json!({ "action": "accept", "content": { "name": "Ann" } });
    json!({ "requestState": result["requestState"], "inputResponses": { "name": answer } })
}
