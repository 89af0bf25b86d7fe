//! Layers around tools, prompts, resources and the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::{RawJson, elicitation::ElicitResult};
use mrtr_server::middleware::{FromFnLayer, LayerFuture, Next, Request, Response, from_fn};
use mrtr_server::{
    CompletionRequest, Context, Extension, Prompt, RequestParts, Resource, ResourceTemplate,
    Result, Server, Tool,
};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::{Value, json};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;

use crate::support::single_use::text;
use crate::support::{
    Counter, LogLines, Text, alice, call_tool, fleet, replica, send_request, with_meta,
};

/// What layers saw, in order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    /// Returns a layer that records requests and their outcomes.
    fn layer(
        &self,
        name: &'static str,
    ) -> FromFnLayer<impl Fn(Request, Next) -> LayerFuture + Clone + Send + Sync + 'static> {
        let seen = self.clone();
        from_fn(move |request: Request, next: Next| {
            let round = if request.is_first_round() { "first" } else { "later" };
            let (method, target) = (request.method(), request.name().unwrap_or_default());
            let subject = request.principal().map_or("-", |principal| principal.subject());
            let arguments = request.arguments().unwrap_or("-");
            seen.push(format!("{name}: {method} {target} {arguments} {subject} {round}"));
            next.run(request)
        })
    }

    fn push(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

async fn ask(cx: Context) -> Result<String> {
    let answer: Text = cx.elicit("name", "Who?").await?;
    Ok(answer.text)
}

/// The parameters of the second round: the state of `result`, and an answer.
fn answer(result: &Value) -> Value {
    let answer = ElicitResult::accept(json!({ "text": "Ann" })).unwrap();
    json!({ "requestState": result["requestState"], "inputResponses": { "name": answer } })
}

fn server_of(
    tool: Tool,
    edit: impl FnOnce(mrtr_server::ServerBuilder) -> mrtr_server::ServerBuilder,
) -> Replicas {
    let builder = edit(replica(&TestClock::default()).tool(tool));
    Replicas::new([builder.build().unwrap()]).as_principal(alice())
}

#[tokio::test]
async fn layers_run_for_each_round_the_last_one_first_and_those_of_the_server_outside() {
    let seen = Seen::default();
    let tool = Tool::new("t", "", ask).layer(seen.layer("inner")).layer(seen.layer("outer"));
    let fleet = server_of(tool, |server| server.layer(seen.layer("server")));
    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(
        seen.take(),
        [
            "server: tools/call t {} alice first",
            "outer: tools/call t {} alice first",
            "inner: tools/call t {} alice first",
        ]
    );
    let done = call_tool(&fleet, "t", json!({}), answer(&first)).await;
    assert_eq!(text(&done), "Ann");
    assert_eq!(
        seen.take(),
        [
            "server: tools/call t {} alice later",
            "outer: tools/call t {} alice later",
            "inner: tools/call t {} alice later",
        ]
    );
    send_request(&fleet, "tools/list", with_meta(json!({}))).await;
    assert_eq!(seen.take(), ["server: tools/list  - alice first"]);
}

#[tokio::test]
async fn prompts_resources_and_templates_have_layers() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Page {
        id: String,
    }
    let seen = Seen::default();
    let server = replica(&TestClock::default())
        .prompt(
            Prompt::new("p", "", async |_: Context, page: Page| page.id)
                .layer(seen.layer("prompt")),
        )
        .resource(Resource::new("doc://one", "", async || "x").layer(seen.layer("resource")))
        .resource_template(
            ResourceTemplate::new("doc://pages/{id}", "", async |_: Context, page: Page| page.id)
                .layer(seen.layer("template")),
        )
        .build()
        .unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    for (method, params, line) in [
        (
            "prompts/get",
            json!({ "name": "p", "arguments": { "id": "7" } }),
            r#"prompt: prompts/get p {"id":"7"} alice first"#,
        ),
        (
            "resources/read",
            json!({ "uri": "doc://one" }),
            "resource: resources/read doc://one - alice first",
        ),
        (
            "resources/read",
            json!({ "uri": "doc://pages/7" }),
            "template: resources/read doc://pages/7 - alice first",
        ),
    ] {
        let result = send_request(&fleet, method, with_meta(params)).await;
        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(seen.take(), [line]);
    }
}

/// Suggestions are about a prompt or a template, so what is around it is around them.
#[tokio::test]
async fn completions_pass_the_layers_and_need_the_scopes_of_what_they_are_about() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Page {
        id: String,
    }
    let seen = Seen::default();
    let page = async |_: Context, page: Page| page.id;
    let ids = async |_: CompletionRequest| Ok::<_, mrtr_server::Error>(vec!["7".to_owned()]);
    let server = replica(&TestClock::default())
        .prompt(
            Prompt::new("p", "", page)
                .complete("id", ids)
                .requires_scope("read")
                .layer(seen.layer("prompt")),
        )
        .resource_template(
            ResourceTemplate::new("doc://{id}", "d", page)
                .complete("id", ids)
                .requires_scope("read")
                .layer(seen.layer("template")),
        )
        .build()
        .unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    for (reference, layer) in [
        (json!({ "type": "ref/prompt", "name": "p" }), "prompt"),
        (json!({ "type": "ref/resource", "uri": "doc://{id}" }), "template"),
        (json!({ "type": "ref/resource", "uri": "doc://8" }), "template"),
    ] {
        let params = json!({ "ref": reference, "argument": { "name": "id", "value": "" } });
        fleet.grant_scopes(["other"]);
        let error = send_request(&fleet, "completion/complete", with_meta(params.clone())).await;
        assert_eq!(error["error"]["data"]["reason"], "insufficient_scope", "{error}");
        fleet.grant_scopes(["read"]);
        let result = send_request(&fleet, "completion/complete", with_meta(params)).await;
        assert_eq!(result["completion"]["values"], json!(["7"]), "{result}");
        let line = format!("{layer}: completion/complete  - alice first");
        assert_eq!(seen.take(), [line.clone(), line]);
    }
}

/// Only these methods have rounds, so a state in another request says nothing.
#[tokio::test]
async fn a_state_where_there_are_no_rounds_makes_no_later_round() {
    let seen = Seen::default();
    let fleet = server_of(Tool::new("t", "", ask), |server| server.layer(seen.layer("server")));
    let params = json!({ "requestState": "x" });
    for method in ["tools/list", "server/discover", "unknown/method"] {
        send_request(&fleet, method, with_meta(params.clone())).await;
        assert_eq!(seen.take(), [format!("server: {method}  - alice first")]);
    }
}

/// Otherwise a rate limit would tell callers that a hidden tool exists.
#[tokio::test]
async fn layers_of_a_hidden_feature_do_not_run() {
    let seen = Seen::default();
    let tool = Tool::new("t", "", ask).layer(seen.layer("tool")).visible_to(|_| false);
    let fleet = server_of(tool, |server| server.layer(seen.layer("server")));
    let hidden = call_tool(&fleet, "t", json!({}), json!({})).await;
    let unknown = call_tool(&fleet, "u", json!({}), json!({})).await;
    let message = |result: &Value| result["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message(&hidden).replace("\"t\"", "\"u\""), message(&unknown));
    assert_eq!(
        seen.take(),
        ["server: tools/call t {} alice first", "server: tools/call u {} alice first",]
    );
}

/// Otherwise it would be called without its layers.
#[tokio::test]
async fn feature_that_was_hidden_when_its_layers_were_chosen_stays_hidden() {
    let (seen, hides) = (Seen::default(), Arc::new(AtomicBool::new(true)));
    let rule = move |_: &RequestParts| !hides.swap(false, Ordering::Relaxed);
    let tool = Tool::new("t", "", ask).layer(seen.layer("tool")).visible_to(rule);
    let fleet = server_of(tool, |server| server);
    let hidden = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    let asked = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(seen.take(), ["tool: tools/call t {} alice first"]);
}

#[tokio::test]
async fn a_layer_sees_how_the_request_ended() {
    let seen = Seen::default();
    let recorder = {
        let seen = seen.clone();
        from_fn(move |request: Request, next: Next| {
            let seen = seen.clone();
            async move {
                let outcome = next.run(request).await;
                seen.push(match &outcome {
                    Ok(response) => {
                        format!("{:?} {}", response.result_type(), response.is_tool_error())
                    }
                    Err(error) => error.code.to_string(),
                });
                outcome
            }
        })
    };
    let tool = Tool::new("t", "", ask);
    let fails = Tool::new("fails", "", async || Err::<String, _>(mrtr_server::Error::new("no")));
    let fleet = server_of(tool, |server| server.tool(fails).layer(recorder));
    let first = call_tool(&fleet, "t", json!({}), json!({})).await;
    call_tool(&fleet, "t", json!({}), answer(&first)).await;
    call_tool(&fleet, "fails", json!({}), json!({})).await;
    call_tool(&fleet, "unknown", json!({}), json!({})).await;
    call_tool(&fleet, "t", json!({}), json!({ "requestState": "forged" })).await;
    let expected = ["InputRequired false", "Complete false", "Complete true", "-32602", "-32602"];
    assert_eq!(seen.take(), expected);
}

#[tokio::test]
async fn a_layer_can_answer_itself_and_refuse() {
    let runs = Counter::default();
    let tool = {
        let runs = runs.clone();
        Tool::new("t", "", move || {
            runs.increment();
            async { "ran" }
        })
    };
    let layer = from_fn(async |request: Request, next: Next| match request.arguments() {
        Some(r#"{"cached":true}"#) => {
            let content = json!([{ "type": "text", "text": "cached" }]);
            let result = json!({ "resultType": "complete", "content": content });
            Ok(Response::new(RawJson::new(&result).unwrap()))
        }
        Some(r#"{"refused":true}"#) => Err(ErrorObject::new(7, "No")),
        _ => next.run(request).await,
    });
    let fleet = server_of(tool, |server| server.layer(layer));
    let cached = call_tool(&fleet, "t", json!({ "cached": true }), json!({})).await;
    assert_eq!(text(&cached), "cached");
    let refused = call_tool(&fleet, "t", json!({ "refused": true }), json!({})).await;
    assert_eq!(refused, json!({ "error": { "code": 7, "message": "No" } }));
    assert_eq!(runs.get(), 0);
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), json!({})).await), "ran");
}

#[tokio::test]
async fn handlers_extract_what_a_layer_inserts() {
    #[derive(Clone)]
    struct Tenant(&'static str);
    let tool =
        Tool::new("t", "", async |Extension(Tenant(name)): Extension<Tenant>, _: Context| name)
            .layer(from_fn(async |mut request: Request, next: Next| {
                request.extensions_mut().insert(Tenant("blue"));
                next.run(request).await
            }));
    let fleet = server_of(tool, |server| server);
    assert_eq!(text(&call_tool(&fleet, "t", json!({}), json!({})).await), "blue");
}

#[tokio::test(start_paused = true)]
async fn layers_of_tower_work_as_they_are() {
    let tool = Tool::new("t", "", async || {
        tokio::time::sleep(Duration::from_secs(5)).await;
        "late"
    });
    let tool = tool
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .layer(GlobalConcurrencyLimitLayer::new(1));
    let fleet = server_of(tool, |server| server);
    let (lines, _guard) = LogLines::collect();
    let error = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(error, json!({ "error": { "code": -32603, "message": "Internal error" } }));
    assert!(lines.text().contains("a layer failed error=request timed out"), "{}", lines.text());
}

#[tokio::test]
async fn a_layer_that_panics_is_an_internal_error() {
    async fn fails(_: Request, _: Next) -> std::result::Result<Response, ErrorObject> {
        panic!("oops")
    }
    let fleet = server_of(Tool::new("t", "", ask), |server| server.layer(from_fn(fails)));
    let error = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(error, json!({ "error": { "code": -32603, "message": "Internal error" } }));
}

/// A feature that is added later brings its layers.
#[tokio::test]
async fn updates_bring_layers() {
    let seen = Seen::default();
    let server = replica(&TestClock::default()).updatable::<Tool>().build().unwrap();
    let tool = Tool::new("t", "", ask).layer(seen.layer("tool"));
    server.update(|update| update.add(tool)).unwrap();
    let fleet = Replicas::new([server]).as_principal(alice());
    call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(seen.take(), ["tool: tools/call t {} alice first"]);
}

#[tokio::test]
async fn dropping_the_request_drops_the_layers() {
    struct OnDrop(Counter);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.increment();
        }
    }
    let dropped = Counter::default();
    let layer = {
        let dropped = dropped.clone();
        from_fn(move |request: Request, next: Next| {
            let guard = OnDrop(dropped.clone());
            async move {
                let outcome = next.run(request).await;
                drop(guard);
                outcome
            }
        })
    };
    let fleet = fleet(|| {
        Tool::new("t", "", async || {
            std::future::pending::<()>().await;
            "never"
        })
        .layer(layer.clone())
    });
    {
        let mut call = std::pin::pin!(call_tool(&fleet, "t", json!({}), json!({})));
        std::future::poll_fn(|cx| {
            assert!(call.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(dropped.get(), 0);
    }
    assert_eq!(dropped.get(), 1);
}

/// The type of the server does not depend on its layers.
#[test]
fn a_layered_server_is_a_server() {
    let server: Server = Server::builder("s", "1")
        .layer(TimeoutLayer::new(Duration::from_secs(1)))
        .allow_anonymous()
        .build()
        .unwrap();
    drop(server);
}
