//! The server that the official conformance suite calls: `/mcp` on the loopback port in `PORT`. The
//! dialects are at `/wire/<name>`.

mod content;
mod questions;
mod tasks;
mod wire;

use std::future::IntoFuture as _;
use std::sync::{Arc, OnceLock};

use mrtr::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr::schema::roots::Root;
use mrtr::schema::sampling::CreateMessageParams;
use mrtr::tasks::MemoryTaskStore;
use mrtr::{
    BuildError, ChangeNotifier, ClientFeature, Context, Error, Prompt, PromptOutput, Result,
    Server, ServerUpdate, Tool, ToolOutput,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let port: u16 =
        std::env::var("PORT").map_err(|_| "set PORT to the port to listen on")?.parse()?;
    let (server, dialects) = (server()?, wire::server()?);
    let endpoint = mrtr::endpoint(server.clone())?;
    let router = wire::mount(axum::Router::new().route_service("/mcp", endpoint), &dialects);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let end = mrtr::shutdown(server.clone(), mrtr::http::Readiness::default());
    let serving = axum::serve(listener, router).with_graceful_shutdown(end).into_future();
    let tasks = async { tokio::join!(server.run_tasks(), dialects.run_tasks()) };
    tokio::select! {
        outcome = serving => outcome?,
        _ = tasks => {}
    }
    Ok(())
}

fn server() -> std::result::Result<Server, BuildError> {
    let rounds = [
        Tool::manual(
            "test_input_required_result_elicitation",
            "Asks for a name, in the manual form",
            greet,
        ),
        Tool::new("test_input_required_result_sampling", "Asks a model", ask_model),
        Tool::new("test_input_required_result_list_roots", "Asks for roots", list_roots),
        Tool::new(
            "test_input_required_result_request_state",
            "Asks for confirmation and checks its state",
            confirm,
        ),
        Tool::new(
            "test_input_required_result_tampered_state",
            "Asks for confirmation and checks its state",
            confirm,
        ),
        Tool::new(
            "test_input_required_result_multiple_inputs",
            "Asks everything at once",
            everything,
        ),
        Tool::new("test_input_required_result_multi_round", "Asks in two rounds", two_rounds),
        Tool::new(
            "test_input_required_result_capabilities",
            "Asks a question that the client supports",
            ask_supported_question,
        ),
        Tool::manual("test_streaming_elicitation", "Asks for a name", greet),
    ];
    let plain = [
        Tool::new("test_simple_text", "Returns a text", async |_: Context| -> Result<_> {
            Ok("This is a simple text response for testing.")
        }),
        Tool::new(
            "test_error_handling",
            "Always fails",
            async |_: Context| -> Result<ToolOutput> {
                Err(Error::new("This tool intentionally returns an error for testing"))
            },
        ),
        Tool::new("test_missing_capability", "Needs sampling", async |_: Context| "sampled")
            .requires([ClientFeature::Sampling]),
        Tool::new(
            "test_logging_tool",
            "Logs if the client requests it",
            async |_: Context| -> Result<_> { Ok("done") },
        ),
        Tool::new(
            "json_schema_2020_12_tool",
            "Tool with JSON Schema 2020-12 features",
            async |_: Context, _: Anything| "ok",
        )
        .input_schema(json_schema_2020_12()),
    ];
    let builder = Server::builder("mrtr-conformance", env!("CARGO_PKG_VERSION"))
        .ephemeral_key()
        .allow_anonymous();
    let builder = plain.into_iter().chain(rounds).fold(builder, mrtr::ServerBuilder::tool);
    let built = Arc::new(OnceLock::new());
    let builder = change_tools(&built)
        .into_iter()
        .fold(builder, mrtr::ServerBuilder::tool)
        .updatable::<Tool>()
        .updatable::<Prompt>()
        // For subscriptions to resources, which never change.
        .changes(ChangeNotifier::new());
    let builder = content::tools().into_iter().fold(builder, mrtr::ServerBuilder::tool);
    let builder = questions::tools().into_iter().fold(builder, mrtr::ServerBuilder::tool);
    let builder = tasks::tools().into_iter().fold(builder, mrtr::ServerBuilder::tool);
    let builder = builder.task_store(MemoryTaskStore::new(1_000));
    let builder = content::resources().into_iter().fold(builder, mrtr::ServerBuilder::resource);
    let builder = builder.resource_template(content::template());
    let builder = content::prompts().into_iter().fold(builder, mrtr::ServerBuilder::prompt);
    let server = builder
        .prompt(Prompt::new(
            "test_input_required_result_prompt",
            "Asks for context",
            ask_for_context,
        ))
        .build()?;
    Ok(built.get_or_init(|| server).clone())
}

/// Tools that change what the server offers: another one appears, or disappears again.
fn change_tools(server: &Arc<OnceLock<Server>>) -> [Tool; 2] {
    const NAME: &str = "test_changing";
    let tool = |update: &mut ServerUpdate| {
        if update.remove::<Tool>(NAME) {
            return Ok(());
        }
        update.add(Tool::new(NAME, "Comes and goes", async |_: Context| "here"))
    };
    let prompt = |update: &mut ServerUpdate| {
        if update.remove::<Prompt>(NAME) {
            return Ok(());
        }
        update.add(Prompt::new(NAME, "Comes and goes", async |_: Context| "here"))
    };
    let change = |name, edit: fn(&mut ServerUpdate) -> std::result::Result<(), BuildError>| {
        let server = Arc::clone(server);
        Tool::new(name, "Changes a list", move |_: Context| {
            let updated = server.get().map(|server| server.update(edit)).transpose();
            std::future::ready(updated.map(|_| "changed").map_err(Error::internal))
        })
    };
    [change("test_trigger_tool_change", tool), change("test_trigger_prompt_change", prompt)]
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// The suite sends answers to this tool without a state, and expects them to be used. Only the
/// manual form can read answers to questions that it did not ask.
async fn greet(cx: ManualContext) -> ManualOutput<ToolOutput> {
    let name = cx
        .answers()
        .form::<Name>("user_name")
        .or_else(|| cx.unsolicited_answers().form("user_name"));
    match name {
        Some(Name { name }) => format!("Hello, {name}!").into(),
        None => InputRequired::new().elicit::<Name>("user_name", "What is your name?").into(),
    }
}

async fn ask_model(cx: Context) -> Result<String> {
    let question = CreateMessageParams::user("What is the capital of France?", 100);
    Ok(cx.sample("capital_question", question).await?.content.joined_text())
}

async fn list_roots(cx: Context) -> Result<String> {
    Ok(describe(&cx.roots("client_roots").await?))
}

fn describe(roots: &[Root]) -> String {
    roots.iter().map(|root| root.uri.as_str()).collect::<Vec<_>>().join(", ")
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    ok: bool,
}

async fn confirm(cx: Context) -> Result<String> {
    let nonce: u32 = cx.step("nonce", async |_| Ok(42)).await?;
    let Consent { ok } = cx.elicit("confirm", "Please confirm").await?;
    Ok(if ok && nonce == 42 { "state-ok" } else { "not confirmed" }.to_owned())
}

async fn everything(cx: Context) -> Result<String> {
    let greeting = CreateMessageParams::user("Generate a greeting", 50);
    let (name, greeting, roots) = tokio::try_join!(
        cx.elicit::<Name>("user_name", "What is your name?"),
        cx.sample("greeting", greeting),
        cx.roots("client_roots"),
    )?;
    Ok(format!("{} {} ({})", greeting.content.joined_text(), name.name, describe(&roots)))
}

#[derive(Deserialize, JsonSchema)]
struct Color {
    color: String,
}

async fn two_rounds(cx: Context) -> Result<String> {
    let Name { name } = cx.elicit("step1", "Step 1: What is your name?").await?;
    let Color { color } = cx.elicit("step2", "Step 2: What is your favorite color?").await?;
    Ok(format!("{name} likes {color}"))
}

async fn ask_supported_question(cx: Context) -> Result<String> {
    if cx.supports(ClientFeature::Form) {
        Ok(cx.elicit::<Name>("user_name", "What is your name?").await?.name)
    } else if cx.supports(ClientFeature::Sampling) {
        Ok(cx
            .sample("name", CreateMessageParams::user("Make up a name", 20))
            .await?
            .content
            .joined_text())
    } else {
        Err(Error::new("This tool needs elicitation or sampling."))
    }
}

#[derive(Deserialize, JsonSchema)]
struct ForPrompt {
    context: String,
}

async fn ask_for_context(cx: Context) -> Result<PromptOutput> {
    let ForPrompt { context } =
        cx.elicit("user_context", "What context should the prompt use?").await?;
    Ok(format!("Use this context: {context}").into())
}

#[derive(Deserialize, JsonSchema)]
struct Anything {}

fn json_schema_2020_12() -> mrtr::schema::Object {
    let Value::Object(schema) = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    }) else {
        return mrtr::schema::Object::new();
    };
    schema
}
