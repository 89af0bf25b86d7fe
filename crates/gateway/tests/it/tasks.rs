//! Tasks of upstreams.

use std::sync::Arc;
use std::time::Duration;

use mrtr_client::{Client, Transport};
use mrtr_gateway::Gateway;
use mrtr_schema::RawJson;
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Request, RequestId, Response, code};
use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{Context, Principal, Result, Server, Tool};
use mrtr_transport::{InProcess, IncomingRequest, OutgoingRequest, RequestHandler};
use serde_json::{Value, json};

use super::{caller, connect, gateway, gateway_server, keyed};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

/// An upstream whose tool is a task that asks once.
pub(super) fn upstream(name: &str) -> Server {
    let tool = Tool::new("report", "Reports", async |cx: Context| -> Result<String> {
        let answer: Text = cx.elicit("more", "More?").await?;
        Ok(format!("reported {}", answer.text))
    });
    let server = keyed(name, 2)
        .tool(tool.task(TaskPolicy::immediately().poll_interval(Duration::from_millis(100))))
        .task_store(MemoryTaskStore::new(100))
        .build()
        .unwrap();
    let running = server.clone();
    tokio::spawn(async move { running.run_tasks().await });
    server
}

/// Sends a request, with the capabilities of a client that has tasks and forms.
pub(super) async fn send(
    gateway: &Gateway<impl Transport>,
    principal: &str,
    method: &str,
    params: Value,
) -> std::result::Result<Value, ErrorObject> {
    let capabilities = json!({
        "elicitation": {},
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    send_with(gateway, principal, method, params, capabilities).await
}

async fn send_with(
    gateway: &Gateway<impl Transport>,
    principal: &str,
    method: &str,
    params: Value,
    capabilities: Value,
) -> std::result::Result<Value, ErrorObject> {
    send_to(gateway.server(), principal, method, params, capabilities).await
}

async fn send_to(
    server: &Server,
    principal: &str,
    method: &str,
    mut params: Value,
    capabilities: Value,
) -> std::result::Result<Value, ErrorObject> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let request = Request::new(RequestId::Number(1), method, Some(Params::new(&params).unwrap()));
    let principal = Principal::new("https://login.example", principal);
    let transport = InProcess::new(server.clone()).with_extension(principal);
    let response = transport.send(OutgoingRequest::new(request)).await.unwrap();
    response.outcome.map(|result| serde_json::from_str(result.get()).unwrap())
}

pub(super) async fn wait_for(gateway: &Gateway<impl Transport>, id: &str, status: &str) -> Value {
    for _ in 0..1_000 {
        let task = send(gateway, "alice", "tasks/get", json!({ "taskId": id })).await.unwrap();
        assert_eq!(task["taskId"], id);
        if task["status"] == status {
            return task;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the task was never {status}");
}

pub(super) async fn create(gateway: &Gateway<impl Transport>, tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": {} });
    let created = send(gateway, "alice", "tools/call", params).await.unwrap();
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().unwrap().to_owned()
}

/// Each request goes to another replica of the gateway.
#[tokio::test(start_paused = true)]
async fn any_replica_forwards_requests_about_a_task() {
    let servers = [upstream("a"), upstream("b")];
    let upstreams = [("a", &servers[0]), ("b", &servers[1])];
    let replicas =
        [gateway(&upstreams).await, gateway(&upstreams).await, gateway(&upstreams).await];
    for tool in ["a__report", "b__report"] {
        let id = create(&replicas[0], tool).await;
        let waiting = wait_for(&replicas[1], &id, "input_required").await;
        assert_eq!(waiting["inputRequests"]["more"]["method"], "elicitation/create");
        let answer = ElicitResult::accept(json!({ "text": "all" })).unwrap();
        let answer = json!({ "taskId": id, "inputResponses": { "more": answer } });
        let acknowledged = send(&replicas[2], "alice", "tasks/update", answer).await.unwrap();
        assert_eq!(acknowledged["resultType"], "complete");
        let done = wait_for(&replicas[0], &id, "completed").await;
        assert_eq!(done["result"]["content"][0]["text"], "reported all");
    }
}

/// The client of this project completes such a call by itself.
#[tokio::test(start_paused = true)]
async fn client_follows_a_task_through_the_gateway() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let client = caller(&gateway, "alice").with_tasks().build();
    assert_eq!(client.call_tool("a__report", json!({})).await.unwrap().text(), "reported hello");
    // Without the extension, the upstream runs the call in rounds.
    let client = caller(&gateway, "alice").build();
    assert_eq!(client.call_tool("a__report", json!({})).await.unwrap().text(), "reported hello");
}

#[tokio::test(start_paused = true)]
async fn task_belongs_to_its_caller() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let id = create(&gateway, "a__report").await;
    let task = wait_for(&gateway, &id, "input_required").await;
    let answers = json!({ "more": { "action": "decline" } });
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (principal, id) in [("bob", &*id), ("alice", "invented"), ("alice", "")] {
            let params = json!({ "taskId": id, "inputResponses": answers });
            let error = send(&gateway, principal, method, params).await.unwrap_err();
            let unknown = "Invalid params: unknown `taskId`: the task does not exist";
            assert_eq!((error.code, &*error.message), (code::INVALID_PARAMS, unknown), "{method}");
        }
        // A client that does not declare the extension learns nothing, either.
        let params = json!({ "taskId": id, "inputResponses": answers });
        let error = send_with(&gateway, "alice", method, params, json!({})).await.unwrap_err();
        assert_eq!(error.code, code::MISSING_REQUIRED_CLIENT_CAPABILITY, "{method}");
    }
    assert_eq!(wait_for(&gateway, &id, "input_required").await, task);
    // The id is not that of the upstream, so it does not work there, even for the gateway.
    let upstream = connect(&server, "the gateway").with_tasks().build();
    let direct = upstream.request::<Value>("tasks/get", json!({ "taskId": id })).await;
    assert!(direct.unwrap_err().to_string().contains("unknown `taskId`"));
}

/// It has restarted while the upstream could not be listed.
#[tokio::test(start_paused = true)]
async fn replica_that_has_not_listed_the_upstream_forwards_its_tasks() {
    let server = upstream("a");
    let listed = gateway(&[("a", &server)]).await;
    let client = connect(&server, "the gateway").build();
    let unlisted = Gateway::builder().upstream("a", client).build(gateway_server()).unwrap();
    let id = create(&listed, "a__report").await;
    wait_for(&unlisted, &id, "input_required").await;
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_the_upstream() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let id = create(&gateway, "a__report").await;
    wait_for(&gateway, &id, "input_required").await;
    send(&gateway, "alice", "tasks/cancel", json!({ "taskId": id })).await.unwrap();
    wait_for(&gateway, &id, "cancelled").await;
}

#[tokio::test(start_paused = true)]
async fn invalid_requests_about_tasks_are_refused() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let id = create(&gateway, "a__report").await;
    for (method, params, why) in [
        ("tasks/get", json!({}), "missing field `taskId`"),
        ("tasks/update", json!({ "taskId": id }), "missing field `inputResponses`"),
    ] {
        let error = send(&gateway, "alice", method, params).await.unwrap_err();
        assert_eq!(error.code, code::INVALID_PARAMS);
        assert!(error.message.contains(why), "{}", error.message);
    }
}

/// A request state is sealed with the same keys, but it is not the id of a task.
#[tokio::test(start_paused = true)]
async fn request_state_is_no_task_id() {
    let server = upstream("a");
    let gateway = gateway(&[("a", &server)]).await;
    let params = json!({ "name": "a__report", "arguments": {} });
    let forms = json!({ "elicitation": {} });
    let asked = send_with(&gateway, "alice", "tools/call", params, forms).await.unwrap();
    let state = asked["requestState"].as_str().unwrap();
    let error = send(&gateway, "alice", "tasks/get", json!({ "taskId": state })).await.unwrap_err();
    assert_eq!(error.code, code::INVALID_PARAMS);
    let id = create(&gateway, "a__report").await;
    let params = json!({ "name": "a__report", "arguments": {}, "requestState": id });
    let error = send(&gateway, "alice", "tools/call", params).await.unwrap_err();
    assert_eq!(error.data.unwrap()["reason"], "invalid_request_state");
}

/// The gateway's own tasks would have ids of another kind.
#[tokio::test(start_paused = true)]
async fn gateway_with_a_task_store_forwards_no_tasks() {
    let server = upstream("a");
    let client = connect(&server, "the gateway").build();
    let own = Tool::new("own", "", async || "own").task(TaskPolicy::immediately());
    let builder = gateway_server().tool(own).task_store(MemoryTaskStore::new(10));
    let gateway = Arc::new(Gateway::builder().upstream("a", client).build(builder).unwrap());
    gateway.refresh().await;
    let running = gateway.server().clone();
    tokio::spawn(async move { running.run_tasks().await });
    let client = caller(&gateway, "alice").with_tasks().build();
    assert_eq!(client.call_tool("own", json!({})).await.unwrap().text(), "own");
    assert_eq!(client.call_tool("a__report", json!({})).await.unwrap().text(), "reported hello");
    let params = json!({ "name": "a__report", "arguments": {} });
    let asked = send(&gateway, "alice", "tools/call", params).await.unwrap();
    assert_eq!(asked["resultType"], "input_required");
}

/// A server that asks for what the client has not declared, in a round and in a task: for a page,
/// or for the context of a server from a client that declares sampling.
struct Pushy;

impl RequestHandler for Pushy {
    async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
        let page = json!({ "page": { "method": "elicitation/create", "params": {
            "mode": "url",
            "message": "Log in",
            "url": "https://login.example/",
            "elicitationId": "1",
        } } });
        let task = json!({
            "taskId": "t1",
            "status": "input_required",
            "createdAt": "2026-07-28T00:00:00Z",
            "lastUpdatedAt": "2026-07-28T00:00:00Z",
            "ttlMs": 1000,
        });
        let with = |mut result: Value, more: Value| {
            result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            result
        };
        let failed = |id: &str, error: Value| {
            let more = json!({ "resultType": "complete", "taskId": id, "status": "failed" });
            with(with(task.clone(), more), json!({ "error": error }))
        };
        let params = incoming.request.params.as_ref().map_or("", |params| params.as_str());
        let sample = json!({ "sample": { "method": "sampling/createMessage", "params": {
            "messages": [],
            "maxTokens": 5,
            "includeContext": "thisServer",
        } } });
        let asked = if params.contains(r#""sampling":"#) { sample } else { page };
        let result = match incoming.request.method.as_str() {
            "server/discover" => json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
                "ttlMs": 0,
                "cacheScope": "private",
            }),
            "tools/list" => json!({
                "resultType": "complete",
                "tools": [
                    { "name": "round", "inputSchema": { "type": "object" } },
                    { "name": "task", "inputSchema": { "type": "object" } },
                    { "name": "other", "inputSchema": { "type": "object" } },
                    { "name": "linked", "inputSchema": { "type": "object" } },
                    { "name": "broken", "inputSchema": { "type": "object" } },
                ],
                "ttlMs": 0,
                "cacheScope": "private",
            }),
            "tools/call" if params.contains(r#""name":"round""#) => {
                json!({ "resultType": "input_required", "inputRequests": asked, "requestState": "s" })
            }
            "tools/call" => {
                let ids = [("other", "t2"), ("linked", "t3"), ("broken", "t4")];
                let is_called = |name: &str| params.contains(&format!(r#""name":"{name}""#));
                let id = ids.iter().find(|(name, _)| is_called(name)).map_or("t1", |(_, id)| id);
                let created = with(task, json!({ "resultType": "task", "taskId": id }));
                with(created, json!({ "status": "working" }))
            }
            "tasks/get" if params.contains(r#""taskId":"t3""#) => failed(
                "t3",
                json!({ "code": -32_042, "message": "Log in at https://login.example/",
                    "data": { "elicitations": [asked] } }),
            ),
            "tasks/get" if params.contains(r#""taskId":"t4""#) => {
                failed("t4", json!({ "code": -32_000, "message": "No paper", "data": 5 }))
            }
            "tasks/get" => with(task, json!({ "resultType": "complete", "inputRequests": asked })),
            other => panic!("{other}"),
        };
        Response { id: Some(incoming.request.id), outcome: Ok(RawJson::new(&result).unwrap()) }
    }
}

/// The page would link an account of the caller to the identity of the gateway.
#[tokio::test(start_paused = true)]
async fn questions_that_were_not_declared_do_not_reach_the_caller() {
    let client = Client::builder(InProcess::new(Pushy)).build();
    let gateway = Gateway::builder().upstream("u", client).build(gateway_server()).unwrap();
    gateway.refresh().await;
    let capabilities = json!({
        "elicitation": { "form": {}, "url": {} },
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    });
    let send = async |method: &str, params: Value| {
        send_to(gateway.server(), "alice", method, params, capabilities.clone()).await
    };
    let refused = "The upstream server sent an input request that the gateway does not forward";
    let error = send("tools/call", json!({ "name": "u__round", "arguments": {} })).await;
    assert_eq!(error.unwrap_err().message, "The upstream server cannot complete the call");
    let created = send("tools/call", json!({ "name": "u__task", "arguments": {} })).await.unwrap();
    let error = send("tasks/get", json!({ "taskId": created["taskId"] })).await.unwrap_err();
    assert_eq!(error.message, refused);
    // It answers with the task `t1` when it is asked for `t2`.
    let created = send("tools/call", json!({ "name": "u__other", "arguments": {} })).await.unwrap();
    let error = send("tasks/get", json!({ "taskId": created["taskId"] })).await.unwrap_err();
    assert_eq!(error.message, "The upstream server cannot complete the call");
}

/// As in rounds: the error of a task may be about the gateway's own account.
#[tokio::test(start_paused = true)]
async fn errors_of_tasks_about_the_gateway_do_not_reach_the_caller() {
    let client = Client::builder(InProcess::new(Pushy)).build();
    let gateway = Gateway::builder().upstream("u", client).build(gateway_server()).unwrap();
    gateway.refresh().await;
    for (tool, expected) in [
        (
            "u__linked",
            json!({ "code": -32603, "message": "The upstream server requires a client capability that the gateway does not forward" }),
        ),
        ("u__broken", json!({ "code": -32000, "message": "No paper", "data": 5 })),
    ] {
        let id = create(&gateway, tool).await;
        let task = send(&gateway, "alice", "tasks/get", json!({ "taskId": id })).await.unwrap();
        assert_eq!((&task["status"], &task["error"]), (&json!("failed"), &expected));
    }
}

/// A caller may ignore which context is to be included.
#[tokio::test(start_paused = true)]
async fn context_that_was_not_declared_is_not_asked_for() {
    let client = Client::builder(InProcess::new(Pushy)).build();
    let gateway = Gateway::builder().upstream("u", client).build(gateway_server()).unwrap();
    gateway.refresh().await;
    let capabilities =
        json!({ "sampling": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let send = async |method: &str, params: Value| {
        send_to(gateway.server(), "alice", method, params, capabilities.clone()).await.unwrap()
    };
    let expected = json!({ "messages": [], "maxTokens": 5 });
    let round = send("tools/call", json!({ "name": "u__round", "arguments": {} })).await;
    assert_eq!(round["inputRequests"]["sample"]["params"], expected);
    let created = send("tools/call", json!({ "name": "u__task", "arguments": {} })).await;
    let task = send("tasks/get", json!({ "taskId": created["taskId"] })).await;
    assert_eq!(task["inputRequests"]["sample"]["params"], expected);
}
