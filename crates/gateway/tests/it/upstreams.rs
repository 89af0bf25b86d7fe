//! What upstreams offer, and what they can do wrong.

use std::error::Error as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mrtr_client::Client;
use mrtr_gateway::{Gateway, RefreshError};
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::json::RawJson;
use mrtr_schema::jsonrpc::{ErrorObject, Params, Response, code};
use mrtr_schema::tool::Tool as ToolDefinition;
use mrtr_schema::{Object, apps, tasks};
use mrtr_server::extract::Progress;
use mrtr_server::{
    Context, Error, Principal, Prompt, Resource, ResourceTemplate, Server, ServerBuilder, Tool,
};
use mrtr_transport::{
    InProcess, IncomingRequest, OutgoingRequest, RequestHandler, Transport, TransportError,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{caller, connect, gateway, gateway_server, keyed, tool_names, upstream};

pub(crate) fn named(name: &str) -> Tool {
    let text = name.to_owned();
    Tool::new(name, "", move |_: Context| std::future::ready(text.clone()))
}

#[tokio::test]
async fn names_have_the_prefix_of_their_upstream() {
    let [one, other, plain] = [
        upstream("one", [named("x"), named("b__c"), named("_y")]),
        upstream("other", [named("c"), named("x")]),
        upstream("plain", [named("x"), named("a__z"), named("a_z")]),
    ];
    let gateway = gateway(&[("a", &one), ("a__b", &other), ("", &plain)]).await;
    let client = caller(&gateway, "alice").build();
    let mut names = tool_names(&client).await;
    names.sort();
    // `b__c` of the first, and `a__z` of the last are named like tools of others.
    assert_eq!(names, ["a___y", "a__b__c", "a__b__x", "a__x", "a_z", "x"]);
    assert_eq!(client.call_tool("a__b__c", json!({})).await.unwrap().text(), "c");
    let duplicate = Gateway::builder()
        .upstream("a", connect(&one, "g").build())
        .upstream("a", connect(&one, "g").build())
        .build(gateway_server());
    let error = duplicate.unwrap_err().to_string();
    assert!(error.contains("upstream prefix") && error.contains("\"a\""), "{error}");
    for prefix in ["my files", "ü", &"x".repeat(126)] {
        let invalid = Gateway::builder().upstream(prefix, connect(&one, "g").build());
        let error = invalid.build(gateway_server()).unwrap_err().to_string();
        assert!(error.contains("invalid tool name") && error.contains(prefix), "{error}");
    }
}

#[derive(Deserialize, JsonSchema)]
struct Topic {
    topic: String,
}

/// An upstream with a definition that a server of ours would not send.
struct Invalid(InProcess<Server>);

impl Transport for Invalid {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let mut response = self.0.send(outgoing).await?;
        let text = response.outcome.as_ref().map(|result| result.get().to_owned());
        if let Ok(text) = text {
            let text = text.replace(r#"["model","x"]"#, r#""model""#);
            response.outcome = Ok(serde_json::value::RawValue::from_string(text).unwrap());
        }
        Ok(response)
    }
}

/// A host would let the view of one upstream call the tools of all.
#[tokio::test]
async fn ui_resources_are_not_forwarded() {
    let tool = |name: &str, meta: Value| {
        let schema = json!({ "type": "object" }).as_object().unwrap().clone();
        let definition = ToolDefinition::new(name, schema);
        named(name).definition(definition.with_meta(meta.as_object().unwrap().clone()))
    };
    let of_upstream = "ui://pages/one";
    let server = keyed("u", 2)
        .resource(Resource::app(of_upstream, "one", "<!doctype html>upstream"))
        .resource_template(
            ResourceTemplate::new("{+uri}", "any", async |_: Context, _: Uri| "upstream")
                .mime_type(apps::MIME_TYPE),
        )
        .tool(tool("shown", json!({ "ui": { "resourceUri": of_upstream } })))
        .tool(tool("kept", json!({ "ui": {}, "com.example/a": 1, "ui/resourceUri": of_upstream })))
        .tool(tool("model", json!({ "ui": { "visibility": ["model"] } })))
        .tool(tool("app", json!({ "ui": { "visibility": ["app"] } })))
        .tool(tool("invalid", json!({ "ui": { "visibility": ["model", "x"] } })));
    let upstream = InProcess::new(server.build().unwrap())
        .with_extension(Principal::new("https://login.example", "the gateway"));
    // It sees the tool for views.
    let upstream = Client::builder(Invalid(upstream)).with_apps().build();
    let own = ResourceTemplate::new(
        "ui://pages/{topic}",
        "own",
        async |_: Context, _: Topic| "<!doctype html>own",
    );
    let own = gateway_server().resource_template(own.mime_type(apps::MIME_TYPE));
    let gateway = Gateway::builder().upstream("u", upstream).build(own).unwrap();
    gateway.refresh().await;
    let client = connect(gateway.server(), "alice").with_apps().build();
    let listed = client.list_tools().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|tool| json!([tool.name, tool.meta])).collect();
    assert_eq!(
        json!(listed),
        json!([
            ["u__shown", null],
            ["u__kept", { "com.example/a": 1 }],
            ["u__model", { "ui": { "visibility": ["model"] } }],
        ])
    );
    for name in ["u__app", "u__invalid"] {
        let error = client.call_tool(name, json!({})).await.unwrap_err();
        assert!(error.to_string().contains("Unknown tool"), "{error}");
    }
    // The gateway's own document is not replaced.
    let read = client.read_resource(of_upstream).await.unwrap();
    assert_eq!(read.contents[0].text.as_deref(), Some("<!doctype html>own"));
    assert!(client.list_resources().await.unwrap().is_empty());
    // A template that also matches URIs of UI resources.
    let error = client.read_resource("ui://other").await.unwrap_err();
    assert!(error.to_string().contains("Resource not found"), "{error}");
    let any = client.read_resource("note://other").await.unwrap();
    assert_eq!(any.contents[0].text.as_deref(), Some("upstream"));
    let templates = client.list_resource_templates().await.unwrap();
    let any = templates.iter().find(|template| template.uri_template == "{+uri}");
    assert_eq!(any.unwrap().mime_type, None);
}

#[derive(Deserialize, JsonSchema)]
struct Uri {
    #[expect(dead_code, reason = "only the template needs it")]
    uri: String,
}

#[tokio::test]
async fn prompts_and_resources_are_forwarded() {
    let server = keyed("u", 2)
        .prompt(Prompt::new("explain", "Explains", async |_: Context, Topic { topic }: Topic| {
            format!("Explain {topic}")
        }))
        .resource(Resource::new("note://one", "One", async |_: Context| "the first note"))
        .resource_template(ResourceTemplate::new(
            "note://by-topic/{topic}",
            "By topic",
            async |_: Context, Topic { topic }: Topic| format!("the note on {topic}"),
        ))
        .build()
        .unwrap();
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let prompts = client.list_prompts().await.unwrap();
    assert_eq!(
        (prompts[0].name.as_str(), prompts[0].arguments[0].name.as_str()),
        ("u__explain", "topic")
    );
    let prompt = client.get_prompt("u__explain", json!({ "topic": "rounds" })).await.unwrap();
    assert!(format!("{prompt:?}").contains("Explain rounds"), "{prompt:?}");
    assert_eq!(client.list_resources().await.unwrap()[0].uri, "note://one");
    for (uri, text) in
        [("note://one", "the first note"), ("note://by-topic/a%20b", "the note on a b")]
    {
        let result = client.read_resource(uri).await.unwrap();
        assert_eq!(result.contents[0].uri, uri);
        assert!(format!("{result:?}").contains(text), "{result:?}");
    }
}

#[tokio::test]
async fn results_and_errors_arrive_as_the_upstream_sent_them() {
    #[derive(Deserialize, JsonSchema)]
    struct Number {
        n: serde_json::Number,
    }
    let server = upstream(
        "u",
        [
            Tool::new("fail", "", async |_: Context| Err::<String, _>(Error::new("no such row"))),
            Tool::new("break", "", async |_: Context| {
                Err::<String, _>(Error::response(
                    ErrorObject::new(1_050, "broken").with_data(json!(7)),
                ))
            }),
            Tool::new("number", "", async |_: Context, Number { n }: Number| n.to_string()),
        ],
    );
    let gateway = gateway(&[("u", &server)]).await;
    let client = caller(&gateway, "alice").build();
    let failed = client.call_tool("u__fail", json!({})).await.unwrap();
    assert!(failed.is_error && failed.text() == "no such row", "{failed:?}");
    let error = client.call_tool("u__break", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!(
        (error.code, error.message.as_str(), &error.data),
        (1_050, "broken", &Some(json!(7)))
    );
    let arguments: Value = serde_json::from_str(r#"{"n":12345678901234567890}"#).unwrap();
    assert_eq!(
        client.call_tool("u__number", arguments).await.unwrap().text(),
        "12345678901234567890"
    );
}

/// The transport would make challenges and other answers of the gateway out of them.
#[tokio::test]
async fn errors_about_the_request_of_the_gateway_are_not_forwarded() {
    let scopes = json!({ "reason": "insufficient_scope", "scopes": ["admin"] });
    let errors = [
        ("scope", ErrorObject::new(-32_050, "x").with_data(scopes)),
        ("header", ErrorObject::new(code::HEADER_MISMATCH, "x")),
        ("method", ErrorObject::method_not_found("x")),
        ("request", ErrorObject::new(code::INVALID_REQUEST, "x")),
        ("parse", ErrorObject::new(code::PARSE_ERROR, "x")),
    ];
    let names = errors.each_ref().map(|(name, _)| *name);
    let tools = errors.map(|(name, error)| {
        Tool::new(name, "", move |_: Context| {
            std::future::ready(Err::<String, _>(Error::response(error.clone())))
        })
    });
    let gateway = gateway(&[("u", &upstream("u", tools))]).await;
    let client = caller(&gateway, "alice").build();
    for name in names {
        let error = client.call_tool(&format!("u__{name}"), json!({})).await.unwrap_err();
        let error = error.as_server_error().unwrap();
        assert_eq!((error.code, &error.data), (code::INTERNAL_ERROR, &None), "{name}");
        assert_eq!(error.message, "The upstream server refused the gateway's request");
    }
}

/// An upstream whose user has to visit a page, as legacy servers report it.
struct Paged(InProcess<Server>);

impl Transport for Paged {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        if outgoing.request.method != "tools/call" {
            return self.0.send(outgoing).await;
        }
        let pages = json!({ "elicitations": [{ "url": "https://login.example", "message": "x" }] });
        let error = ErrorObject::new(-32_042, "sign in first").with_data(pages);
        Ok(Response::error(Some(outgoing.request.id), error))
    }
}

/// The page would connect an account of the gateway, for all callers.
#[tokio::test]
async fn pages_of_legacy_upstreams_are_not_forwarded() {
    let server = InProcess::new(keyed("u", 2).allow_anonymous().tool(named("x")).build().unwrap());
    let gateway = Gateway::builder()
        .upstream("u", Client::builder(Paged(server)).build())
        .build(gateway_server())
        .unwrap();
    assert!(gateway.refresh().await.is_empty());
    let client = caller(&gateway, "alice").build();
    let error = client.call_tool("u__x", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!((error.code, &error.data), (code::INTERNAL_ERROR, &None));
    assert!(error.message.ends_with("a client capability that the gateway does not forward"));
}

/// The caller of a gateway that does not forward tasks cannot help it by declaring them.
#[tokio::test]
async fn required_extension_that_is_not_forwarded_is_not_asked_of_the_caller() {
    let tasks = ClientCapabilities::new().with_extension(tasks::EXTENSION, Object::new());
    let tool = Tool::new("report", "", move |_: Context| {
        let error = ErrorObject::missing_client_capability(&tasks);
        std::future::ready(Err::<String, _>(Error::response(error)))
    });
    let gateway = gateway(&[("u", &upstream("u", [tool]))]).await;
    let client = caller(&gateway, "alice").build();
    let error = client.call_tool("u__report", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!(error.code, code::INTERNAL_ERROR);
    assert!(error.message.ends_with("a client capability that the gateway does not forward"));
}

#[tokio::test(start_paused = true)]
async fn gateway_without_upstreams_runs_until_it_is_dropped() {
    let gateway = gateway(&[]).await;
    let run = tokio::time::timeout(Duration::from_mins(1), gateway.run());
    assert!(run.await.is_err());
}

#[tokio::test]
async fn progress_is_forwarded() {
    let work = async |progress: Progress| {
        progress.report(1.0, Some(2.0), Some("half"));
        "done"
    };
    let gateway = gateway(&[("u", &upstream("u", [Tool::new("work", "", work)]))]).await;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let client = caller(&gateway, "alice").on_progress(move |p| drop(sender.send(p))).build();
    client.call_tool("u__work", json!({})).await.unwrap();
    let progress = receiver.recv().await.unwrap();
    assert_eq!((progress.progress, progress.message.as_deref()), (1.0, Some("half")));
}

/// A server that answers lists with one tool of each name, valid or not.
struct Sloppy;

impl RequestHandler for Sloppy {
    async fn handle(self: Arc<Self>, incoming: IncomingRequest) -> Response<RawJson> {
        let request = incoming.request;
        let params = request.params.as_ref().map_or("", Params::as_str);
        if request.method.starts_with("tools/") {
            // A session with a legacy upstream is opened by any request.
            assert!(params.contains(r#""elicitation":{"form":{}}"#), "{params}");
        }
        let tool = |name: &str, schema: Value| json!({ "name": name, "inputSchema": schema, "outputSchema": schema });
        let object = json!({ "type": "object" });
        let result = match &*request.method {
            "server/discover" => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
                "capabilities": { "tools": {} },
            }),
            "tools/list" => {
                json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [
                tool("fine", object.clone()), tool("fine", object.clone()),
                tool("not valid", object.clone()), tool("schema", json!({ "type": "string" })),
                tool("also.fine", object),
                // Only the upstream has to understand the schema: the gateway does not compile it.
                tool("other-dialect", json!({ "type": "object", "$schema": "https://example.com/dialect" })),
                tool("dynamic", json!({ "type": "object", "$dynamicRef": "#node" })),
            ] })
            }
            "tools/call" => {
                json!({ "resultType": "complete", "content": [], "structuredContent": {} })
            }
            _ => Value::Null,
        };
        Response { id: Some(request.id), outcome: Ok(RawJson::new(&result).unwrap()) }
    }
}

#[tokio::test]
async fn invalid_tools_are_skipped_and_the_others_offered() {
    let gateway = Gateway::builder()
        .upstream("s", Client::builder(InProcess::new(Sloppy)).build())
        .build(gateway_server())
        .unwrap();
    gateway.refresh().await;
    gateway.refresh().await;
    let client = caller(&gateway, "alice").build().with_unvalidated_results();
    assert_eq!(
        tool_names(&client).await,
        ["s__fine", "s__also.fine", "s__other-dialect", "s__dynamic"]
    );
    let result = client.call_tool("s__other-dialect", json!({})).await.unwrap();
    assert_eq!(result.structured_content, Some(json!({})));
}

#[tokio::test]
async fn uri_belongs_to_the_upstream_that_was_listed_first() {
    let note = |text: &'static str| {
        let note = Resource::new("note://one", "One", move |_: Context| std::future::ready(text));
        keyed("u", 2).updatable::<Resource>().resource(note).build().unwrap()
    };
    let (first, second) = (note("first"), note("second"));
    let gateway = gateway(&[("a", &first), ("b", &second)]).await;
    let client = caller(&gateway, "alice").build();
    let text = async || {
        client.clear_cache();
        format!("{:?}", client.read_resource("note://one").await.unwrap())
    };
    assert!(text().await.contains("first"));
    assert_eq!(client.list_resources().await.unwrap().len(), 1);
    gateway.refresh().await;
    assert!(text().await.contains("first"));
    // When it is free, the other one gets it at its next listing, although that is the same.
    first
        .update(|update| {
            update.remove::<Resource>("note://one");
            Ok(())
        })
        .unwrap();
    gateway.refresh().await;
    gateway.refresh().await;
    assert!(text().await.contains("second"));
}

/// A connection that can be cut.
pub(crate) struct Cut(pub(crate) InProcess<Server>, pub(crate) Arc<AtomicBool>);

impl Transport for Cut {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        if self.1.load(Ordering::Relaxed) {
            return Err(TransportError::not_sent("10.0.0.7 refused the connection"));
        }
        self.0.send(outgoing).await
    }
}

#[tokio::test]
async fn upstream_that_is_gone_keeps_its_tools_and_says_so() {
    let (server, is_cut) = (keyed("u", 2).tool(named("x")).build().unwrap(), Arc::default());
    let server = InProcess::new(server)
        .with_extension(Principal::new("https://login.example", "the gateway"));
    let gateway = Gateway::builder()
        .upstream("u", Client::builder(Cut(server, Arc::clone(&is_cut))).build())
        .build(gateway_server())
        .unwrap();
    assert!(gateway.refresh().await.is_empty());
    is_cut.store(true, Ordering::Relaxed);
    let errors = gateway.refresh().await;
    assert_eq!(errors.iter().map(RefreshError::upstream).collect::<Vec<_>>(), ["u"]);
    let source = errors[0].source().unwrap();
    assert!(source.to_string().contains("10.0.0.7 refused"), "{source}");
    let client = connect(gateway.server(), "alice").build();
    assert_eq!(tool_names(&client).await, ["u__x"]);
    let error = client.call_tool("u__x", json!({})).await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!(error.message, "The upstream server is unreachable");
    is_cut.store(false, Ordering::Relaxed);
    assert_eq!(client.call_tool("u__x", json!({})).await.unwrap().text(), "x");
}

/// A server that never answers.
struct Stuck;

impl RequestHandler for Stuck {
    async fn handle(self: Arc<Self>, _: IncomingRequest) -> Response<RawJson> {
        std::future::pending().await
    }
}

enum Either {
    Server(InProcess<Server>),
    Stuck(InProcess<Stuck>),
    /// It gets stuck after it was listed.
    StuckInCalls(InProcess<Server>),
}

impl Transport for Either {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        match self {
            Self::Stuck(stuck) => stuck.send(outgoing).await,
            Self::StuckInCalls(_) if outgoing.request.method == "tools/call" => {
                std::future::pending().await
            }
            Self::Server(server) | Self::StuckInCalls(server) => server.send(outgoing).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn upstream_that_is_stuck_does_not_hold_up_the_others() {
    let server = || {
        let server = keyed("u", 2).tool(named("x")).build().unwrap();
        InProcess::new(server).with_extension(Principal::new("https://login.example", "g"))
    };
    let later = Either::StuckInCalls(server());
    let gateway = Gateway::builder()
        .upstream("stuck", Client::builder(Either::Stuck(InProcess::new(Stuck))).build())
        .upstream("later", Client::builder(later).build())
        .upstream("fine", Client::builder(Either::Server(server())).build())
        .request_timeout(Duration::from_secs(5))
        .build(ServerBuilder::allow_anonymous(Server::builder("g", "1").ephemeral_key()))
        .unwrap();
    gateway.refresh().await;
    let client = Client::builder(InProcess::new(gateway.server().clone())).build();
    assert_eq!(tool_names(&client).await, ["later__x", "fine__x"]);
    let call = async |name| client.call_tool(name, json!({})).await;
    let started = Instant::now();
    let mut stuck = pin!(call("later__x"));
    let fine = tokio::select! {
        biased;
        error = &mut stuck => panic!("{error:?}"),
        result = call("fine__x") => result,
    };
    assert_eq!(fine.unwrap().text(), "x");
    let error = stuck.await.unwrap_err();
    let error = error.as_server_error().unwrap();
    assert_eq!(error.message, "The upstream server did not answer in time");
    assert_eq!(started.elapsed().as_secs(), 5);
}
