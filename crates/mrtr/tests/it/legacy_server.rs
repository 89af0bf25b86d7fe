//! A server with tools for legacy clients, on replicas that share a key ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mrtr::http::Endpoint;
use mrtr::legacy::{LegacyOptions, LegacyServer};
use mrtr::manual::{InputRequired, ManualContext, ManualOutput};
use mrtr::{
    Context, KeyRing, RequestParts, Resource, Result, Secret, Server, ServerBuilder, Tool,
    ToolOutput,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Text {
    pub(crate) text: String,
}

/// How often steps ran.
pub(crate) type Runs = Arc<AtomicUsize>;

/// A step between two questions.
async fn book(cx: Context, runs: Runs) -> Result<String> {
    let Text { text: place } = cx.elicit("place", "Where?").await?;
    let table: usize = cx.step("hold", async |_| Ok(runs.fetch_add(1, Ordering::SeqCst))).await?;
    let Text { text: diet } = cx.elicit("diet", format!("Table {table}. What?")).await?;
    Ok(format!("{place} {table} {diet}"))
}

pub(crate) fn builder(runs: &Runs) -> ServerBuilder {
    let runs = Arc::clone(runs);
    Server::builder("test", "1")
        .tool(Tool::new("book", "", move |cx: Context| book(cx, Arc::clone(&runs))))
        .tool(Tool::new("version", "", async |cx: Context| cx.protocol_version()))
        .tool(Tool::new("both", "", async |cx: Context| -> Result<String> {
            let (a, b) = tokio::try_join!(
                cx.elicit::<Text>("a", "First?"),
                cx.elicit::<Text>("b", "Second?")
            )?;
            Ok(a.text + &b.text)
        }))
        .tool(Tool::new("pay", "", async |cx: Context| -> Result<String> {
            let (a, b) = tokio::try_join!(
                cx.elicit::<Text>("a", "First?"),
                cx.elicit::<Text>("b", "Second?")
            )?;
            cx.require_scope("pay").await?;
            Ok(a.text + &b.text)
        }))
        .tool(Tool::new("page", "", async |cx: Context| -> Result<&str> {
            cx.elicit_url("page", "Sign in", "https://login.example/").await?;
            Ok("consented")
        }))
        .tool(Tool::new("notify", "", async |cx: Context| -> Result<&str> {
            for n in [1.0, 2.0] {
                cx.progress(n, Some(2.0), None);
            }
            cx.log(mrtr::LogLevel::Debug, "details");
            cx.log(mrtr::LogLevel::Info, "message");
            Ok("notified")
        }))
        .tool(Tool::new("checkpoint", "", async |cx: Context| -> Result<&str> {
            cx.checkpoint("here").await?;
            Ok("after the checkpoint")
        }))
        .tool(Tool::manual("manual", "", async |cx: ManualContext| -> ManualOutput<ToolOutput> {
            match cx.answers().form::<Text>("q") {
                Some(Text { text }) => text.into(),
                None => InputRequired::new().elicit::<Text>("q", "Manual?").into(),
            }
        }))
        .tool(Tool::new("wait", "", async |_: Context| -> Result<&str> {
            std::future::pending().await
        }))
        .tool(Tool::new("panic", "", async |_: Context| -> Result<&str> {
            let _: u8 = "not a number".parse().unwrap();
            Ok("never")
        }))
        .resource(Resource::new("file:///a", "a", async |_: Context| "content"))
}

pub(crate) fn replica(server: Server, options: LegacyOptions) -> Endpoint<Server> {
    let legacy = LegacyServer::new(server.clone(), server.sealer(), options).unwrap();
    Endpoint::new(server).legacy(legacy)
}

/// A server with a tool that only Alice can see.
pub(crate) fn endpoint_with_hidden_tool() -> Endpoint<Server> {
    let is_alice = |caller: &RequestParts| {
        caller.principal().is_some_and(|principal| principal.subject() == "alice")
    };
    let hidden = Tool::new("hidden", "", async |_: Context| "found").visible_to(is_alice);
    let server = builder(&Runs::default()).tool(hidden).require_principal();
    let server = server.key_ring(ring(&Secret::generate().unwrap())).build().unwrap();
    replica(server, LegacyOptions::default())
}

pub(crate) fn ring(secret: &Secret) -> KeyRing {
    KeyRing::builder("https://a.example/mcp").active(secret.clone()).build().unwrap()
}

/// Two replicas with the same keys, and the counter of their steps.
pub(crate) fn replicas() -> ([Endpoint<Server>; 2], Runs) {
    let (secret, runs) = (Secret::generate().unwrap(), Runs::default());
    let endpoint = || {
        let server = builder(&runs).allow_anonymous().key_ring(ring(&secret));
        replica(server.build().unwrap(), LegacyOptions::default())
    };
    ([endpoint(), endpoint()], runs)
}

pub(crate) fn endpoint() -> Endpoint<Server> {
    let ([endpoint, _], _) = replicas();
    endpoint
}

pub(crate) fn text(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap_or_default()
}
