//! Tasks on rmcp: `tasks serve` prints `listening PORT` and serves until it is killed, `tasks URL`
//! calls another SDK's server. `interop/README.md` describes their behaviour.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
    ClientConfig, ContentBlock, CreateTaskResult, DetailedTask, ElicitRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ElicitationSchema, ErrorData,
    FormElicitationCapability, GetTaskParams, GetTaskResult, Implementation, InputRequest,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
    TaskPayload, TaskStatus, Tool, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient, RoleServer,
    ServerHandler,
};
use serde_json::{Value, json};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Client = RunningService<RoleClient, User>;

#[tokio::main]
async fn main() -> Result {
    match std::env::args().nth(1).ok_or("usage: tasks serve, or tasks URL")? {
        command if command == "serve" => serve().await,
        url => call(&url).await,
    }
}

async fn serve() -> Result {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let peer = Peer::default();
    let service = StreamableHttpService::new(
        move || Ok(peer.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[derive(Clone, Default)]
struct Peer {
    tasks: TaskManager,
}

async fn work(_: TaskContext) -> std::result::Result<String, TaskExit> {
    Ok("done".to_owned())
}

async fn ask(cx: TaskContext) -> std::result::Result<String, TaskExit> {
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "What is your name?".to_owned(),
        requested_schema: ElicitationSchema::builder().required_string("name").build_unchecked(),
    };
    let question = InputRequest::Elicitation(ElicitRequest::new(params));
    let answer = cx.request_input("name", question).await?;
    Ok(format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or_default()))
}

async fn stuck(cx: TaskContext) -> std::result::Result<String, TaskExit> {
    cx.cancelled().await;
    Err(TaskExit::Cancelled)
}

impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
            .with_server_info(Implementation::new("rmcp-peer", "0.0.0"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let schema = Arc::new(json!({ "type": "object" }).as_object().cloned().unwrap_or_default());
        let tools = ["work", "ask", "stuck"].map(|name| Tool::new(name, name, schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.into()))
    }

    // The routers of rmcp have no tasks: the handler of all calls creates them.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let options = TaskOptions::new().with_poll_interval_ms(50);
        let task = match &*request.name {
            "work" => self.tasks.spawn(options, |cx| Box::pin(finish(work(cx)))),
            "ask" => self.tasks.spawn(options, |cx| Box::pin(finish(ask(cx)))),
            "stuck" => self.tasks.spawn(options, |cx| Box::pin(finish(stuck(cx)))),
            _ => return Err(ErrorData::invalid_params("no such tool", None)),
        };
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

async fn finish(
    run: impl Future<Output = std::result::Result<String, TaskExit>>,
) -> std::result::Result<CallToolResult, TaskExit> {
    Ok(CallToolResult::success(vec![ContentBlock::text(run.await?)]))
}

struct User;

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let elicitation =
            ElicitationCapability::new().with_form(FormElicitationCapability::new());
        let capabilities =
            ClientCapabilities::builder().enable_tasks().enable_elicitation_with(elicitation);
        ClientConfig::new(capabilities.build(), Implementation::new("rmcp-peer", "0.0.0"))
    }
}

async fn call(url: &str) -> Result {
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = User.serve_with_lifecycle(transport, lifecycle).await?;
    row("task", in_time(result(&client, "work", "done", &[])).await);
    row("question", in_time(result(&client, "ask", "Hello, Ada!", &["What is your name?"])).await);
    row("cancel", in_time(cancel(&client)).await);
    client.cancel().await?;
    Ok(())
}

fn row(name: &str, outcome: Result) {
    let outcome = outcome.map_or_else(|why| why.to_string(), |()| "ok".to_owned());
    println!("{name}\t{}", outcome.replace('\n', " "));
}

async fn in_time(outcome: impl Future<Output = Result>) -> Result {
    tokio::time::timeout(Duration::from_secs(30), outcome).await?
}

/// Calls a tool, and returns the id of the task.
async fn begin(client: &Client, tool: &'static str) -> Result<String> {
    match client.call_tool_once(CallToolRequestParams::new(tool)).await? {
        CallToolResponse::Task(created) => Ok(created.task.task_id),
        other => Err(format!("the call is not a task: {other:?}").into()),
    }
}

/// Polls a task once, after the interval of the server.
async fn poll(client: &Client, task_id: &str) -> Result<DetailedTask> {
    let task = client.get_task(GetTaskParams::new(task_id)).await?.task;
    if task.status() == TaskStatus::Working {
        let interval = task.task.poll_interval_ms.unwrap_or(1_000);
        tokio::time::sleep(Duration::from_millis(interval)).await;
    }
    Ok(task)
}

// rmcp leaves the polls and the answers to its user.
async fn result(client: &Client, tool: &'static str, wanted: &str, asked: &[&str]) -> Result {
    let task_id = begin(client, tool).await?;
    let mut forms: Vec<String> = Vec::new();
    loop {
        match poll(client, &task_id).await?.payload {
            TaskPayload::Working => {}
            TaskPayload::InputRequired { input_requests } => {
                let mut answers = rmcp::model::InputResponses::new();
                for (key, request) in input_requests {
                    let InputRequest::Elicitation(request) = request else {
                        return Err(format!("unexpected: {request:?}").into());
                    };
                    let ElicitRequestParams::FormElicitationParams { message, .. } = request.params
                    else {
                        return Err("the question is not a form".into());
                    };
                    forms.push(message);
                    let answer = ElicitResult::new(ElicitationAction::Accept)
                        .with_content(json!({ "name": "Ada" }));
                    answers.insert(key, serde_json::to_value(answer)?);
                }
                client.update_task(UpdateTaskParams::new(&*task_id, answers)).await?;
            }
            TaskPayload::Completed { result } => {
                let result: CallToolResult = serde_json::from_value(Value::Object(result))?;
                let texts: String =
                    result.content.iter().filter_map(|c| c.as_text()).map(|c| &*c.text).collect();
                expect("the result", (result.is_error == Some(true), &*texts), (false, wanted))?;
                let forms: Vec<_> = forms.iter().map(String::as_str).collect();
                return expect("the questions", &*forms, asked);
            }
            other => return Err(format!("the task ended with {other:?}").into()),
        }
    }
}

async fn cancel(client: &Client) -> Result {
    let task_id = begin(client, "stuck").await?;
    client.cancel_task(CancelTaskParams::new(&*task_id)).await?;
    loop {
        let status = poll(client, &task_id).await?.status();
        if status.is_terminal() {
            return expect("the status", status, TaskStatus::Cancelled);
        }
    }
}

fn expect<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}").into()) }
}
