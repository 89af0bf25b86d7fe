//! A server on rmcp 0.12 for our client, with one tool, prompt or template for each row of
//! `interop/README.md`.
//!
//! The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
//! parent process over stdin and stdout.

use std::error::Error;
use std::sync::Arc;

use rmcp::handler::server::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    Content, CreateElicitationRequestParam, CreateMessageRequestParam, ElicitationAction,
    ElicitationSchema, ErrorData, GetPromptRequestParam, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, Meta, PaginatedRequestParam, ProgressNotificationParam, Prompt,
    PromptMessage, PromptMessageRole, ProtocolVersion, ReadResourceRequestParam,
    ReadResourceResult, ResourceContents, Role, SamplingMessage, ServerCapabilities, ServerInfo,
};
use rmcp::service::{Peer, RequestContext, ServiceError};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|arg| arg == "--stdio") {
        Handlers::new().serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let service = StreamableHttpService::new(
        || Ok(Handlers::new()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

type Client = Peer<RoleServer>;
type Outcome = Result<String, ErrorData>;

/// Notified when a call of `wait` was cancelled.
static CANCELLED: Notify = Notify::const_new();

#[derive(Clone)]
struct Handlers {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Handlers {
    fn new() -> Self {
        Self { tool_router: Self::tool_router() }
    }

    /// Adds two numbers
    #[tool]
    async fn add(&self, Parameters(Sum { a, b }): Parameters<Sum>) -> String {
        (a + b).to_string()
    }

    /// Fails
    #[tool]
    async fn fail(&self) -> Result<String, String> {
        Err("out of order".to_owned())
    }

    /// Counts to three
    #[tool]
    async fn count(&self, meta: Meta, client: Client) -> Outcome {
        if let Some(progress_token) = meta.get_progress_token() {
            for progress in [1.0, 2.0, 3.0] {
                let (progress_token, total) = (progress_token.clone(), Some(3.0));
                let sent =
                    ProgressNotificationParam { progress_token, progress, total, message: None };
                client.notify_progress(sent).await.map_err(failed)?;
            }
        }
        Ok("counted".to_owned())
    }

    /// Waits until its call is cancelled
    #[tool]
    async fn wait(&self, cx: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if let Some(progress_token) = cx.meta.get_progress_token() {
            let (total, message) = (None, None);
            let sent = ProgressNotificationParam { progress_token, progress: 1.0, total, message };
            cx.peer.notify_progress(sent).await.map_err(failed)?;
        }
        cx.ct.cancelled().await;
        CANCELLED.notify_one();
        Ok(())
    }

    /// Waits until a call of `wait` was cancelled
    #[tool]
    async fn cancelled(&self) -> String {
        CANCELLED.notified().await;
        "cancelled".to_owned()
    }

    /// Asks for a name
    #[tool]
    async fn form(&self, client: Client) -> Outcome {
        let name = ask(&client, "name", "What is your name?").await?;
        Ok(name.map_or("declined".to_owned(), |name| format!("Hello, {}!", text(&name))))
    }

    /// Needs a revision with URL elicitation
    #[tool]
    async fn url(&self) -> Result<String, String> {
        Err("2025-06-18 has no URL elicitation".to_owned())
    }

    /// Asks a model
    #[tool]
    async fn model(&self, client: Client) -> Outcome {
        let content = Content::text("Capital of France?");
        let request = CreateMessageRequestParam {
            messages: vec![SamplingMessage { role: Role::User, content }],
            model_preferences: None,
            system_prompt: None,
            include_context: None,
            temperature: None,
            max_tokens: 10,
            stop_sequences: None,
            metadata: None,
        };
        let reply = client.create_message(request).await.map_err(failed)?;
        Ok(reply.message.content.as_text().map(|text| text.text.clone()).unwrap_or_default())
    }

    /// Asks for roots
    #[tool]
    async fn roots(&self, client: Client) -> Outcome {
        let roots = client.list_roots().await.map_err(failed)?.roots;
        Ok(roots.iter().map(|root| &*root.uri).collect::<Vec<_>>().join(","))
    }

    /// Asks twice
    #[tool]
    async fn rounds(&self, client: Client) -> Outcome {
        let name = given(ask(&client, "name", "What is your name?").await?)?;
        let name = text(&name);
        let sure = given(ask(&client, "sure", &format!("Are you sure, {name}?")).await?)?;
        Ok(format!("Hello, {name}! {sure}"))
    }

    /// Asks two questions at once
    #[tool]
    async fn joined(&self, client: Client) -> Outcome {
        let (first, last) = tokio::try_join!(
            ask(&client, "first", "First name?"),
            ask(&client, "last", "Last name?")
        )?;
        Ok(format!("{} {}", text(&given(first)?), text(&given(last)?)))
    }

    /// Returns at once: this revision has no state
    #[tool]
    async fn poll(&self) -> String {
        "done".to_owned()
    }
}

#[tool_handler]
impl ServerHandler for Handlers {
    fn get_info(&self) -> ServerInfo {
        let capabilities = ServerCapabilities::builder();
        ServerInfo {
            protocol_version: ProtocolVersion::V_2025_06_18,
            capabilities: capabilities.enable_tools().enable_prompts().enable_resources().build(),
            ..ServerInfo::default()
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParam>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let brief = Prompt::new("brief", Some("Asks for whom"), None);
        Ok(ListPromptsResult { prompts: vec![brief], ..ListPromptsResult::default() })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParam,
        cx: RequestContext<RoleServer>,
    ) -> Result<GetPromptResult, ErrorData> {
        if request.name != "brief" {
            return Err(ErrorData::invalid_params("no such prompt", None));
        }
        let name = given(ask(&cx.peer, "name", "For whom?").await?)?;
        let text = format!("A brief for {}", text(&name));
        let messages = vec![PromptMessage::new_text(PromptMessageRole::User, text)];
        Ok(GetPromptResult { description: None, messages })
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParam>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::default())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParam,
        cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let Some(id) = request.uri.strip_prefix("note://") else {
            return Err(ErrorData::resource_not_found("no such resource", None));
        };
        let name = given(ask(&cx.peer, "name", "Whose?").await?)?;
        let text = format!("note {id} of {}", text(&name));
        Ok(ReadResourceResult { contents: vec![ResourceContents::text(text, &request.uri)] })
    }
}

/// Asks for one field. Returns `None` if the user does not accept.
async fn ask(client: &Client, key: &str, message: &str) -> Result<Option<Value>, ErrorData> {
    let schema = ElicitationSchema::builder();
    let schema =
        if key == "sure" { schema.required_bool(key) } else { schema.required_string(key) };
    let requested_schema = schema.build_unchecked();
    let request = CreateElicitationRequestParam { message: message.to_owned(), requested_schema };
    let result = client.create_elicitation(request).await.map_err(failed)?;
    let is_accepted = matches!(result.action, ElicitationAction::Accept);
    let field = result.content.and_then(|content| content.get(key).cloned());
    Ok(field.filter(|_| is_accepted))
}

fn given(answer: Option<Value>) -> Result<Value, ErrorData> {
    answer.ok_or_else(|| ErrorData::invalid_params("no answer", None))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn failed(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}
