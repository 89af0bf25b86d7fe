//! Our client on a server of another SDK: `interop-client URL` over HTTP, `interop-client COMMAND ARGUMENT…`
//! over stdio. The server has the tools of `xtask/python/server.py`, and of its likes for other SDKs.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr::client::Exchange;
use mrtr::http::HttpClient;
use mrtr::stdio::ChildServer;
use mrtr::{Client, ElicitResult};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let target = args.next().ok_or("usage: interop-client URL, or a command with arguments")?;
    if target.contains("://") {
        check(HttpClient::builder(target).build()?).await
    } else {
        check(ChildServer::new(target, args)).await
    }
}

async fn check<X: Exchange>(server: X) -> Result<(), Box<dyn Error>> {
    let asked: Arc<Mutex<Vec<(u32, String)>>> = Arc::default();
    let log = Arc::clone(&asked);
    let client = Client::builder(server)
        .on_form(move |question, form| {
            log.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((question.round, form.message.clone()));
            let answer = if form.requested_schema.field("name").is_some() {
                json!({ "name": "Ada" })
            } else {
                json!({ "sure": true })
            };
            async move { Ok(ElicitResult::accept(answer)?) }
        })
        .build();

    let discovered = client.discover().await?;
    expect(
        "the revision",
        &discovered.supported_versions.contains(&"2026-07-28".to_owned()),
        &true,
    )?;
    let mut tools: Vec<_> = client.list_tools().await?.into_iter().map(|tool| tool.name).collect();
    tools.sort();
    expect("the tools", &tools, &vec!["add".to_owned(), "greet".to_owned()])?;

    let sum = client.call_tool("add", json!({ "a": 2, "b": 3 })).await?;
    expect("the sum", &sum.text(), &"5".to_owned())?;

    let greeting = client.call_tool("greet", json!({ "greeting": "Hello" })).await?;
    expect("the greeting", &greeting.text(), &"Hello, Ada! (True)".to_owned())?;
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let wanted =
        [(1, "What is your name?"), (2, "Are you sure, Ada?")].map(|(n, q)| (n, q.to_owned()));
    expect("the questions", &asked, &wanted.to_vec())?;

    let unknown = client.call_tool("nope", Value::Object(serde_json::Map::new())).await;
    let refused =
        unknown.as_ref().map_or_else(|e| e.as_server_error().is_some(), |result| result.is_error);
    expect("the refusal of an unknown tool", &refused, &true)?;
    say("  ok: discover, list, call, two rounds in sequence and a refusal, on the other server");
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    got: &T,
    wanted: &T,
) -> Result<(), Box<dyn Error>> {
    if got == wanted { Ok(()) } else { Err(format!("{what}: {got:?}, not {wanted:?}").into()) }
}

#[expect(clippy::print_stdout, reason = "it is a program's output")]
fn say(text: &str) {
    println!("{text}");
}
