//! The tools of `benches/README.md` on rmcp. By default with its best settings: JSON for a response
//! without earlier messages, and no delay on the socket. With `--as-shipped`, with its defaults.
//! With `--stdio`, on two streams.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

use axum::serve::ListenerExt as _;
use rmcp::handler::server::router::tool::{ToolRoute, ToolRouter};
use rmcp::handler::server::tool::{InputResponses, RequestState, ToolCallContext};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationSchema, ErrorData, Implementation, InputRequest,
    InputRequests, InputRequiredResult, ProgressNotificationParam, ProtocolVersion,
    RequestStateCodec, SealOptions, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arg = |name: &str| std::env::args().any(|arg| arg == name);
    let peer = Peer::new()?;
    if arg("--stdio") {
        peer.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let shipped = arg("--as-shipped");
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let config = if shipped { config } else { config.with_json_response(true) };
    let service = StreamableHttpService::new(
        move || Ok(peer.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    let listener = listener.tap_io(move |stream| {
        let _ = stream.set_nodelay(!shipped);
    });
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Item {
    item: String,
}

#[derive(Clone)]
struct Peer {
    codec: Arc<RequestStateCodec>,
    tools: ToolRouter<Self>,
}

type Outcome = Result<CallToolResponse, ErrorData>;

#[tool_router]
impl Peer {
    fn new() -> Result<Self, Box<dyn Error>> {
        let codec = RequestStateCodec::try_new(*b"0123456789abcdef0123456789abcdef")?;
        let mut tools = Self::tool_router();
        let more = std::env::args().skip_while(|arg| arg != "--tools").nth(1);
        let schema = json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"],
        });
        let schema = Arc::new(schema.as_object().cloned().unwrap_or_default());
        for n in 1..=more.and_then(|n| n.parse().ok()).unwrap_or(0) {
            let tool = Tool::new(format!("tool-{n}"), "Does one thing", Arc::clone(&schema));
            tools.add_route(ToolRoute::new_dyn(tool, |cx: ToolCallContext<'_, Self>| {
                let text = cx.arguments.as_ref().and_then(|all| all.get("text")?.as_str());
                let text = text.unwrap_or_default().to_owned();
                Box::pin(async move { Ok(done(text)) })
            }));
        }
        Ok(Self { codec: Arc::new(codec), tools })
    }

    /// Says it again
    #[tool]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    /// Counts characters
    #[tool]
    async fn length(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.chars().count().to_string()
    }

    /// Orders something
    #[tool]
    async fn order(
        &self,
        Parameters(Item { item }): Parameters<Item>,
        InputResponses(answers): InputResponses,
        RequestState(state): RequestState,
    ) -> Outcome {
        let binding = format!("order\0{item}");
        let answer = match &state {
            None => None,
            Some(state) => {
                self.open::<()>(state, &binding)?;
                accepted(answers.as_ref().and_then(|all| all.get("quantity")))?
            }
        };
        let quantity = answer.and_then(|content| content.get("quantity")?.as_i64());
        let Some(quantity) = quantity.filter(|quantity| (1..=10).contains(quantity)) else {
            let schema = json!({
                "type": "object",
                "properties": { "quantity": { "type": "integer", "minimum": 1, "maximum": 10 } },
                "required": ["quantity"],
            });
            let message = format!("How many of {item}?");
            return self.ask("quantity", &message, schema, &(), &binding);
        };
        Ok(done(format!("{quantity} x {item}")))
    }

    /// Does ten steps
    #[tool]
    async fn plan(
        &self,
        InputResponses(answers): InputResponses,
        RequestState(state): RequestState,
    ) -> Outcome {
        let mut results: Vec<String> = match &state {
            None => Vec::new(),
            Some(state) => self.open(state, "plan")?,
        };
        let question = if results.len() < 10 { "Go on?" } else { "Really?" };
        if state.is_some() {
            let answer = accepted(answers.as_ref().and_then(|all| all.get("consent")))?;
            if answer.and_then(|content| content.get("yes")?.as_bool()).is_none() {
                return self.consent(question, &results);
            }
        }
        if results.len() == 10 {
            return Ok(done(results.concat().len().to_string()));
        }
        results.extend((0..5).map(|_| "x".repeat(100)));
        self.consent(if state.is_none() { question } else { "Really?" }, &results)
    }

    /// Counts to three
    #[tool]
    async fn count(&self, cx: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        if let Some(token) = cx.meta.get_progress_token() {
            for n in [1.0, 2.0, 3.0] {
                let progress = ProgressNotificationParam::new(token.clone(), n).with_total(3.0);
                let sent = cx.peer.notify_progress(progress).await;
                sent.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
            }
        }
        Ok("counted".to_owned())
    }
}

impl Peer {
    fn consent(&self, message: &str, results: &[String]) -> Outcome {
        let schema = json!({
            "type": "object",
            "properties": { "yes": { "type": "boolean" } },
            "required": ["yes"],
        });
        self.ask("consent", message, schema, &results, "plan")
    }

    fn ask(
        &self,
        key: &str,
        message: &str,
        schema: serde_json::Value,
        state: &impl serde::Serialize,
        binding: &str,
    ) -> Outcome {
        let wrong = |e: String| ErrorData::internal_error(e, None);
        let requested_schema: ElicitationSchema =
            serde_json::from_value(schema).map_err(|e| wrong(e.to_string()))?;
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: message.to_owned(),
            requested_schema,
        };
        let question = InputRequest::Elicitation(ElicitRequest::new(params));
        let options = SealOptions::new()
            .associated_data(binding.as_bytes())
            .ttl(std::time::Duration::from_secs(600));
        let state = self.codec.seal_json_with(state, &options).map_err(|e| wrong(e.to_string()))?;
        let questions = InputRequests::from([(key.to_owned(), question)]);
        Ok(InputRequiredResult::new(Some(questions), Some(state)).into())
    }

    fn open<T: DeserializeOwned>(&self, state: &str, binding: &str) -> Result<T, ErrorData> {
        let opened = self.codec.open_json_with(state, binding.as_bytes());
        opened.map_err(|e| ErrorData::invalid_params(e.to_string(), None))
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("bench", "1.0.0"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
    }
}

fn done(text: impl Into<String>) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

/// Returns the content of an accepted form, or `None` if there is no answer.
fn accepted(answer: Option<&serde_json::Value>) -> Result<Option<serde_json::Value>, ErrorData> {
    let Some(answer) = answer else { return Ok(None) };
    let answer = ElicitResult::deserialize(answer)
        .map_err(|e| ErrorData::invalid_params(e.to_string(), None))?;
    match answer.action {
        ElicitationAction::Accept => Ok(answer.content.map(|content| json!(content))),
        _ => Err(ErrorData::invalid_params("declined", None)),
    }
}
