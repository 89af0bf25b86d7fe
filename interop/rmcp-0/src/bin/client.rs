//! The client of rmcp 0.12 on our server: `client URL` over HTTP, `client COMMAND ARGUMENT…` over
//! stdio. `interop/README.md` describes its calls and its output.

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParam, CallToolResult, ClientCapabilities, ClientInfo,
    ClientRequest, Content, CreateElicitationRequestParam, CreateElicitationResult,
    CreateMessageRequestParam, CreateMessageResult, ElicitationAction, ErrorCode, ErrorData,
    GetPromptRequestParam, JsonObject, ListRootsResult, ProgressNotificationParam,
    PromptMessageContent, ProtocolVersion, ReadResourceRequestParam, ResourceContents, Role, Root,
    SamplingMessage,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RunningService, ServiceError,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, RoleClient, ServiceExt as _};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Client = RunningService<RoleClient, User>;

// As in `interop/rmcp`: one thread, so that progress is handled before the result that follows it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result {
    let target: Vec<_> = std::env::args().skip(1).collect();
    let client = connect(&target).await?;
    tokio::spawn(async move {
        rows(&client).await;
        client.cancel().await
    })
    .await??;
    Ok(())
}

async fn connect(target: &[String]) -> Result<Client> {
    let (first, rest) =
        target.split_first().ok_or("usage: client URL, or a command with arguments")?;
    if first.contains("://") {
        let transport = StreamableHttpClientTransport::from_uri(first.as_str());
        return Ok(User::default().serve(transport).await?);
    }
    let mut command = Command::new(first);
    command.args(rest);
    Ok(User::default().serve(TokioChildProcess::new(command)?).await?)
}

async fn rows(client: &Client) {
    row("initialize", initialize(client));
    row("list", list(client).await);
    row("call", text(client, "add", json!({ "a": 2, "b": 3 }), "5").await);
    row("error", fails(client).await);
    row("wrong argument", wrong_argument(client).await);
    row("progress", progress(client).await);
    row("cancel", in_time(cancel(client)).await);
    row("form", text(client, "form", json!({}), "Hello, Ada!").await);
    row("decline", decline(client).await);
    row("sampling", text(client, "model", json!({}), "Paris").await);
    row("roots", text(client, "roots", json!({}), "file:///work").await);
    row("rounds", rounds(client).await);
    row("joined", text(client, "joined", json!({}), "Ada Lovelace").await);
    row("state only", text(client, "poll", json!({}), "done").await);
    row("prompt", prompt(client).await);
    row("template", template(client).await);
}

fn row(name: &str, outcome: Result) {
    let outcome = outcome.map_or_else(|why| why.to_string(), |()| "ok".to_owned());
    println!("{name}\t{}", outcome.replace('\n', " "));
}

/// Answers the questions, or declines them, and records its input.
#[derive(Default)]
struct User {
    declines: AtomicBool,
    forms: Mutex<Vec<String>>,
    progress: Mutex<Vec<(f64, Option<f64>)>>,
    has_progress: Notify,
}

impl ClientHandler for User {
    fn get_info(&self) -> ClientInfo {
        let capabilities = ClientCapabilities::builder();
        let capabilities = capabilities.enable_roots().enable_sampling().enable_elicitation();
        ClientInfo {
            protocol_version: ProtocolVersion::V_2025_06_18,
            capabilities: capabilities.build(),
            ..ClientInfo::default()
        }
    }

    async fn create_elicitation(
        &self,
        request: CreateElicitationRequestParam,
        _: RequestContext<RoleClient>,
    ) -> std::result::Result<CreateElicitationResult, ErrorData> {
        self.forms.lock().unwrap().push(request.message);
        if self.declines.load(Ordering::Relaxed) {
            return Ok(CreateElicitationResult {
                action: ElicitationAction::Decline,
                content: None,
            });
        }
        let known = json!({ "name": "Ada", "sure": true, "first": "Ada", "last": "Lovelace" });
        let wanted = request.requested_schema.properties.into_keys();
        let answer: JsonObject = wanted.map(|name| (name.clone(), known[name].clone())).collect();
        let content = Some(answer.into());
        Ok(CreateElicitationResult { action: ElicitationAction::Accept, content })
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParam,
        _: RequestContext<RoleClient>,
    ) -> std::result::Result<CreateMessageResult, ErrorData> {
        let message = SamplingMessage { role: Role::Assistant, content: Content::text("Paris") };
        Ok(CreateMessageResult { model: "a model".to_owned(), stop_reason: None, message })
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> std::result::Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult { roots: vec![Root { uri: "file:///work".to_owned(), name: None }] })
    }

    async fn on_progress(
        &self,
        received: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().unwrap().push((received.progress, received.total));
        self.has_progress.notify_waiters();
    }
}

fn initialize(client: &Client) -> Result {
    let version = client.peer_info().map(|server| server.protocol_version.clone());
    expect("the revision", version, Some(ProtocolVersion::V_2025_06_18))
}

async fn list(client: &Client) -> Result {
    let tools = client.list_all_tools().await?;
    let mut names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    names.sort_unstable();
    let all = "add cancelled count fail form joined model poll roots rounds url wait";
    expect("the tools", &*names.join(" "), all)
}

fn request(tool: &'static str, arguments: &Value) -> CallToolRequestParam {
    CallToolRequestParam { name: tool.into(), arguments: arguments.as_object().cloned() }
}

fn expect_text(result: &CallToolResult, fails: bool, wanted: &str) -> Result {
    let texts: String =
        result.content.iter().filter_map(|c| c.as_text()).map(|c| &*c.text).collect();
    expect("the result", (result.is_error == Some(true), &*texts), (fails, wanted))
}

async fn text(client: &Client, tool: &'static str, arguments: Value, wanted: &str) -> Result {
    expect_text(&client.call_tool(request(tool, &arguments)).await?, false, wanted)
}

async fn fails(client: &Client) -> Result {
    expect_text(&client.call_tool(request("fail", &json!({}))).await?, true, "out of order")
}

async fn wrong_argument(client: &Client) -> Result {
    let refused = match client.call_tool(request("add", &json!({ "a": "two", "b": 3 }))).await {
        Ok(result) => result.is_error == Some(true),
        Err(ServiceError::McpError(error)) => error.code == ErrorCode::INVALID_PARAMS,
        Err(error) => return Err(error.into()),
    };
    expect("the call is rejected", refused, true)
}

async fn progress(client: &Client) -> Result {
    text(client, "count", json!({}), "counted").await?;
    let received = client.service().progress.lock().unwrap().clone();
    expect("the progress", received, [1.0, 2.0, 3.0].map(|n| (n, Some(3.0))).to_vec())
}

async fn in_time(outcome: impl Future<Output = Result>) -> Result {
    tokio::time::timeout(Duration::from_secs(30), outcome).await?
}

async fn cancel(client: &Client) -> Result {
    let runs = client.service().has_progress.notified();
    let request = ClientRequest::from(CallToolRequest::new(request("wait", &json!({}))));
    let options = PeerRequestOptions::default();
    let mut call = client.send_cancellable_request(request, options).await?;
    tokio::select! {
        ended = &mut call.rx => return Err(format!("the call was not cancelled: {ended:?}").into()),
        () = runs => call.cancel(None).await?,
    }
    text(client, "cancelled", json!({}), "cancelled").await
}

async fn decline(client: &Client) -> Result {
    client.service().declines.store(true, Ordering::Relaxed);
    let outcome = text(client, "form", json!({}), "declined").await;
    client.service().declines.store(false, Ordering::Relaxed);
    outcome
}

async fn rounds(client: &Client) -> Result {
    client.service().forms.lock().unwrap().clear();
    text(client, "rounds", json!({}), "Hello, Ada! true").await?;
    let forms = client.service().forms.lock().unwrap().clone();
    let asked = ["What is your name?", "Are you sure, Ada?"].map(str::to_owned);
    expect("the questions", forms, asked.to_vec())
}

async fn prompt(client: &Client) -> Result {
    let request = GetPromptRequestParam { name: "brief".to_owned(), arguments: None };
    let messages = client.get_prompt(request).await?.messages;
    let texts = messages.iter().map(|message| match &message.content {
        PromptMessageContent::Text { text } => Some(&**text),
        _ => None,
    });
    expect("the messages", texts.collect::<Vec<_>>(), vec![Some("A brief for Ada")])
}

async fn template(client: &Client) -> Result {
    let request = ReadResourceRequestParam { uri: "note://7".to_owned() };
    let contents = client.read_resource(request).await?.contents;
    let texts = contents.iter().map(|content| match content {
        ResourceContents::TextResourceContents { text, .. } => Some(&**text),
        _ => None,
    });
    expect("the contents", texts.collect::<Vec<_>>(), vec![Some("note 7 of Ada")])
}

fn expect<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}").into()) }
}
