//! Our server for the clients of other SDKs, with one tool, prompt or template for each row of the
//! table that `cargo xtask interop` prints. `interop/README.md` describes their behaviour.
//!
//! The server prints `listening PORT` and serves until it is killed. With `--stdio`, it serves its
//! parent process over stdin and stdout.

use mrtr::http::{ServeOptions, serve};
use mrtr::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr::schema::sampling::CreateMessageParams;
use mrtr::{
    BuildError, Context, ElicitOutcome, Error, Prompt, PromptOutput, ResourceTemplate, Result,
    Server, Tool, ToolOutput,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    if std::env::args().any(|arg| arg == "--stdio") {
        mrtr::serve_stdio(server()?).await?;
        return Ok(());
    }
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    print_line(&format!("listening {}", listener.local_addr()?.port()));
    let endpoint = mrtr::endpoint(server()?)?;
    serve(listener, endpoint, ServeOptions::default(), std::future::pending()).await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn print_line(text: &str) {
    println!("{text}");
}

fn server() -> std::result::Result<Server, BuildError> {
    Server::builder("mrtr-interop", env!("CARGO_PKG_VERSION"))
        .ephemeral_key()
        .allow_anonymous()
        .tool(Tool::new("add", "Adds two numbers", add))
        .tool(Tool::new("fail", "Fails", fail))
        .tool(Tool::new("count", "Counts to three", count))
        .tool(Tool::new("wait", "Waits until its call is cancelled", wait))
        .tool(Tool::new("cancelled", "Waits until a call of `wait` was cancelled", cancelled))
        .tool(Tool::new("form", "Asks for a name", form))
        .tool(Tool::new("url", "Sends the user to a page", url))
        .tool(Tool::new("model", "Asks a model", model))
        .tool(Tool::new("roots", "Asks for roots", roots))
        .tool(Tool::new("rounds", "Asks twice", rounds))
        .tool(Tool::new("joined", "Asks two questions at once", joined))
        .tool(Tool::manual("poll", "Returns a state without questions", poll))
        .prompt(Prompt::new("brief", "Asks for whom", brief))
        .resource_template(ResourceTemplate::new("note://{id}", "note", note))
        .build()
}

#[derive(Deserialize, JsonSchema)]
struct Sum {
    a: i64,
    b: i64,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Sure {
    sure: bool,
}

#[derive(Deserialize, JsonSchema)]
struct First {
    first: String,
}

#[derive(Deserialize, JsonSchema)]
struct Last {
    last: String,
}

#[derive(Deserialize, JsonSchema)]
struct Note {
    id: String,
}

async fn add(_: Context, Sum { a, b }: Sum) -> Result<String> {
    Ok((a + b).to_string())
}

async fn fail(_: Context) -> Result<String> {
    Err(Error::new("out of order"))
}

async fn count(cx: Context) -> Result<String> {
    for n in 1..=3 {
        cx.progress(f64::from(n), Some(3.0), None);
    }
    Ok("counted".to_owned())
}

/// Notified when a call of `wait` was cancelled.
static CANCELLED: Notify = Notify::const_new();

async fn wait(cx: Context) -> Result<String> {
    // The end of a call drops its handler, and nothing else ends this one.
    struct Dropped;
    impl Drop for Dropped {
        fn drop(&mut self) {
            CANCELLED.notify_one();
        }
    }
    let _dropped = Dropped;
    cx.progress(1.0, None, None);
    std::future::pending().await
}

async fn cancelled(_: Context) -> Result<String> {
    CANCELLED.notified().await;
    Ok("cancelled".to_owned())
}

async fn form(cx: Context) -> Result<String> {
    Ok(match cx.elicit::<Name>("name", "What is your name?").outcome().await? {
        ElicitOutcome::Accept(Name { name }) => format!("Hello, {name}!"),
        _ => "declined".to_owned(),
    })
}

async fn url(cx: Context) -> Result<String> {
    cx.elicit_url("login", "Please log in", "https://example.com/login").await?;
    Ok("logged in".to_owned())
}

async fn model(cx: Context) -> Result<String> {
    let question = CreateMessageParams::user("Capital of France?", 10);
    Ok(cx.sample("capital", question).await?.content.joined_text())
}

async fn roots(cx: Context) -> Result<String> {
    let roots = cx.roots("roots").await?;
    Ok(roots.iter().map(|root| root.uri.as_str()).collect::<Vec<_>>().join(","))
}

async fn rounds(cx: Context) -> Result<String> {
    let Name { name } = cx.elicit("name", "What is your name?").await?;
    let Sure { sure } = cx.elicit("sure", format!("Are you sure, {name}?")).await?;
    Ok(format!("Hello, {name}! {sure}"))
}

async fn joined(cx: Context) -> Result<String> {
    let (First { first }, Last { last }) =
        tokio::try_join!(cx.elicit("first", "First name?"), cx.elicit("last", "Last name?"))?;
    Ok(format!("{first} {last}"))
}

async fn poll(cx: ManualContext) -> Result<ManualOutput<ToolOutput>> {
    Ok(match cx.state::<bool>()? {
        None => InputRequired::new().state(&true).into(),
        Some(_) => "done".into(),
    })
}

async fn brief(cx: Context) -> Result<PromptOutput> {
    let Name { name } = cx.elicit("name", "For whom?").await?;
    Ok(format!("A brief for {name}").into())
}

async fn note(cx: Context, Note { id }: Note) -> Result<String> {
    let Name { name } = cx.elicit("name", "Whose?").await?;
    Ok(format!("note {id} of {name}"))
}
