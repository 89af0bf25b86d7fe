//! MCP Apps: UI resources, which show the results of tools.

use mrtr_client::{CallError, Client, UiResource};
use mrtr_schema::Object;
use mrtr_schema::apps::{self, ResourceUiMeta};
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::tool::Tool;
use serde_json::{Value, json};

use crate::{Reply, ScriptedServer};

const LIST: &str = "ui://orders/list.html";

/// A server with these contents of the UI resource, and this `_meta` in its list.
fn server(contents: Value, listed: Value) -> ScriptedServer {
    ScriptedServer::new(move |received| {
        Reply::Result(match received.method.as_str() {
            "resources/list" => {
                let other = json!({ "uri": "ui://other", "name": "o", "_meta": { "ui": [] } });
                let page = json!({ "uri": LIST, "name": "orders", "_meta": listed });
                json!({ "resources": [other, page] })
            }
            "resources/read" => json!({ "contents": contents }),
            other => panic!("{other}"),
        })
    })
}

fn tool(meta: &Value) -> Tool {
    Tool::new("orders", Object::new()).with_meta(meta.as_object().unwrap().clone())
}

async fn read(client: &Client<ScriptedServer>) -> Result<Option<UiResource>, CallError> {
    client.read_ui_resource(&tool(&json!({ "ui": { "resourceUri": LIST } }))).await
}

#[tokio::test]
async fn ui_resources_are_text_or_base64() {
    for own in [json!({ "text": "<!doctype html>" }), json!({ "blob": "PCFkb2N0eXBlIGh0bWw+" })] {
        let mut contents = json!({ "uri": LIST, "mimeType": "text/html; profile=mcp-app",
            "_meta": { "ui": { "prefersBorder": true } } });
        contents.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        let server = server(json!([contents]), json!({ "ui": 7 }));
        let page = read(&server.client().build()).await.unwrap().unwrap();
        assert_eq!((page.uri.as_str(), page.html.as_str()), (LIST, "<!doctype html>"));
        assert_eq!(page.ui.prefers_border, Some(true));
        assert_eq!(server.methods(), ["resources/read"]);
    }
}

#[tokio::test]
async fn metadata_of_the_list_counts_if_the_contents_have_none() {
    let contents = json!([{ "uri": LIST, "mimeType": apps::MIME_TYPE, "text": "" }]);
    let csp = json!({ "connectDomains": ["https://api.example.com", "*"] });
    let server = server(contents, json!({ "ui": { "csp": csp } }));
    let page = read(&server.client().build()).await.unwrap().unwrap();
    let policy = page.csp_header();
    assert!(policy.contains("connect-src https://api.example.com;"), "{policy}");
    assert_eq!(server.methods(), ["resources/read", "resources/list"]);
}

/// Servers may leave UI resources out of their list, or have no list.
#[tokio::test]
async fn a_document_without_metadata_gets_the_strictest_policy() {
    let server = ScriptedServer::new(|received| match received.method.as_str() {
        "resources/read" => {
            let contents = json!({ "uri": LIST, "mimeType": apps::MIME_TYPE, "text": "" });
            Reply::Result(json!({ "contents": [contents] }))
        }
        other => Reply::Error(ErrorObject::method_not_found(other)),
    });
    let found = read(&server.client().build()).await.unwrap().unwrap();
    assert!(found.csp_header().contains("connect-src 'none'"), "{}", found.csp_header());
    assert_eq!(found.ui, ResourceUiMeta::default());
}

#[tokio::test]
async fn tools_without_a_ui_resource_have_none() {
    let server = server(json!([]), json!({}));
    let client = server.client().build();
    for meta in [json!({}), json!({ "ui": { "visibility": ["app"] } })] {
        assert_eq!(client.read_ui_resource(&tool(&meta)).await.unwrap(), None);
    }
    assert!(server.methods().is_empty());
}

#[tokio::test]
async fn ui_resources_that_break_the_rules_are_refused() {
    let page = json!({ "uri": LIST, "mimeType": apps::MIME_TYPE, "text": "" });
    let with = |key: &str, value: Value| {
        let mut page = page.clone();
        page[key] = value;
        page
    };
    let mut binary = page.clone();
    binary.as_object_mut().unwrap().remove("text");
    binary["blob"] = json!("/w==");
    for (contents, why) in [
        (json!([]), "the server did not send it once"),
        (json!([page, page]), "the server did not send it once"),
        (json!([with("uri", json!("ui://other"))]), "the server did not send it once"),
        (json!([with("mimeType", json!("text/html"))]), "the media type is \"text/html\""),
        (json!([with("_meta", json!({ "ui": "none" }))]), "/_meta/ui: "),
        (json!([binary]), "invalid UTF-8"),
    ] {
        let client = server(contents, json!({ "ui": {} })).client().build();
        let error = read(&client).await.unwrap_err();
        assert!(error.is_protocol() && error.to_string().contains(why), "{error}");
    }
    let client = server(json!([page]), json!({})).client().build();
    for (meta, why) in [
        (json!({ "ui": { "resourceUri": "file:///etc" } }), "does not begin with `ui://`"),
        (json!({ "ui": 7 }), "invalid metadata of the tool \"orders\": /_meta/ui: "),
    ] {
        let error = client.read_ui_resource(&tool(&meta)).await.unwrap_err();
        assert!(error.is_protocol() && error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn the_extension_is_declared_on_request() {
    let list = || ScriptedServer::new(|_| Reply::Result(json!({ "tools": [] })));
    for (server, declares) in [(list(), true), (list(), false)] {
        let builder = server.client();
        let builder = if declares { builder.with_apps() } else { builder };
        builder.build().list_tools().await.unwrap();
        let meta = &server.received()[0].meta;
        let extensions = &meta["io.modelcontextprotocol/clientCapabilities"]["extensions"];
        let settings = json!({ apps::EXTENSION: { "mimeTypes": [apps::MIME_TYPE] } });
        assert_eq!(*extensions, if declares { settings } else { Value::Null });
    }
}
