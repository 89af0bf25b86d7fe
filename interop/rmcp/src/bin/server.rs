//! A server on rmcp for our client, with one tool, prompt or template for each row of
//! `interop/README.md`.
//!
//! The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
//! parent process over stdin and stdout.

// Revision 2026-07-28 deprecates sampling and roots.
#![expect(deprecated)]

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

use rmcp::handler::server::tool::{InputResponses, RequestState};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CreateMessageRequest, CreateMessageRequestParams, CreateMessageResult, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, InputRequest, InputRequiredResult,
    ListPromptsResult, ListResourceTemplatesResult, ListRootsRequest, ListRootsResult,
    PaginatedRequestParams, ProgressNotificationParam, Prompt, PromptMessage, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    ResourceTemplate, Role, SamplingMessage, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _, tool, tool_handler, tool_router};
use rmcp_peer::answers::{Outcome, accepted, answer, ask, done, form, string};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().any(|arg| arg == "--stdio") {
        Peer.serve(rmcp::transport::stdio()).await?.waiting().await?;
        return Ok(());
    }
    // A result alone is sent as JSON, and a result after progress as a stream.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let service =
        StreamableHttpService::new(|| Ok(Peer), Arc::new(NeverSessionManager::default()), config);
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

/// Notified when a call of `wait` was cancelled.
static CANCELLED: Notify = Notify::const_new();

#[derive(Clone)]
struct Peer;

#[tool_router]
impl Peer {
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

    /// Waits until its call is cancelled
    #[tool]
    async fn wait(&self, cx: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if let Some(token) = cx.meta.get_progress_token() {
            let sent = cx.peer.notify_progress(ProgressNotificationParam::new(token, 1.0)).await;
            sent.map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
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
    async fn form(&self, InputResponses(answers): InputResponses) -> Outcome {
        if let Some(ElicitResult { action, .. }) = answer(&answers, "name")?
            && action != ElicitationAction::Accept
        {
            return Ok(done("declined"));
        }
        Ok(match accepted(&answers, "name", "name")? {
            None => ask([form("name", "name", "What is your name?")]).into(),
            Some(name) => done(format!("Hello, {}!", string(name)?)),
        })
    }

    /// Sends the user to a page
    #[tool]
    async fn url(&self, InputResponses(answers): InputResponses) -> Outcome {
        let Some(ElicitResult { action, .. }) = answer(&answers, "login")? else {
            let page = ElicitRequestParams::UrlElicitationParams {
                meta: None,
                message: "Please log in".to_owned(),
                url: "https://example.com/login".to_owned(),
                elicitation_id: String::new(),
            };
            let page = InputRequest::Elicitation(ElicitRequest::new(page));
            return Ok(ask([("login", page)]).into());
        };
        Ok(done(if action == ElicitationAction::Accept { "logged in" } else { "declined" }))
    }

    /// Asks a model
    #[tool]
    async fn model(&self, InputResponses(answers): InputResponses) -> Outcome {
        let Some(reply) = answer::<CreateMessageResult>(&answers, "capital")? else {
            let question = vec![SamplingMessage::user_text("Capital of France?")];
            let request = CreateMessageRequest::new(CreateMessageRequestParams::new(question, 10));
            return Ok(ask([("capital", InputRequest::CreateMessage(request))]).into());
        };
        let texts = reply.message.content.iter().filter_map(|block| block.as_text());
        Ok(done(texts.map(|text| &*text.text).collect::<String>()))
    }

    /// Asks for roots
    #[tool]
    async fn roots(&self, InputResponses(answers): InputResponses) -> Outcome {
        let Some(ListRootsResult { roots, .. }) = answer(&answers, "roots")? else {
            let request = InputRequest::ListRoots(ListRootsRequest::default());
            return Ok(ask([("roots", request)]).into());
        };
        Ok(done(roots.iter().map(|root| &*root.uri).collect::<Vec<_>>().join(",")))
    }

    /// Asks twice
    #[tool]
    async fn rounds(
        &self,
        InputResponses(answers): InputResponses,
        RequestState(name): RequestState,
    ) -> Outcome {
        // A client sends only the answers of the last round, so the state carries the name. The
        // state is not protected: a client that changes the name there could have given another
        // answer in the first place.
        let Some(name) = name else {
            let Some(name) = accepted(&answers, "name", "name")? else {
                return Ok(ask([form("name", "name", "What is your name?")]).into());
            };
            return Ok(ask_if_sure(string(name)?).into());
        };
        let Some(sure) = accepted(&answers, "sure", "sure")? else {
            return Ok(ask_if_sure(name).into());
        };
        Ok(done(format!("Hello, {name}! {sure}")))
    }

    /// Asks two questions at once
    #[tool]
    async fn joined(&self, InputResponses(answers): InputResponses) -> Outcome {
        match (accepted(&answers, "first", "first")?, accepted(&answers, "last", "last")?) {
            (Some(first), Some(last)) => Ok(done(format!("{} {}", string(first)?, string(last)?))),
            _ => {
                Ok(ask([form("first", "first", "First name?"), form("last", "last", "Last name?")])
                    .into())
            }
        }
    }

    /// Returns a state without questions
    #[tool]
    async fn poll(&self, RequestState(state): RequestState) -> Outcome {
        Ok(match state {
            None => InputRequiredResult::from_request_state("called").into(),
            Some(_) => done("done"),
        })
    }
}

#[tool_handler]
impl ServerHandler for Peer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(capabilities.enable_tools().enable_prompts().enable_resources().build())
            .with_server_info(Implementation::new("rmcp-peer", "0.0.0"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let brief = Prompt::new("brief", Some("Asks for whom"), None);
        Ok(ListPromptsResult::with_all_items(vec![brief]))
    }

    // `#[prompt]` is not used, because it passes only the arguments of a prompt, not the answers.
    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != "brief" {
            return Err(ErrorData::invalid_params("no such prompt", None));
        }
        let Some(name) = accepted(&request.input_responses, "name", "name")? else {
            return Ok(ask([form("name", "name", "For whom?")]).into());
        };
        let text = format!("A brief for {}", string(name)?);
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let note = ResourceTemplate::new("note://{id}", "note");
        Ok(ListResourceTemplatesResult::with_all_items(vec![note]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let Some(id) = request.uri.strip_prefix("note://") else {
            return Err(ErrorData::resource_not_found("no such resource", None));
        };
        let Some(name) = accepted(&request.input_responses, "name", "name")? else {
            return Ok(ask([form("name", "name", "Whose?")]).into());
        };
        let text = format!("note {id} of {}", string(name)?);
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, &request.uri)]).into())
    }
}

fn ask_if_sure(name: String) -> InputRequiredResult {
    let (key, question) = form("sure", "sure", &format!("Are you sure, {name}?"));
    InputRequiredResult::new(Some([(key.to_owned(), question)].into()), Some(name))
}
