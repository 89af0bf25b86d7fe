//! A server over standard input and output, as desktop hosts start it: a tool with structured
//! output, a prompt that asks, a resource and a resource template.
//!
//! `cargo build --example stdio`, then
//! `cargo run --example client -- target/debug/examples/stdio count '{"text": "a b"}'`

use mrtr::{BuildError, Context, Json, Prompt, Resource, ResourceTemplate, Result, Server, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// The result for programs. Its schema is the output schema of the tool.
#[derive(Serialize, JsonSchema)]
struct Count {
    words: usize,
    characters: usize,
}

async fn count(Text { text }: Text) -> Json<Count> {
    let words = text.split_whitespace().count();
    Json(Count { words, characters: text.chars().count() })
}

#[derive(Deserialize, JsonSchema)]
struct Tone {
    /// The tone of the text, such as friendly
    tone: String,
}

/// Prompts and resources can ask, too.
async fn rewrite(cx: Context, Text { text }: Text) -> Result<String> {
    let Tone { tone } = cx.elicit("tone", "Which tone should the text have?").await?;
    Ok(format!("Rewrite this text in a {tone} tone: {text}"))
}

async fn readme() -> &'static str {
    "Counts words, and rewrites texts."
}

#[derive(Deserialize, JsonSchema)]
struct Topic {
    topic: String,
}

async fn help(Topic { topic }: Topic) -> String {
    format!("There is no help on {topic} yet.")
}

pub fn server() -> Result<Server, BuildError> {
    Server::builder("words", "1.0.0")
        .tool(Tool::new("count", "Counts words and characters", count))
        .prompt(Prompt::new("rewrite", "Rewrites a text", rewrite))
        .resource(Resource::new("words://readme", "readme", readme).mime_type("text/plain"))
        .resource_template(ResourceTemplate::new("words://help/{topic}", "help", help))
        .allow_anonymous()
        .ephemeral_key()
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Log to standard error: standard output belongs to the protocol.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    Ok(mrtr::serve_stdio(server()?).await?)
}
