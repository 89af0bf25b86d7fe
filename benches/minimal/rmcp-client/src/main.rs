//! A minimal client on rmcp: one call, and an answer to its questions.

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorData, FormElicitationCapability, Implementation,
    ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::json;

struct Person;

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let elicitation = ElicitationCapability::new().with_form(FormElicitationCapability::new());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        ClientConfig::new(capabilities, Implementation::new("minimal", "0.0.0"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = json!({ "place": "outside" });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) =
        args.split_first().ok_or("usage: client URL, or a command with arguments")?;
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let client = if first.contains("://") {
        let transport = StreamableHttpClientTransport::from_uri(first.as_str());
        Person.serve_with_lifecycle(transport, lifecycle).await?
    } else {
        let mut command = tokio::process::Command::new(first);
        command.args(rest);
        Person.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?
    };
    let arguments = json!({ "people": 2 }).as_object().cloned().unwrap_or_default();
    let call = CallToolRequestParams::new("book").with_arguments(arguments);
    println!("{:?}", client.call_tool(call).await?.content);
    client.cancel().await?;
    Ok(())
}
