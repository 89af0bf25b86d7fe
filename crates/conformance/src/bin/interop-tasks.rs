//! Our client and our server for the tasks of other SDKs. `interop/README.md` describes their
//! behaviour.
//!
//! `interop-tasks serve` prints `listening PORT` and serves until it is killed.
//! `interop-tasks --stdio` serves its parent process over stdin and stdout. `interop-tasks URL` calls
//! a server.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr::client::{CallOutcome, PendingCall, Transport};
use mrtr::http::{ServeOptions, serve};
use mrtr::schema::tool::CallToolResult;
use mrtr::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr::{BuildError, Client, Context, ElicitResult, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match std::env::args().nth(1).ok_or("usage: interop-tasks serve|--stdio|URL")? {
        command if command == "serve" => {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
            print_line(&format!("listening {}", listener.local_addr()?.port()));
            let server = server()?;
            let endpoint = mrtr::endpoint(server.clone())?;
            let end = std::future::pending();
            tokio::select! {
                outcome = serve(listener, endpoint, ServeOptions::default(), end) => outcome?,
                () = server.run_tasks() => {}
            }
        }
        command if command == "--stdio" => mrtr::serve_stdio(server()?).await?,
        url => call(&url).await?,
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn print_line(text: &str) {
    println!("{text}");
}

fn server() -> std::result::Result<Server, BuildError> {
    let policy = || TaskPolicy::immediately().poll_interval(Duration::from_millis(50));
    Server::builder("mrtr-interop", env!("CARGO_PKG_VERSION"))
        .ephemeral_key()
        .allow_anonymous()
        .task_store(MemoryTaskStore::new(100))
        .tool(Tool::new("work", "Works", work).task(policy()))
        .tool(Tool::new("ask", "Asks for a name", ask).task(policy()))
        .tool(Tool::new("stuck", "Works until its task is cancelled", stuck).task(policy()))
        .build()
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

async fn work(_: Context) -> mrtr::Result<String> {
    Ok("done".to_owned())
}

async fn ask(cx: Context) -> mrtr::Result<String> {
    let Name { name } = cx.elicit("name", "What is your name?").await?;
    Ok(format!("Hello, {name}!"))
}

async fn stuck(_: Context) -> mrtr::Result<String> {
    std::future::pending().await
}

async fn call(url: &str) -> Result {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&forms);
    let client = mrtr::connect(url)?
        .with_tasks()
        .on_form(move |_, form| {
            recorded.lock().unwrap_or_else(PoisonError::into_inner).push(form.message);
            std::future::ready(ElicitResult::accept(json!({ "name": "Ada" })).map_err(Into::into))
        })
        .call_timeout(Duration::from_secs(30))
        .build();
    row("task", result(&client, "work", "done").await);
    let asked = result(&client, "ask", "Hello, Ada!").await;
    row(
        "question",
        asked.and_then(|()| {
            let forms = forms.lock().unwrap_or_else(PoisonError::into_inner).clone();
            expect("the questions", forms, vec!["What is your name?".to_owned()])
        }),
    );
    row("cancel", cancel(&client).await);
    Ok(())
}

fn row(name: &str, outcome: Result) {
    let outcome = outcome.map_or_else(|why| why.to_string(), |()| "ok".to_owned());
    print_line(&format!("{name}\t{}", outcome.replace('\n', " ")));
}

/// Calls a tool, and fails if the server does not make the call a task.
async fn begin<X: Transport>(client: &Client<X>, tool: &str) -> Result<PendingCall> {
    match client.begin_tool(tool, json!({})).await? {
        CallOutcome::Working(call) => Ok(call),
        other => Err(format!("the call is not a task: {other:?}").into()),
    }
}

async fn result<X: Transport>(client: &Client<X>, tool: &str, wanted: &str) -> Result {
    let result: CallToolResult = client.finish(begin(client, tool).await?).await?;
    expect("the result", (result.is_error, result.text()), (false, wanted.to_owned()))
}

async fn cancel<X: Transport>(client: &Client<X>) -> Result {
    let call = begin(client, "stuck").await?;
    client.cancel(&call).await?;
    match client.finish::<CallToolResult>(call).await {
        Err(error) if error.is_task_cancelled() => Ok(()),
        other => Err(format!("the task was not cancelled: {other:?}").into()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "shorter calls")]
fn expect<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}").into()) }
}
