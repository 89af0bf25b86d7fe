//! The dialects at `/wire/<name>`, with the tools of the proposals.
//!
//! The tools that the texts call without a task are in the manual form: a client of `dependent`, and
//! the literal messages of SEP-2322, may send answers without a state.

use std::time::Duration;

use axum::Router;
use mrtr::dialects::{Dialect, DialectEndpoint};
use mrtr::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr::schema::elicitation::{ElicitAction, ElicitResult};
use mrtr::schema::sampling::{
    CreateMessageParams, CreateMessageResult, ModelHint, ModelPreferences,
};
use mrtr::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr::{Context, Error, Result, Server, Tool, ToolOutput};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Returns the server behind all dialects.
pub(crate) fn server() -> std::result::Result<Server, mrtr::BuildError> {
    let task = TaskPolicy::immediately().poll_interval(Duration::from_millis(100));
    Server::builder("mrtr-dialects", env!("CARGO_PKG_VERSION"))
        .ephemeral_key()
        .allow_anonymous()
        .task_store(MemoryTaskStore::new(1_000))
        .tool(Tool::manual("get_weather", "Returns the weather at a location", get_weather))
        .tool(Tool::new("echo", "Echoes the input of the user", echo).task(task))
        .tool(Tool::manual("update_work_item", "Updates a work item", update_work_item))
        .build()
}

/// Mounts every dialect at its path.
pub(crate) fn mount(router: Router, server: &Server) -> Router {
    Dialect::ALL.iter().fold(router, |router, dialect| {
        let endpoint = DialectEndpoint::new(*dialect, server.clone(), server.sealer());
        router.route_service(&format!("/wire/{dialect}"), endpoint)
    })
}

/// Returns the content of a form. Unlike an inline question, the manual form may also accept the
/// answer to a question that the server has no record of.
///
/// # Errors
///
/// If the user has declined or cancelled.
fn form<T: DeserializeOwned + JsonSchema + 'static>(
    cx: &ManualContext,
    key: &str,
) -> Result<Option<T>> {
    for answers in [cx.answers(), cx.unsolicited_answers()] {
        if let Some(content) = answers.form(key) {
            return Ok(Some(content));
        }
        let outcome: Option<ElicitResult> = answers.read(key);
        if outcome.is_some_and(|outcome| outcome.action != ElicitAction::Accept) {
            return Err(Error::new(format!("The user did not answer {key}.")));
        }
    }
    Ok(None)
}

#[derive(Deserialize, JsonSchema)]
struct Location {
    location: String,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Login {
    name: String,
}

/// What the rounds before have told.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    login: Option<String>,
    capital: Option<String>,
}

async fn get_weather(
    cx: ManualContext,
    Location { location }: Location,
) -> Result<ManualOutput<ToolOutput>> {
    let Known { mut login, mut capital } = cx.state()?.unwrap_or_default();
    login = form::<Login>(&cx, "github_login")?.map(|login| login.name).or(login);
    let sampled: Option<CreateMessageResult> = cx
        .answers()
        .read("capital_of_france")
        .or_else(|| cx.unsolicited_answers().read("capital_of_france"));
    capital = sampled.map(|sampled| sampled.content.joined_text()).or(capital);
    let mut required = InputRequired::new();
    if login.is_none() {
        required = required.elicit::<Login>("github_login", "Please provide your GitHub username");
    }
    if capital.is_none() {
        let preferences = ModelPreferences::default()
            .with_hints(vec![ModelHint::new("claude-3-sonnet")])
            .with_intelligence_priority(0.8)
            .with_speed_priority(0.5);
        let question = CreateMessageParams::user("What is the capital of France?", 100)
            .with_model_preferences(preferences)
            .with_system_prompt("You are a helpful assistant.");
        required = required.sample("capital_of_france", question);
    }
    if login.is_some() && capital.is_some() {
        let weather =
            format!("Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy");
        return Ok(weather.into());
    }
    Ok(required.state(&Known { login, capital }).into())
}

#[derive(Deserialize, JsonSchema)]
struct Input {
    input: String,
}

async fn echo(cx: Context) -> Result<String> {
    let question = "Please provide the input string to echo back";
    let Input { input } = cx.elicit("echo_input", question).await?;
    Ok(format!("Echo: {input}"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Update {
    work_item_id: u64,
    fields: Map<String, Value>,
}

#[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
enum ResolutionKind {
    Fixed,
    #[serde(rename = "Won't Fix")]
    WontFix,
    Duplicate,
    #[serde(rename = "By Design")]
    ByDesign,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Resolution {
    /// Resolution type for this bug
    resolution: ResolutionKind,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Duplicate {
    /// Work item ID of the original bug
    duplicate_of_id: f64,
}

/// The rules: a work item that is resolved needs a resolution, and a duplicate needs the original.
async fn update_work_item(
    cx: ManualContext,
    Update { work_item_id: id, fields }: Update,
) -> Result<ManualOutput<ToolOutput>> {
    if fields.get("System.State").and_then(Value::as_str) != Some("Resolved") {
        return Ok(format!("Bug #{id} updated.").into());
    }
    let before: Option<Resolution> = cx.state()?;
    let Some(known) = form::<Resolution>(&cx, "resolution")?.or(before) else {
        let question =
            format!("Resolving Bug #{id} requires a resolution. How was this bug resolved?");
        return Ok(InputRequired::new().elicit::<Resolution>("resolution", question).into());
    };
    let kind = match known.resolution {
        ResolutionKind::Fixed => "Fixed",
        ResolutionKind::WontFix => "Won't Fix",
        ResolutionKind::ByDesign => "By Design",
        ResolutionKind::Duplicate => {
            let original = form::<Duplicate>(&cx, "duplicate_of")?;
            let Some(Duplicate { duplicate_of_id: original }) = original else {
                let question = "Since this is a duplicate, which work item is the original?";
                let required = InputRequired::new().elicit::<Duplicate>("duplicate_of", question);
                return Ok(required.state(&known).into());
            };
            return Ok(format!(
                "Bug #{id} resolved as Duplicate of Bug #{original}. State set to Resolved and \
                 duplicate link created."
            )
            .into());
        }
    };
    Ok(format!("Bug #{id} resolved as {kind}. State set to Resolved.").into())
}
