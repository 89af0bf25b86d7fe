//! Tools of the scenarios of legacy revisions: questions in the middle of a call, and log messages.

use std::time::Duration;

use mrtr::schema::sampling::CreateMessageParams;
use mrtr::{Context, ElicitOutcome, LogLevel, Result, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) fn tools() -> [Tool; 5] {
    [
        Tool::new("test_tool_with_logging", "Sends log messages", log),
        Tool::new("test_sampling", "Asks the client's model", sample),
        Tool::new("test_elicitation", "Asks the user", elicit),
        Tool::new("test_elicitation_sep1034_defaults", "Asks with default values", with_defaults),
        Tool::new("test_elicitation_sep1330_enums", "Asks for choices of every kind", choices),
    ]
}

async fn log(cx: Context) -> Result<&'static str> {
    for message in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        cx.log(LogLevel::Info, message);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok("done")
}

#[derive(Deserialize, JsonSchema)]
struct Prompt {
    /// The prompt to send to the model
    prompt: String,
}

async fn sample(cx: Context, Prompt { prompt }: Prompt) -> Result<String> {
    let answer = cx.sample("answer", CreateMessageParams::user(prompt, 100)).await?;
    Ok(format!("LLM response: {}", answer.content.joined_text()))
}

#[derive(Deserialize, JsonSchema)]
struct Message {
    /// The message to show the user
    message: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct User {
    /// User's response
    username: String,
    /// User's email address
    email: String,
}

async fn elicit(cx: Context, Message { message }: Message) -> Result<String> {
    let outcome = cx.elicit::<User>("user", message).outcome().await?;
    Ok(format!("User response: {}", describe(&outcome)))
}

fn describe<T: Serialize>(outcome: &ElicitOutcome<T>) -> String {
    match outcome {
        ElicitOutcome::Accept(content) => {
            format!("action=accept, content={}", serde_json::json!(content))
        }
        ElicitOutcome::Decline => "action=decline, content={}".to_owned(),
        ElicitOutcome::Cancel => "action=cancel, content={}".to_owned(),
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    Active,
    Inactive,
    Pending,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Defaults {
    #[serde(default = "default_name")]
    name: String,
    #[serde(default = "default_age")]
    age: i64,
    #[serde(default = "default_score")]
    score: f64,
    #[serde(default = "default_status")]
    status: Status,
    #[serde(default = "default_verified")]
    verified: bool,
}

fn default_name() -> String {
    "John Doe".to_owned()
}

fn default_age() -> i64 {
    30
}

fn default_score() -> f64 {
    95.5
}

fn default_status() -> Status {
    Status::Active
}

fn default_verified() -> bool {
    true
}

async fn with_defaults(cx: Context) -> Result<String> {
    let outcome = cx.elicit::<Defaults>("defaults", "Please check the values").outcome().await?;
    Ok(format!("Elicitation completed: {}", describe(&outcome)))
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Untitled {
    Option1,
    Option2,
    Option3,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Titled {
    #[schemars(title = "First Option")]
    Value1,
    #[schemars(title = "Second Option")]
    Value2,
    #[schemars(title = "Third Option")]
    Value3,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(extend("enumNames" = ["Option One", "Option Two", "Option Three"]))]
enum WithEnumNames {
    Opt1,
    Opt2,
    Opt3,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Choices {
    untitled_single: Untitled,
    titled_single: Titled,
    legacy_enum: WithEnumNames,
    untitled_multi: Vec<Untitled>,
    titled_multi: Vec<Titled>,
}

async fn choices(cx: Context) -> Result<String> {
    let outcome = cx.elicit::<Choices>("choices", "Please choose").outcome().await?;
    Ok(format!("Elicitation completed: {}", describe(&outcome)))
}
