//! The tools of `benches/README.md`.

use std::error::Error;

use mrtr::{BuildError, ChangeNotifier, Context, KeyRing, Result, Secret, Server, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Item {
    item: String,
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    #[schemars(range(min = 1, max = 10))]
    quantity: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    yes: bool,
}

async fn echo(_: Context, Text { text }: Text) -> Result<String> {
    Ok(text)
}

async fn length(_: Context, Text { text }: Text) -> Result<String> {
    Ok(text.chars().count().to_string())
}

async fn order(cx: Context, Item { item }: Item) -> Result<String> {
    let Order { quantity } = cx.elicit("quantity", format!("How many of {item}?")).await?;
    Ok(format!("{quantity} x {item}"))
}

async fn plan(cx: Context) -> Result<String> {
    let mut length = 0;
    for (half, question) in ["Go on?", "Really?"].into_iter().enumerate() {
        for n in 0..5 {
            let step = async |_| Ok("x".repeat(100));
            length += cx.step(format!("step-{half}-{n}"), step).await?.len();
        }
        let Consent { yes } = cx.elicit(format!("consent-{half}"), question).await?;
        if !yes {
            return Ok("no".to_owned());
        }
    }
    Ok(length.to_string())
}

#[derive(Deserialize, JsonSchema)]
struct Grow {
    steps: usize,
    bytes: usize,
}

/// Runs steps, for the growth of a round's cost with the size of its journal.
async fn grow(cx: Context, Grow { steps, bytes }: Grow) -> Result<String> {
    let mut length = 0;
    for n in 0..steps {
        length += cx.step(format!("s{n}"), async |_| Ok("x".repeat(bytes))).await?.len();
    }
    let Consent { yes } = cx.elicit("consent", "Go on?").await?;
    Ok(if yes { length.to_string() } else { "no".to_owned() })
}

async fn count(cx: Context) -> Result<String> {
    for n in 1..=3 {
        cx.progress(f64::from(n), Some(3.0), None);
    }
    Ok("counted".to_owned())
}

/// Builds the server with the tools that the command line requests.
///
/// # Errors
///
/// If the server cannot be built.
pub fn server() -> std::result::Result<Server, Box<dyn Error>> {
    let secret = Secret::from_bytes(b"a key for benchmarks, not a secret")?;
    let ring = KeyRing::builder("https://bench.example/mcp").active(secret).build()?;
    Ok(tools(Server::builder("bench", "1.0.0").changes(ChangeNotifier::new()).allow_anonymous().key_ring(ring))?)
}

fn tools(server: mrtr::ServerBuilder) -> std::result::Result<Server, BuildError> {
    let more = std::env::args().skip_while(|arg| arg != "--tools").nth(1);
    let more = more.and_then(|n| n.parse().ok()).unwrap_or(0);
    let server = server
        .tool(Tool::new("echo", "Says it again", echo))
        .tool(Tool::new("length", "Counts characters", length))
        .tool(Tool::new("order", "Orders something", order))
        .tool(Tool::new("plan", "Does ten steps", plan))
        .tool(Tool::new("count", "Counts to three", count))
        .tool(Tool::new("grow", "Does so many steps", grow));
    let numbered = (1..=more).map(|n| Tool::new(format!("tool-{n}"), "Does one thing", echo));
    numbered.fold(server, mrtr::ServerBuilder::tool).build()
}
