//! Our client, for the servers of other SDKs: `interop-client URL` over HTTP,
//! `interop-client COMMAND ARGUMENT…` over stdio. `interop/README.md` describes its calls and its
//! output.
//!
//! With `--legacy REVISION` first, the server must be one of that revision.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr::client::Transport;
use mrtr::schema::roots::Root;
use mrtr::schema::sampling::CreateMessageResult;
use mrtr::stdio::{ChildConnection, ChildServer};
use mrtr::{Client, ClientBuilder, ElicitResult};
use serde_json::{Value, json};
use tokio::sync::Notify;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut args = std::env::args().skip(1).peekable();
    let legacy = args.next_if(|arg| arg == "--legacy").and_then(|_| args.next());
    let target = args.next().ok_or("usage: interop-client URL, or a command with arguments")?;
    if target.contains("://") {
        rows(mrtr::connect(target)?, legacy.as_deref()).await;
    } else {
        let child = ChildConnection::new(ChildServer::new(target, args));
        rows(Client::builder(child), legacy.as_deref()).await;
    }
    Ok(())
}

async fn rows<X: Transport>(client: ClientBuilder<X>, legacy: Option<&str>) {
    let received = Received::default();
    let client = with_handlers(client, &received);
    if let Some(revision) = legacy {
        row("initialize", speaks(&client, revision).await);
    } else {
        row("discover", speaks(&client, "2026-07-28").await);
    }
    row("list", list(&client).await);
    row("call", text(&client, "add", json!({ "a": 2, "b": 3 }), "5").await);
    row("error", fails(&client).await);
    row("wrong argument", wrong_argument(&client).await);
    row("progress", progress(&client, &received).await);
    row("cancel", in_time(cancel(&client, &received)).await);
    row("form", text(&client, "form", json!({}), "Hello, Ada!").await);
    row("decline", decline(&client, &received).await);
    if legacy != Some("2025-06-18") {
        row("url", text(&client, "url", json!({}), "logged in").await);
    }
    row("sampling", text(&client, "model", json!({}), "Paris").await);
    row("roots", text(&client, "roots", json!({}), "file:///work").await);
    row("rounds", rounds(&client, &received).await);
    row("joined", joined(&client, &received).await);
    row("state only", text(&client, "poll", json!({}), "done").await);
    row("prompt", prompt(&client).await);
    row("template", template(&client).await);
}

#[expect(clippy::print_stdout, reason = "the output of a program")]
fn row(name: &str, outcome: Result) {
    let outcome = outcome.map_or_else(|why| why.to_string(), |()| "ok".to_owned());
    println!("{name}\t{}", outcome.replace('\n', " "));
}

/// The input that the handlers received.
#[derive(Clone, Default)]
struct Received {
    forms: Arc<Mutex<Vec<(u32, String)>>>,
    progress: Arc<Mutex<Vec<f64>>>,
    has_progress: Arc<Notify>,
    declines: Arc<Mutex<bool>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_handlers<X: Transport>(client: ClientBuilder<X>, received: &Received) -> Client<X> {
    let (forms, progress) = (received.clone(), received.clone());
    client
        .on_form(move |question, form| {
            locked(&forms.forms).push((question.input_round, form.message.clone()));
            let declines = *locked(&forms.declines);
            async move {
                if declines {
                    return Ok(ElicitResult::decline());
                }
                let known =
                    json!({ "name": "Ada", "sure": true, "first": "Ada", "last": "Lovelace" });
                let known = known.as_object().cloned().unwrap_or_default();
                let wanted =
                    |(name, _): &(String, Value)| form.requested_schema.field(name).is_some();
                let answer: serde_json::Map<_, _> = known.into_iter().filter(wanted).collect();
                Ok(ElicitResult::accept(answer)?)
            }
        })
        .on_url(async |_, page| {
            if page.url != "https://example.com/login" {
                return Err(format!("the URL is {:?}", page.url).into());
            }
            Ok(ElicitResult::accept_url())
        })
        .on_sample(async |_, _| Ok(CreateMessageResult::text("Paris", "a model")))
        .on_roots(async |_| Ok(vec![Root::new("file:///work")]))
        .on_progress(move |received| {
            locked(&progress.progress).push(received.progress);
            progress.has_progress.notify_waiters();
        })
        .build()
}

async fn speaks<X: Transport>(client: &Client<X>, version: &str) -> Result {
    let versions = client.discover().await?.supported_versions;
    let spoken = versions.iter().any(|supported| supported == version);
    expect(&format!("{versions:?} contains {version}"), spoken, true)
}

async fn list<X: Transport>(client: &Client<X>) -> Result {
    let tools = client.list_tools().await?.into_iter();
    let mut names: Vec<_> = tools.map(|tool| tool.name).collect();
    names.sort();
    let all = "add cancelled count fail form joined model poll roots rounds url wait";
    expect("the tools", &*names.join(" "), all)
}

async fn text<X: Transport>(client: &Client<X>, tool: &str, args: Value, wanted: &str) -> Result {
    let result = client.call_tool(tool, args).await?;
    expect("the result", (result.is_error, result.text()), (false, wanted.to_owned()))
}

async fn fails<X: Transport>(client: &Client<X>) -> Result {
    let result = client.call_tool("fail", json!({})).await?;
    // Some SDKs add text to the message of the tool.
    let text = result.text();
    expect("the result", (result.is_error, text.contains("out of order")), (true, true))
        .map_err(|why| format!("{why}: {text}").into())
}

async fn wrong_argument<X: Transport>(client: &Client<X>) -> Result {
    let refused = match client.call_tool("add", json!({ "a": "two", "b": 3 })).await {
        Ok(result) => result.is_error,
        Err(error) => error.as_server_error().ok_or_else(|| error.to_string())?.code == -32602,
    };
    expect("the call is rejected", refused, true)
}

async fn progress<X: Transport>(client: &Client<X>, received: &Received) -> Result {
    text(client, "count", json!({}), "counted").await?;
    let numbers: Vec<_> = locked(&received.progress).iter().map(|n| format!("{n}")).collect();
    expect("the progress", numbers, ["1", "2", "3"].map(str::to_owned).to_vec())
}

async fn in_time(outcome: impl Future<Output = Result>) -> Result {
    tokio::time::timeout(Duration::from_secs(30), outcome).await?
}

async fn cancel<X: Transport>(client: &Client<X>, received: &Received) -> Result {
    let runs = received.has_progress.notified();
    // Dropping the call cancels it.
    tokio::select! {
        ended = client.call_tool("wait", json!({})) => {
            return Err(format!("the call was not cancelled: {ended:?}").into());
        }
        () = runs => {}
    }
    text(client, "cancelled", json!({}), "cancelled").await
}

async fn decline<X: Transport>(client: &Client<X>, received: &Received) -> Result {
    *locked(&received.declines) = true;
    let result = text(client, "form", json!({}), "declined").await;
    *locked(&received.declines) = false;
    result
}

async fn rounds<X: Transport>(client: &Client<X>, received: &Received) -> Result {
    locked(&received.forms).clear();
    text(client, "rounds", json!({}), "Hello, Ada! true").await?;
    let wanted = [(1, "What is your name?"), (2, "Are you sure, Ada?")];
    expect(
        "the questions",
        locked(&received.forms).clone(),
        wanted.map(|(n, q)| (n, q.to_owned())).to_vec(),
    )
}

async fn joined<X: Transport>(client: &Client<X>, received: &Received) -> Result {
    locked(&received.forms).clear();
    text(client, "joined", json!({}), "Ada Lovelace").await?;
    let rounds: Vec<_> = locked(&received.forms).iter().map(|(round, _)| *round).collect();
    expect("the rounds of the questions", rounds, vec![1, 1])
}

async fn prompt<X: Transport>(client: &Client<X>) -> Result {
    let result = client.get_prompt("brief", json!({})).await?;
    let texts: Vec<_> = result.messages.iter().filter_map(|m| m.content.as_text()).collect();
    expect("the messages", texts, vec!["A brief for Ada"])
}

async fn template<X: Transport>(client: &Client<X>) -> Result {
    let result = client.read_resource("note://7").await?;
    let texts: Vec<_> = result.contents.iter().filter_map(|c| c.text.as_deref()).collect();
    expect("the contents", texts, vec!["note 7 of Ada"])
}

#[expect(clippy::needless_pass_by_value, reason = "shorter calls")]
fn expect<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, expected {wanted:?}").into()) }
}
