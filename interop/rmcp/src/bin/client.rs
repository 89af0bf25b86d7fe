//! rmcp's client on our server: `client URL` over HTTP, `client COMMAND ARGUMENT…` over stdio.
//! `interop/README.md` describes its calls and its output.

// Revision 2026-07-28 deprecates sampling and roots.
#![expect(deprecated)]

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig,
    ClientRequest, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode, ErrorData,
    FormElicitationCapability, GetPromptRequestParams, Implementation, JsonObject, ListRootsResult,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, RequestMetaObject,
    ResourceContents, Role, Root, SamplingMessage, UrlElicitationCapability,
};
use rmcp::service::{
    NotificationContext, PeerRequestOptions, RequestContext, RunningService, ServiceError,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Notify;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Client = RunningService<RoleClient, User>;

// rmcp spawns a task for each notification, and sends a result to the waiting task. One thread runs
// tasks in the order in which they became ready, so progress that was sent before a result is
// handled before it. For that, the rows must run in a spawned task, not in the main future.
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
    // The revision is required explicitly, so that a fallback to an older one fails.
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let (first, rest) =
        target.split_first().ok_or("usage: client URL, or a command with arguments")?;
    if first.contains("://") {
        let transport = StreamableHttpClientTransport::from_uri(first.as_str());
        return Ok(User::default().serve_with_lifecycle(transport, lifecycle).await?);
    }
    let mut command = Command::new(first);
    command.args(rest);
    Ok(User::default().serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?)
}

async fn rows(client: &Client) {
    row("discover", discover(client).await);
    row("list", list(client).await);
    row("call", text(client, "add", json!({ "a": 2, "b": 3 }), "5").await);
    row("error", fails(client).await);
    row("wrong argument", wrong_argument(client).await);
    row("progress", progress(client).await);
    row("cancel", in_time(cancel(client)).await);
    row("form", text(client, "form", json!({}), "Hello, Ada!").await);
    row("decline", decline(client).await);
    row("url", text(client, "url", json!({}), "logged in").await);
    row("sampling", text(client, "model", json!({}), "Paris").await);
    row("roots", text(client, "roots", json!({}), "file:///work").await);
    row("rounds", rounds(client).await);
    row("joined", joined(client).await);
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
    fn get_info(&self) -> ClientConfig {
        let elicitation = ElicitationCapability::new()
            .with_form(FormElicitationCapability::new())
            .with_url(UrlElicitationCapability::new());
        let capabilities = ClientCapabilities::builder()
            .enable_roots()
            .enable_sampling()
            .enable_elicitation_with(elicitation)
            .build();
        ClientConfig::new(capabilities, Implementation::new("rmcp-peer", "0.0.0"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> std::result::Result<ElicitResult, ErrorData> {
        match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                self.forms.lock().unwrap().push(message);
                if self.declines.load(Ordering::Relaxed) {
                    return Ok(ElicitResult::new(ElicitationAction::Decline));
                }
                let known =
                    json!({ "name": "Ada", "sure": true, "first": "Ada", "last": "Lovelace" });
                let wanted = requested_schema.properties.into_keys();
                let answer: JsonObject =
                    wanted.map(|name| (name.clone(), known[name].clone())).collect();
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer.into()))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. }
                if (&*message, &*url) == ("Please log in", "https://example.com/login") =>
            {
                Ok(ElicitResult::new(ElicitationAction::Accept))
            }
            other => Err(ErrorData::invalid_params(format!("unexpected: {other:?}"), None)),
        }
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> std::result::Result<CreateMessageResult, ErrorData> {
        let reply = SamplingMessage::assistant_text("Paris");
        Ok(CreateMessageResult::new(reply, "a model".to_owned()))
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> std::result::Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///work")]))
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

async fn discover(client: &Client) -> Result {
    let versions = client.discover(RequestMetaObject::default()).await?.supported_versions;
    expect("the versions contain 2026-07-28", versions.contains(&ProtocolVersion::V_2026_07_28), true)
}

async fn list(client: &Client) -> Result {
    let tools = client.list_all_tools().await?;
    let mut names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    names.sort_unstable();
    let all = "add cancelled count fail form joined model poll roots rounds url wait";
    expect("the tools", &*names.join(" "), all)
}

fn request(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(tool)
        .with_arguments(arguments.as_object().cloned().unwrap_or_default())
}

fn expect_text(result: &CallToolResult, fails: bool, wanted: &str) -> Result {
    let texts: String =
        result.content.iter().filter_map(|c| c.as_text()).map(|c| &*c.text).collect();
    expect("the result", (result.is_error == Some(true), &*texts), (fails, wanted))
}

async fn text(client: &Client, tool: &'static str, arguments: Value, wanted: &str) -> Result {
    expect_text(&client.call_tool(request(tool, arguments)).await?, false, wanted)
}

async fn fails(client: &Client) -> Result {
    expect_text(&client.call_tool(request("fail", json!({}))).await?, true, "out of order")
}

async fn wrong_argument(client: &Client) -> Result {
    let refused = match client.call_tool(request("add", json!({ "a": "two", "b": 3 }))).await {
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
    let request = ClientRequest::from(CallToolRequest::new(request("wait", json!({}))));
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
    expect(
        "the questions",
        forms,
        ["What is your name?", "Are you sure, Ada?"].map(str::to_owned).to_vec(),
    )
}

async fn joined(client: &Client) -> Result {
    // The first of the two requests gets the questions, so there can be only one round of them.
    let result = client.call_tool_with_mrtr_max_rounds(request("joined", json!({})), 2).await?;
    expect_text(&result, false, "Ada Lovelace")
}

async fn prompt(client: &Client) -> Result {
    let messages = client.get_prompt(GetPromptRequestParams::new("brief")).await?.messages;
    let texts: Vec<_> =
        messages.iter().map(|m| (&m.role, m.content.as_text().map(|text| &*text.text))).collect();
    expect("the messages", texts, vec![(&Role::User, Some("A brief for Ada"))])
}

async fn template(client: &Client) -> Result {
    let contents = client.read_resource(ReadResourceRequestParams::new("note://7")).await?.contents;
    let texts: Vec<_> = contents
        .iter()
        .map(|content| match content {
            ResourceContents::TextResourceContents { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    expect("the contents", texts, vec![Some("note 7 of Ada")])
}

fn expect<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}").into()) }
}
