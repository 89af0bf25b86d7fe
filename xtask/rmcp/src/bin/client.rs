//! rmcp's client completes the booking tool of the quickstart on our server.
//!
//! `client URL` over HTTP, `client COMMAND ARGUMENT…` over stdio.

use std::error::Error;
use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ElicitRequestParams,
    ElicitResult, ElicitationAction, ErrorData, Implementation, ProtocolVersion,
};
use rmcp::service::{RequestContext, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::{Value, json};
use tokio::process::Command;

/// Answers the questions, or declines them.
#[derive(Clone)]
struct Person {
    declines: bool,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().build(),
            Implementation::new("rmcp-peer", "0.0.0"),
        )
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        if self.declines {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Err(ErrorData::invalid_params("only forms", None));
        };
        let answers = [
            ("Where", json!({ "place": "inside" })),
            ("not eat", json!({ "avoid": "nuts" })),
            ("deposit", json!({ "pay": true })),
        ];
        let answer = answers.into_iter().find(|(words, _)| message.contains(words));
        let (_, answer) = answer.ok_or_else(|| ErrorData::invalid_params(message.clone(), None))?;
        self.asked.lock().unwrap().push(message);
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(answer))
    }
}

type Connected = RunningService<RoleClient, Person>;

async fn connect(person: Person, target: &[String]) -> Result<Connected, Box<dyn Error>> {
    // The revision is named, so that a fall-back to an older one would fail, not pass.
    let lifecycle =
        ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let first = target.first().ok_or("usage: client URL, or a command with arguments")?;
    if first.contains("://") {
        let transport = StreamableHttpClientTransport::from_uri(first.as_str());
        return Ok(person.serve_with_lifecycle(transport, lifecycle).await?);
    }
    let mut command = Command::new(first);
    command.args(&target[1..]);
    Ok(person.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?)
}

async fn book(client: &Connected, people: Value) -> Result<(bool, String), Box<dyn Error>> {
    let arguments =
        json!({ "people": people, "day": "Friday" }).as_object().cloned().unwrap_or_default();
    let result: CallToolResult =
        client.call_tool(CallToolRequestParams::new("book").with_arguments(arguments)).await?;
    let text = result.content[0].as_text().map(|text| text.text.clone()).unwrap_or_default();
    Ok((result.is_error == Some(true), text))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let target: Vec<_> = std::env::args().skip(1).collect();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let client = connect(Person { declines: false, asked: asked.clone() }, &target).await?;
    let tools = client.list_tools(None).await?.tools;
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["book"]);
    let (failed, text) = book(&client, json!(2)).await?;
    assert!(
        !failed && text.starts_with("Booked table 6 inside for 2 on Friday, no nuts."),
        "{text}"
    );
    let asked = asked.lock().unwrap().clone();
    assert!(asked.len() == 3 && asked[2].contains("deposit"), "{asked:?}");
    client.cancel().await?;

    let client = connect(Person { declines: true, asked: Arc::default() }, &target).await?;
    let (failed, text) = book(&client, json!(2)).await?;
    assert!(failed && text.contains("declined"), "{text}");
    let (failed, text) = book(&client, json!("two")).await?;
    assert!(failed && text.contains("people"), "{text}");
    client.cancel().await?;
    println!("  ok: two rounds, declining, and a wrong argument, with rmcp's client");
    Ok(())
}
