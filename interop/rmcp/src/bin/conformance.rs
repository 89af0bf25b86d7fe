//! A server on rmcp with the tools, prompts and resources that the official conformance suite calls,
//! on the loopback port in `PORT`. `cargo xtask conformance gateway-rmcp` runs the suite against it
//! twice: directly, and through a gateway.

// Revision 2026-07-28 deprecates sampling and roots.
#![expect(deprecated)]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::tool::{InputResponses, RequestState};
use rmcp::model::{
    CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, CompletionInfo,
    ContentBlock, CreateMessageRequest, CreateMessageRequestParams, CreateMessageResult, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, Implementation, InputRequest,
    InputRequiredResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
    ListRootsRequest, ListRootsResult, PaginatedRequestParams, ProgressNotificationParam, Prompt,
    PromptArgument, PromptMessage, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Role, SamplingMessage,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, tool, tool_handler, tool_router};
use rmcp_peer::answers::{Answers, Outcome, accepted, answer, ask, done, form, string};
use serde_json::json;

/// A PNG with one red pixel, and the header of a WAV without samples.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::var("PORT")?.parse()?;
    let config = StreamableHttpServerConfig::default().with_legacy_session_mode(false);
    let service = StreamableHttpService::new(
        || Ok(Fixture),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}

#[derive(Clone)]
struct Fixture;

#[tool_router]
impl Fixture {
    /// Returns a text
    #[tool]
    async fn test_simple_text(&self) -> String {
        "This is a simple text response for testing.".to_owned()
    }

    /// Always fails
    #[tool]
    async fn test_error_handling(&self) -> Result<String, String> {
        Err("This tool intentionally returns an error for testing".to_owned())
    }

    /// Returns an image
    #[tool]
    async fn test_image_content(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::image(PNG, "image/png")])
    }

    /// Returns audio
    #[tool]
    async fn test_audio_content(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::audio(WAV, "audio/wav")])
    }

    /// Returns a resource
    #[tool]
    async fn test_embedded_resource(&self) -> CallToolResult {
        let text = "This is an embedded resource content.";
        CallToolResult::success(vec![resource("test://embedded-resource", "text/plain", text)])
    }

    /// Returns several kinds of content
    #[tool]
    async fn test_multiple_content_types(&self) -> CallToolResult {
        let json = json!({ "test": "data", "value": 123 }).to_string();
        CallToolResult::success(vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PNG, "image/png"),
            resource("test://mixed-content-resource", "application/json", &json),
        ])
    }

    /// Reports progress
    #[tool]
    async fn test_tool_with_progress(
        &self,
        cx: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        if let Some(token) = cx.meta.get_progress_token() {
            for percent in [0.0, 50.0, 100.0] {
                let progress =
                    ProgressNotificationParam::new(token.clone(), percent).with_total(100.0);
                let sent = cx.peer.notify_progress(progress).await;
                sent.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok("done".to_owned())
    }

    /// Asks for a name
    #[tool]
    async fn test_input_required_result_elicitation(
        &self,
        InputResponses(answers): InputResponses,
    ) -> Outcome {
        match accepted(&answers, "user_name", "name")? {
            None => Ok(ask([form("user_name", "name", "What is your name?")]).into()),
            Some(name) => Ok(done(format!("Hello, {}!", string(name)?))),
        }
    }

    /// Asks a model
    #[tool]
    async fn test_input_required_result_sampling(
        &self,
        InputResponses(answers): InputResponses,
    ) -> Outcome {
        match sampled(&answers, "capital_question")? {
            None => Ok(ask([sample("capital_question", "What is the capital of France?")]).into()),
            Some(text) => Ok(done(text)),
        }
    }

    /// Asks for roots
    #[tool]
    async fn test_input_required_result_list_roots(
        &self,
        InputResponses(answers): InputResponses,
    ) -> Outcome {
        let Some(ListRootsResult { roots, .. }) = answer(&answers, "client_roots")? else {
            return Ok(ask([roots_question()]).into());
        };
        Ok(done(roots.iter().map(|root| &*root.uri).collect::<Vec<_>>().join(", ")))
    }

    /// Asks for confirmation
    #[tool]
    async fn test_input_required_result_request_state(
        &self,
        InputResponses(answers): InputResponses,
        RequestState(state): RequestState,
    ) -> Outcome {
        if accepted(&answers, "confirm", "ok")?.is_none() {
            return Ok(ask_with("confirming", [form("confirm", "ok", "Please confirm")]));
        }
        Ok(done(if state.as_deref() == Some("confirming") { "state-ok" } else { "not confirmed" }))
    }

    /// Asks everything at once
    #[tool]
    async fn test_input_required_result_multiple_inputs(
        &self,
        InputResponses(answers): InputResponses,
    ) -> Outcome {
        let roots = answer::<ListRootsResult>(&answers, "client_roots")?;
        let (name, greeting) =
            (accepted(&answers, "user_name", "name")?, sampled(&answers, "greeting")?);
        let (Some(name), Some(greeting), Some(roots)) = (name, greeting, roots) else {
            return Ok(ask_with(
                "asking",
                [
                    form("user_name", "name", "What is your name?"),
                    sample("greeting", "Generate a greeting"),
                    roots_question(),
                ],
            ));
        };
        Ok(done(format!("{greeting} {} ({} roots)", string(name)?, roots.roots.len())))
    }

    /// Asks in two rounds
    #[tool]
    async fn test_input_required_result_multi_round(
        &self,
        InputResponses(answers): InputResponses,
        RequestState(state): RequestState,
    ) -> Outcome {
        if let (Some(color), Some(name)) = (accepted(&answers, "step2", "color")?, state) {
            return Ok(done(format!("{name} likes {}", string(color)?)));
        }
        let Some(name) = accepted(&answers, "step1", "name")? else {
            let question = form("step1", "name", "Step 1: What is your name?");
            return Ok(ask_with("no name yet", [question]));
        };
        let question = form("step2", "color", "Step 2: What is your favorite color?");
        Ok(ask_with(&string(name)?, [question]))
    }
}

#[tool_handler]
impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        let capabilities = capabilities.enable_tools().enable_prompts().enable_resources();
        ServerConfig::new(capabilities.enable_completions().build())
            .with_server_info(Implementation::new("rmcp-conformance", "0.0.0"))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = |name: &str, arguments: &[&str]| {
            let required = |name: &&str| PromptArgument::new(*name).with_required(true);
            let arguments: Vec<_> = arguments.iter().map(required).collect();
            Prompt::new(name, Some("A prompt"), (!arguments.is_empty()).then_some(arguments))
        };
        Ok(ListPromptsResult::with_all_items(vec![
            prompt("test_simple_prompt", &[]),
            prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
            prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
            prompt("test_prompt_with_image", &[]),
        ]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| {
            let arguments = request.arguments.as_ref();
            let given = arguments.and_then(|all| all.get(name)?.as_str()).map(ToOwned::to_owned);
            given.ok_or_else(|| ErrorData::invalid_params(format!("{name} is missing"), None))
        };
        let text = |text: &str| PromptMessage::new_text(Role::User, text);
        let messages = match request.name.as_str() {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                let (first, second) = (argument("arg1")?, argument("arg2")?);
                vec![text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
            }
            "test_prompt_with_embedded_resource" => {
                let embedded = "Embedded resource content for testing.";
                let embedded = resource(&argument("resourceUri")?, "text/plain", embedded);
                let message = PromptMessage::new(Role::User, embedded);
                vec![message, text("Please process the embedded resource above.")]
            }
            "test_prompt_with_image" => {
                let image = ContentBlock::image(PNG, "image/png");
                let message = PromptMessage::new(Role::User, image);
                vec![message, text("Please analyze the image above.")]
            }
            _ => return Err(ErrorData::invalid_params("no such prompt", None)),
        };
        Ok(GetPromptResult::new(messages).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![
            Resource::new("test://static-text", "static-text").with_mime_type("text/plain"),
            Resource::new("test://static-binary", "static-binary").with_mime_type("image/png"),
        ]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("test://template/{id}/data", "template");
        let template = template.with_mime_type("application/json");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &*request.uri;
        let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (uri, id) {
            ("test://static-text", _) => {
                let text = "This is the content of the static text resource.";
                ResourceContents::text(text, uri).with_mime_type("text/plain")
            }
            ("test://static-binary", _) => {
                ResourceContents::blob(PNG, uri).with_mime_type("image/png")
            }
            (_, Some(id)) => {
                let data = format!("Data for ID: {id}");
                let json = json!({ "id": id, "templateTest": true, "data": data });
                ResourceContents::text(json.to_string(), uri).with_mime_type("application/json")
            }
            _ => {
                let data = json!({ "uri": uri });
                return Err(ErrorData::invalid_params("no such resource", Some(data)));
            }
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let cities = ["paris", "park", "party"].into_iter();
        let cities = cities.filter(|city| city.starts_with(&request.argument.value));
        let values = CompletionInfo::new(cities.map(ToOwned::to_owned).collect());
        Ok(CompleteResult::new(values.map_err(|e| ErrorData::internal_error(e, None))?))
    }
}

fn resource(uri: &str, mime_type: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime_type))
}

fn sample<'a>(key: &'a str, question: &str) -> (&'a str, InputRequest) {
    let message = vec![SamplingMessage::user_text(question)];
    let params = CreateMessageRequestParams::new(message, 100);
    (key, InputRequest::CreateMessage(CreateMessageRequest::new(params)))
}

/// Returns the text of a model's answer.
fn sampled(answers: &Answers, key: &str) -> Result<Option<String>, ErrorData> {
    let reply = answer::<CreateMessageResult>(answers, key)?;
    let text = |reply: CreateMessageResult| {
        let texts = reply.message.content.iter().filter_map(|block| block.as_text());
        texts.map(|text| &*text.text).collect::<String>()
    };
    Ok(reply.map(text))
}

fn roots_question() -> (&'static str, InputRequest) {
    ("client_roots", InputRequest::ListRoots(ListRootsRequest::default()))
}

/// Asks, with a state.
fn ask_with<const N: usize>(state: &str, questions: [(&str, InputRequest); N]) -> CallToolResponse {
    let questions = questions.map(|(key, question)| (key.to_owned(), question));
    InputRequiredResult::new(Some(questions.into()), Some(state.to_owned())).into()
}
