//! Lists, resources, prompts and completion, through a client.

use std::time::Duration;

use mrtr_client::Client;
use mrtr_schema::completion::{CompleteArgument, CompleteContext, Reference};
use mrtr_schema::result::CacheScope;
use mrtr_server::{
    CacheControl, CompletionRequest, Context, Prompt, Resource, ResourceOutput, ResourceTemplate,
    Server, Tool,
};
use mrtr_testkit::{Replicas, TestClock};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::support::{Text, client, replica, send_request, with_meta};

#[derive(Deserialize, JsonSchema)]
struct Doc {
    id: String,
    lang: Option<String>,
}

fn server(clock: &TestClock) -> Server {
    let tool = |n: usize| Tool::new(format!("tool-{n}"), "", async |_: Context| "x");
    let doc = async |cx: Context, doc: Doc| -> mrtr_server::Result<_> {
        let why = cx.elicit::<Text>("why", "Why do you ask?").await?;
        Ok(format!("{} {:?} {}", doc.id, doc.lang, why.text))
    };
    let translate = async |cx: Context, doc: Doc| -> mrtr_server::Result<_> {
        let tone = cx.elicit::<Text>("tone", "Which tone?").await?;
        Ok(format!("Translate {} in a {} tone", doc.id, tone.text))
    };
    let ids = async |typed: CompletionRequest| {
        let known = typed.arguments.get("lang").cloned().unwrap_or_default();
        Ok((0..250).map(|n| format!("{}{n}{known}", typed.value)).collect())
    };
    let builder = replica(clock)
        .allow_anonymous()
        .page_size(3)
        .cache_lists(CacheControl::public(Duration::from_mins(5)))
        .resource(
            Resource::new("doc://static", "static", async |_: Context| "text")
                .mime_type("text/plain"),
        )
        .resource(Resource::new(
            "doc://bytes",
            "bytes",
            async |_: Context| -> mrtr_server::Result<_> { Ok(ResourceOutput::bytes([0, 255])) },
        ))
        .resource_template(
            ResourceTemplate::new("doc://{id}{?lang}", "docs", doc)
                .cache(CacheControl::public(Duration::from_secs(1)))
                .complete("id", ids),
        )
        .prompt(Prompt::new("translate", "", translate).complete("id", ids));
    (0..8).fold(builder, |builder, n| builder.tool(tool(n))).build().unwrap()
}

fn fleet() -> Replicas {
    let clock = TestClock::default();
    Replicas::new((0..3).map(|_| server(&clock)))
}

#[tokio::test]
async fn list_pages_arrive_in_order_from_any_replica() {
    let fleet = fleet();
    let log = fleet.log();
    let tools = Client::builder(fleet).build().list_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        ["tool-0", "tool-1", "tool-2", "tool-3", "tool-4", "tool-5", "tool-6", "tool-7"]
    );
    let rounds = log.exchanges();
    assert_eq!(rounds.len(), 3);
    assert!(
        rounds
            .iter()
            .all(|round| round.outcome["ttlMs"] == 300_000
                && round.outcome["cacheScope"] == "public")
    );
}

#[tokio::test]
async fn unknown_cursors_are_rejected() {
    let fleet = fleet();
    for cursor in
        ["", "x", "YXQgMw", "YWZ0ZXIgdG9vbC0yCg", "YWZ0ZXIgdG9vbC05", "YWZ0ZXIg", "dG9vbC0y"]
    {
        let outcome =
            send_request(&fleet, "tools/list", with_meta(json!({ "cursor": cursor }))).await;
        assert_eq!(outcome["error"]["code"], -32602, "{cursor}: {outcome}");
    }
    // "after tool-2", as the server encodes it.
    let outcome =
        send_request(&fleet, "tools/list", with_meta(json!({ "cursor": "YWZ0ZXIgdG9vbC0y" })))
            .await;
    assert_eq!(outcome["tools"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn resources_and_prompts_ask_as_tools_do() {
    let (client, log) = client(fleet());
    let client = client.build();
    let read = client.read_resource("doc://7?lang=de").await.unwrap();
    assert_eq!(read.contents[0].text.as_deref(), Some("7 Some(\"de\") why"));
    assert_eq!(read.contents[0].uri, "doc://7?lang=de");
    let interim = &log.exchanges()[0].outcome;
    assert_eq!((interim.get("ttlMs"), interim.get("cacheScope")), (None, None));
    // The template allows anyone to cache for a second; a result that depends on answers must not
    // be cached at all.
    assert_eq!((read.ttl_ms, read.cache_scope), (0, CacheScope::Private));
    let prompt = client.get_prompt("translate", json!({ "id": "7" })).await.unwrap();
    assert_eq!(prompt.messages[0].content.as_text(), Some("Translate 7 in a tone tone"));
    assert_eq!(log.input_keys(), [vec!["why"], vec![], vec!["tone"], vec![]]);
}

#[tokio::test]
async fn contents_carry_the_media_type_and_the_encoding() {
    let client = Client::builder(fleet()).build();
    let text = client.read_resource("doc://static").await.unwrap();
    assert_eq!(text.contents[0].mime_type.as_deref(), Some("text/plain"));
    let bytes = client.read_resource("doc://bytes").await.unwrap();
    assert_eq!(bytes.contents[0].blob.as_deref(), Some("AP8="));
    let error = client.read_resource("other://x").await.unwrap_err();
    let error = error.as_server_error().unwrap().clone();
    assert_eq!((error.code, error.data), (-32602, Some(json!({ "uri": "other://x" }))));
}

#[tokio::test]
async fn completion_returns_at_most_100_values_and_the_total() {
    let client = Client::builder(fleet()).build();
    let argument = CompleteArgument::new("id", "a");
    let context = CompleteContext::new([("lang".to_owned(), "de".to_owned())].into());
    for of in [
        Reference::Prompt { name: "translate".into() },
        Reference::Resource { uri: "doc://{id}{?lang}".into() },
    ] {
        let all = client.complete(&of, &argument, &context).await.unwrap();
        assert_eq!((all.values.len(), all.total, all.has_more), (100, Some(250), Some(true)));
        assert_eq!(all.values[0], "a0de");
    }
    let other = CompleteArgument::new("lang", "a");
    let none = client
        .complete(&Reference::Prompt { name: "translate".into() }, &other, &context)
        .await
        .unwrap();
    assert!(none.values.is_empty());
    let unknown =
        client.complete(&Reference::Prompt { name: "nope".into() }, &argument, &context).await;
    assert_eq!(unknown.unwrap_err().as_server_error().unwrap().code, -32602);
}

#[tokio::test]
async fn discover_reports_capabilities_and_server_info() {
    let found = Client::builder(fleet()).build().discover().await.unwrap();
    let capabilities = serde_json::to_value(&found.capabilities).unwrap();
    assert_eq!(
        capabilities,
        json!({ "tools": {}, "prompts": {}, "resources": {}, "completions": {}, "logging": {} })
    );
    let bare = Server::builder("s", "1").ephemeral_key().allow_anonymous().build().unwrap();
    let found =
        Client::builder(mrtr_transport::InProcess::new(bare)).build().discover().await.unwrap();
    assert_eq!(serde_json::to_value(&found.capabilities).unwrap(), json!({ "logging": {} }));
    let info = found.meta.unwrap_or_default();
    assert_eq!(info["io.modelcontextprotocol/serverInfo"], json!({ "name": "s", "version": "1" }));
}

#[test]
fn build_rejects_invalid_resources_templates_and_completers() {
    let read = async |_: Context| "x";
    let doc = async |_: Context, doc: Doc| doc.id;
    let none = async |_: CompletionRequest| Ok(Vec::new());
    for (builder, part) in [
        (
            Server::builder("s", "1")
                .require_principal()
                .ephemeral_key()
                .resource(Resource::new("a:b", "", read))
                .resource(Resource::new("a:b", "", read)),
            "duplicate resource \"a:b\"",
        ),
        (
            Server::builder("s", "1")
                .require_principal()
                .ephemeral_key()
                .resource_template(ResourceTemplate::new("a:{b", "", read)),
            "a brace is not closed",
        ),
        (
            Server::builder("s", "1")
                .require_principal()
                .ephemeral_key()
                .prompt(Prompt::new("p", "", doc).complete("nope", none)),
            "the prompt \"p\" has no argument \"nope\"",
        ),
    ] {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn prompt_has_a_title_and_an_answer_timeout() {
    let clock = TestClock::default();
    let ask = async |cx: Context| -> mrtr_server::Result<_> {
        Ok(cx.elicit::<Text>("tone", "Which tone?").await?.text)
    };
    let prompt =
        Prompt::new("ask", "", ask).title("Ask away").answer_timeout(Duration::from_secs(5));
    let fleet = Replicas::new([replica(&clock).allow_anonymous().prompt(prompt).build().unwrap()]);

    let listed = send_request(&fleet, "prompts/list", with_meta(json!({}))).await;
    assert_eq!(listed["prompts"][0]["title"], "Ask away");

    let first = send_request(&fleet, "prompts/get", with_meta(json!({ "name": "ask" }))).await;
    let answer = json!({ "tone": { "action": "accept", "content": { "text": "kind" } } });
    let retry = json!({
        "name": "ask", "requestState": first["requestState"], "inputResponses": answer,
    });
    clock.advance(4);
    let done = send_request(&fleet, "prompts/get", with_meta(retry.clone())).await;
    assert_eq!(done["messages"][0]["content"]["text"], "kind");
    clock.advance(2);
    let late = send_request(&fleet, "prompts/get", with_meta(retry)).await;
    assert_eq!(late["error"]["data"]["reason"], "invalid_request_state", "{late}");
}
