//! Structured content is held against the schema that its tool was listed with.

use serde_json::{Value, json};

use crate::{Answer, Scripted};

fn server(schema: Value, result: Value) -> Scripted {
    Scripted::new(move |asked| {
        Answer::Result(match asked.method.as_str() {
            "tools/list" => json!({ "tools": [
                { "name": "t", "inputSchema": { "type": "object" }, "outputSchema": schema },
            ] }),
            _ => result.clone(),
        })
    })
}

#[tokio::test]
async fn a_result_has_to_fit_its_tools_schema() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } },
        "required": ["n"] });
    let structured = |value: Value| json!({ "content": [], "structuredContent": value });
    for (result, fits) in [
        (structured(json!({ "n": 1 })), true),
        (structured(json!({ "n": 0 })), false),
        (structured(json!({ "n": "1" })), false),
        (structured(json!({})), false),
        (structured(Value::Null), false),
        (json!({ "content": [] }), false),
        // A failure has no output.
        (json!({ "content": [], "isError": true }), true),
    ] {
        let client = server(schema.clone(), result.clone()).client().build();
        client.list_tools().await.unwrap();
        let called = client.call_tool("t", json!({})).await;
        assert_eq!(called.is_ok(), fits, "{result}: {called:?}");
        if let Err(error) = called {
            assert!(
                error.is_protocol() && error.to_string().contains("invalid result of tool \"t\""),
                "{error}"
            );
        }
    }
}

/// Nothing is fetched, and no schema keeps us busy.
#[tokio::test]
async fn a_tool_whose_schema_nothing_can_be_held_against_is_left_out() {
    for schema in [
        json!({ "$ref": "https://example.com/schema.json" }),
        json!({ "$schema": "https://example.com/dialect", "type": "object" }),
        json!({ "type": "objekt" }),
        json!({ "$defs": doubling(), "$ref": "#/$defs/n0" }),
    ] {
        let server = server(schema.clone(), json!({ "content": [] }));
        assert!(server.client().build().list_tools().await.unwrap().is_empty(), "{schema}");
    }
    let seven = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object" });
    let fine = server(seven, json!({ "content": [] }));
    assert_eq!(fine.client().build().list_tools().await.unwrap().len(), 1);
}

/// Definitions that refer to the next one twice.
fn doubling() -> Value {
    let mut all = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/n{}", n + 1) });
        all.insert(format!("n{n}"), json!({ "allOf": [next, next] }));
    }
    all.insert("n40".to_owned(), json!({ "type": "integer" }));
    Value::Object(all)
}
