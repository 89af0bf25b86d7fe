//! MCP Apps: UI resources, which show the results of tools.

use mrtr_schema::apps::{self, ContentSecurityPolicy, ResourceUiMeta};
use mrtr_schema::content::ResourceContents;
use mrtr_schema::tool::Tool as ToolDefinition;
use mrtr_server::{
    BuildError, Context, Resource, ResourceOutput, ResourceTemplate, Result, Server, Tool,
};
use mrtr_testkit::TestClock;
use mrtr_transport::{InProcess, OutgoingRequest, Transport as _};
use serde_json::{Value, json};

use crate::support::{replica, request, with_meta};

const LIST: &str = "ui://orders/list.html";

async fn said(_: Context) -> &'static str {
    "said"
}

fn tool(name: &str) -> Tool {
    Tool::new(name, "", said)
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Named {
    name: String,
}

async fn named(_: Context, Named { name }: Named) -> String {
    name
}

fn ui() -> ResourceUiMeta {
    let csp = ContentSecurityPolicy::default().with_connect_domains(["https://api.example.com"]);
    ResourceUiMeta::default().with_csp(csp)
}

fn build(tools: impl IntoIterator<Item = Tool>, page: Resource) -> Result<Server, BuildError> {
    let server = replica(&TestClock::default()).allow_anonymous().resource(page);
    tools.into_iter().fold(server, mrtr_server::ServerBuilder::tool).build()
}

fn orders() -> Server {
    let page = Resource::app(LIST, "orders", "<!doctype html>").ui(ui());
    build([tool("orders").app(LIST), tool("archive").app(LIST).app_only()], page).unwrap()
}

/// Sends a request of a client with MCP Apps, or of one without.
async fn send(server: &Server, has_apps: bool, method: &str, params: Value) -> Value {
    let mut params = with_meta(params);
    let extensions =
        if has_apps { json!({ apps::EXTENSION: apps::client_settings() }) } else { json!({}) };
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"] = extensions;
    let outgoing = OutgoingRequest::new(request(method, &params));
    match InProcess::new(server.clone()).send(outgoing).await.unwrap().outcome {
        Ok(result) => serde_json::from_str(result.get()).unwrap(),
        Err(error) => json!({ "error": error }),
    }
}

#[tokio::test]
async fn tools_have_the_uri_of_their_ui_resource() {
    let server = orders();
    let listed = send(&server, true, "tools/list", json!({})).await;
    let metas: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|t| &t["_meta"]).collect();
    assert_eq!(
        json!(metas),
        json!([
            { "ui": { "resourceUri": LIST } },
            { "ui": { "resourceUri": LIST, "visibility": ["app"] } },
        ])
    );
    let found = send(&server, false, "server/discover", json!({})).await;
    assert_eq!(found["capabilities"]["extensions"], json!({ apps::EXTENSION: {} }));
    let none = replica(&TestClock::default()).allow_anonymous().tool(tool("t")).build().unwrap();
    let found = send(&none, false, "server/discover", json!({})).await;
    assert_eq!(found["capabilities"].get("extensions"), None);
}

#[tokio::test]
async fn app_only_tools_are_hidden_from_clients_without_apps() {
    let server = orders();
    let call = json!({ "name": "archive", "arguments": {} });
    let result = send(&server, true, "tools/call", call.clone()).await;
    assert_eq!(result["content"][0]["text"], "said");
    let refused = send(&server, false, "tools/call", call).await;
    assert_eq!(refused["error"]["message"], "Unknown tool: \"archive\"", "{refused}");
    let listed = send(&server, false, "tools/list", json!({})).await;
    assert_eq!(listed["tools"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["cacheScope"], "private");
}

#[tokio::test]
async fn ui_resources_have_their_metadata_in_the_list_and_in_the_contents() {
    let server = orders();
    let meta = json!({ "ui": { "csp": { "connectDomains": ["https://api.example.com"] } } });
    let listed = send(&server, true, "resources/list", json!({})).await;
    assert_eq!(
        listed["resources"],
        json!([{ "uri": LIST, "name": "orders", "mimeType": apps::MIME_TYPE, "_meta": meta }])
    );
    let read = send(&server, true, "resources/read", json!({ "uri": LIST })).await;
    let text = "<!doctype html>";
    assert_eq!(
        read["contents"],
        json!([{ "uri": LIST, "mimeType": apps::MIME_TYPE, "text": text, "_meta": meta }])
    );
}

#[tokio::test]
async fn contents_may_have_their_own_metadata() {
    let own = json!({ "ui": { "prefersBorder": false } });
    let contents = [own.clone(), json!({ "com.example/a": 1 })];
    let page = move |_: Context, Named { name }: Named| {
        let meta = contents[usize::from(name == "two")].as_object().unwrap().clone();
        let contents = ResourceContents::text("", "<!doctype html>").with_meta(meta);
        std::future::ready(ResourceOutput::many([contents]))
    };
    let template = ResourceTemplate::new("ui://pages/{name}", "pages", page)
        .mime_type(apps::MIME_TYPE)
        .ui(ui());
    let server = replica(&TestClock::default()).allow_anonymous().resource_template(template);
    let server = server.tool(tool("t").app("ui://pages/one")).build().unwrap();
    let read = send(&server, true, "resources/read", json!({ "uri": "ui://pages/one" })).await;
    assert_eq!(read["contents"][0]["_meta"], own);
    let read = send(&server, true, "resources/read", json!({ "uri": "ui://pages/two" })).await;
    let csp = json!({ "connectDomains": ["https://api.example.com"] });
    let both = json!({ "com.example/a": 1, "ui": { "csp": csp } });
    assert_eq!(read["contents"][0]["_meta"], both);
    assert_eq!(read["contents"][0]["mimeType"], apps::MIME_TYPE);
}

#[test]
fn mistakes_are_found_when_the_server_is_built() {
    let page = || Resource::app(LIST, "orders", "");
    let open = ContentSecurityPolicy::default().with_connect_domains(["*"]);
    let template = ResourceTemplate::new("doc://{name}", "docs", named);
    let cases = [
        (
            build([tool("t").app("ui://other")], page()),
            r#"the tool "t": no resource "ui://other" has the media type "text/html;profile=mcp-app""#,
        ),
        (
            build([tool("t").app("https://example.com")], page()),
            r#"the tool "t": the URI "https://example.com" does not begin with `ui://`"#,
        ),
        (
            build([], Resource::app("https://example.com", "x", "")),
            r#"the resource "https://example.com": its URI does not begin with `ui://`"#,
        ),
        (
            build([], page().mime_type("text/html")),
            r#"the resource "ui://orders/list.html": its media type must be "text/html;profile=mcp-app""#,
        ),
        (
            build([], page().ui(ResourceUiMeta::default().with_csp(open))),
            r#"the resource "ui://orders/list.html": /_meta/ui/csp/connectDomains/0: "*" is not an origin"#,
        ),
        (
            replica(&TestClock::default()).resource_template(template.ui(ui())).build(),
            r#"the resource template "doc://{name}": its URI does not begin with `ui://`"#,
        ),
    ];
    for (built, expected) in cases {
        assert_eq!(built.unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_ui_resource_cannot_go_while_a_tool_has_it() {
    let page = Resource::app(LIST, "orders", "");
    let server = replica(&TestClock::default()).updatable::<Resource>().updatable::<Tool>();
    let server = server.resource(page).tool(tool("t").app(LIST)).build().unwrap();
    let removed = server.update(|update| {
        update.remove::<Resource>(LIST);
        Ok(())
    });
    let disabled = server.update(|update| {
        update.disable::<Resource>(LIST);
        Ok(())
    });
    for error in [removed, disabled] {
        assert!(error.unwrap_err().to_string().contains("no resource \"ui://"));
    }
    let both = server.update(|update| {
        update.disable::<Resource>(LIST);
        update.disable::<Tool>("t");
        Ok(())
    });
    assert_eq!(both, Ok(()));
}

/// The first one that serves the URI counts.
#[test]
fn a_ui_resource_is_what_a_read_finds() {
    let server = || replica(&TestClock::default()).tool(tool("t").app(LIST));
    let page = |uri: &str| ResourceTemplate::new(uri, "p", async |_: Context, _: Page| "x");
    let html = |template: ResourceTemplate| template.mime_type(apps::MIME_TYPE);
    let (text, any) = (Resource::new(LIST, "text", async || "x"), "ui://orders/{page}");
    assert!(LIST.starts_with("ui://orders/"));
    server().resource_template(html(page(any))).build().unwrap();
    let behind = server().resource(text).resource_template(html(page(any)));
    assert!(behind.build().unwrap_err().to_string().contains("no resource \"ui://"));
    let second =
        server().resource_template(page("ui://{+page}")).resource_template(html(page(any)));
    assert!(second.build().unwrap_err().to_string().contains("no resource \"ui://"));
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Page {
    #[expect(dead_code, reason = "only the template needs it")]
    page: String,
}

/// A definition with this `_meta.ui`.
fn definition(name: &str, ui: &Value) -> ToolDefinition {
    let schema = json!({ "type": "object" }).as_object().unwrap().clone();
    let meta = json!({ "com.example/a": 1, "ui": ui }).as_object().unwrap().clone();
    ToolDefinition::new(name, schema).with_meta(meta)
}

/// It does not matter where the metadata comes from, and in which order.
#[tokio::test]
async fn metadata_of_definitions_counts() {
    let app = json!({ "visibility": ["app"], "com.example/b": 2 });
    let page = Resource::app(LIST, "orders", "");
    let server = build(
        [
            tool("").definition(definition("defined", &app)),
            tool("").definition(definition("linked", &app)).app(LIST),
            tool("").definition(definition("limited", &json!({}))).app_only(),
            tool("").app_only().definition(definition("open", &json!({}))),
            tool("model").model_only(),
        ],
        page,
    )
    .unwrap();
    let names = async |has_apps: bool| {
        let listed = send(&server, has_apps, "tools/list", json!({})).await;
        let tools = listed["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(true).await, ["defined", "linked", "limited", "open", "model"]);
    assert_eq!(names(false).await, ["open", "model"]);
    let listed = send(&server, true, "tools/list", json!({})).await;
    let ui = json!({ "visibility": ["app"], "com.example/b": 2, "resourceUri": LIST });
    assert_eq!(listed["tools"][1]["_meta"], json!({ "com.example/a": 1, "ui": ui }));
    assert_eq!(listed["tools"][4]["_meta"], json!({ "ui": { "visibility": ["model"] } }));

    for (ui, why) in [
        (json!({ "resourceUri": "ui://other" }), "no resource \"ui://other\""),
        (json!({ "resourceUri": "file:///etc" }), "does not begin with `ui://`"),
        (json!({ "visibility": "app" }), "/_meta/ui: "),
    ] {
        let page = Resource::app(LIST, "orders", "");
        let error = build([tool("").definition(definition("t", &ui))], page).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// The extension is declared when the first tool needs it.
#[tokio::test]
async fn updates_declare_the_extension() {
    let server = replica(&TestClock::default()).allow_anonymous().updatable::<Tool>();
    let server = server.build().unwrap();
    let declared = async || {
        let found = send(&server, false, "server/discover", json!({})).await;
        found["capabilities"]["extensions"].clone()
    };
    assert_eq!(declared().await, Value::Null);
    server.update(|update| update.add(tool("t").app_only())).unwrap();
    assert_eq!(declared().await, json!({ apps::EXTENSION: {} }));
}
