//! Validation of structured content against the output schema of the tool.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{Reply, ScriptedServer};

fn server(schema: Value, result: Value) -> ScriptedServer {
    ScriptedServer::new(move |received| {
        Reply::Result(match received.method.as_str() {
            "tools/list" => json!({ "tools": [
                { "name": "t", "inputSchema": { "type": "object" }, "outputSchema": schema },
            ] }),
            _ => result.clone(),
        })
    })
}

#[tokio::test]
async fn structured_content_must_match_the_output_schema() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } },
        "required": ["n"] });
    let structured = |value: Value| json!({ "content": [], "structuredContent": value });
    for (result, is_valid) in [
        (structured(json!({ "n": 1 })), true),
        (structured(json!({ "n": 0 })), false),
        (structured(json!({ "n": "1" })), false),
        (structured(json!({})), false),
        (structured(Value::Null), false),
        (json!({ "content": [] }), false),
        // A failed call has no output.
        (json!({ "content": [], "isError": true }), true),
    ] {
        let client = server(schema.clone(), result.clone()).client().build();
        client.list_tools().await.unwrap();
        let called = client.call_tool("t", json!({})).await;
        assert_eq!(called.is_ok(), is_valid, "{result}: {called:?}");
        if let Err(error) = called {
            assert!(
                error.is_protocol() && error.to_string().contains("invalid result of tool \"t\""),
                "{error}"
            );
        }
    }
}

/// The tool has run, so its result must not be lost.
#[tokio::test]
async fn tool_whose_schema_has_changed_is_listed_again() {
    let listings = AtomicUsize::new(0);
    let server = ScriptedServer::new(move |received| {
        Reply::Result(match received.method.as_str() {
            "tools/list" => {
                let name = if listings.fetch_add(1, Ordering::SeqCst) == 0 { "old" } else { "new" };
                let schema = json!({ "type": "object", "required": [name] });
                json!({ "ttlMs": 300_000, "tools": [
                    { "name": "t", "inputSchema": { "type": "object" }, "outputSchema": schema },
                ] })
            }
            _ => json!({ "content": [], "structuredContent": { "new": 1 } }),
        })
    });
    let client = server.client().build();
    client.list_tools().await.unwrap();
    for _ in 0..2 {
        client.call_tool("t", json!({})).await.unwrap();
    }
    let methods: Vec<_> = server.received().into_iter().map(|one| one.method).collect();
    assert_eq!(methods, ["tools/list", "tools/call", "tools/list", "tools/call"]);
}

/// No reference is fetched, and the cost of a schema is bounded. A schema is compiled when its tool
/// is called: the compiled schemas of a long list would exhaust the memory.
#[tokio::test]
async fn tool_with_an_unusable_output_schema_is_not_called() {
    for schema in [
        json!({ "$ref": "https://example.com/schema.json" }),
        json!({ "$schema": "https://example.com/dialect", "type": "object" }),
        json!({ "type": "objekt" }),
        json!({ "anyOf": [{ "$ref": "#" }] }),
    ] {
        let server = server(schema.clone(), json!({ "content": [] }));
        let client = server.client().build();
        assert_eq!(client.list_tools().await.unwrap().len(), 1);
        let error = client.call_tool("t", json!({})).await.unwrap_err();
        assert!(error.is_protocol() && error.to_string().contains("outputSchema"), "{error}");
        assert_eq!(server.received().len(), 1, "{schema}");
    }
    let draft7 = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object" });
    let server = server(draft7, json!({ "content": [], "structuredContent": {} }));
    let client = server.client().build();
    client.list_tools().await.unwrap();
    client.call_tool("t", json!({})).await.unwrap();
}
