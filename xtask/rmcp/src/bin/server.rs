//! A server on rmcp, whose tools ask. It says `listening PORT` and serves until it is ended; with `--stdio` it
//! serves the process that started it.

use std::borrow::Cow;
use std::error::Error;

use rmcp::handler::server::tool::{InputResponses, RequestState};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams, ErrorData,
    InputRequest, InputRequests, InputRequiredResult, ProtocolVersion, ServerCapabilities,
    ServerConfig,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Greeting {
    greeting: String,
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(Clone)]
struct Peer;

#[tool_router]
impl Peer {
    /// Greets, once it knows whom, and that it should.
    #[tool]
    async fn greet(
        &self,
        Parameters(Greeting { greeting }): Parameters<Greeting>,
        RequestState(learned): RequestState,
        InputResponses(responses): InputResponses,
    ) -> Result<CallToolResponse, ErrorData> {
        let answer = |key: &str, field: &str| {
            let response: Option<Value> =
                responses.as_ref()?.get(key).and_then(|r| serde_json::to_value(r).ok());
            response.map(|response| response["content"][field].clone())
        };
        let Some(name) = learned else {
            let Some(name) = answer("name", "name") else {
                let schema = json!({ "name": { "type": "string", "minLength": 1 } });
                return ask("name", "What is your name?", schema, None);
            };
            let name = name.as_str().unwrap_or_default();
            let schema = json!({ "sure": { "type": "boolean" } });
            return ask("sure", &format!("Are you sure, {name}?"), schema, Some(name));
        };
        let sure = if answer("sure", "sure") == Some(Value::Bool(true)) { "True" } else { "False" };
        let text = format!("{greeting}, {name}! ({sure})");
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    /// Adds two numbers.
    #[tool]
    async fn add(&self, Parameters(Sum { a, b }): Parameters<Sum>) -> String {
        (a + b).to_string()
    }
}

fn ask(
    key: &str,
    message: &str,
    properties: Value,
    state: Option<&str>,
) -> Result<CallToolResponse, ErrorData> {
    let schema = json!({ "type": "object", "properties": properties, "required": [key] });
    let requested_schema = serde_json::from_value(schema)
        .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
    let params = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.to_owned(),
        requested_schema,
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(params));
    let requests = InputRequests::from_iter([(key.to_owned(), request)]);
    Ok(InputRequiredResult::new(Some(requests), state.map(str::to_owned)).into())
}

#[tool_handler]
impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|arg| arg == "--stdio") {
        Peer.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let service: StreamableHttpService<Peer, LocalSessionManager> =
        StreamableHttpService::new(|| Ok(Peer), std::sync::Arc::default(), config);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?.port());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
