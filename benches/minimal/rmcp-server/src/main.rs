//! A minimal server on rmcp: one tool that asks a question.

use std::sync::Arc;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::tool::{InputResponses, RequestState};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams,
    ElicitationSchema, ErrorData, InputRequest, InputRequests, InputRequiredResult,
    RequestStateCodec, ServerCapabilities, ServerConfig,
};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Booking {
    people: u8,
}

#[derive(Clone)]
struct Restaurant {
    codec: Arc<RequestStateCodec>,
    tools: ToolRouter<Self>,
}

#[tool_router]
impl Restaurant {
    /// Books a table
    #[tool]
    async fn book(
        &self,
        Parameters(Booking { people }): Parameters<Booking>,
        InputResponses(answers): InputResponses,
        RequestState(state): RequestState,
    ) -> Result<CallToolResponse, ErrorData> {
        let wrong = |e: String| ErrorData::internal_error(e, None);
        if let Some(state) = state {
            self.codec.open_json::<()>(&state).map_err(|e| wrong(e.to_string()))?;
            let answer =
                answers.as_ref().and_then(|all| all.get("seat")?.pointer("/content/place"));
            let text =
                format!("{people} people, {}", answer.and_then(|v| v.as_str()).unwrap_or_default());
            return Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        }
        let schema = serde_json::json!({
            "type": "object", "properties": { "place": { "type": "string" } }, "required": ["place"],
        });
        let requested_schema: ElicitationSchema =
            serde_json::from_value(schema).map_err(|e| wrong(e.to_string()))?;
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "Where would you like to sit?".to_owned(),
            requested_schema,
        };
        let question = InputRequest::Elicitation(ElicitRequest::new(params));
        let state = self.codec.seal_json(&()).map_err(|e| wrong(e.to_string()))?;
        let questions = InputRequests::from([("seat".to_owned(), question)]);
        Ok(InputRequiredResult::new(Some(questions), Some(state)).into())
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for Restaurant {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let codec = RequestStateCodec::try_new(*b"0123456789abcdef0123456789abcdef")?;
    let server = Restaurant { codec: Arc::new(codec), tools: Restaurant::tool_router() };
    if std::env::args().any(|arg| arg == "--stdio") {
        server.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
