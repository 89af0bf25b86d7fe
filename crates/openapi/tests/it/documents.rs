//! Documents, and operations that cannot become tools.

use mrtr_openapi::{OpenApi, OpenApiTools};
use serde_json::json;

use super::{Api, agreed, client, document, openapi};

#[test]
fn other_documents_are_refused() {
    for (text, why) in [
        ("openapi: 3.1.0", "is not JSON"),
        ("[]", "has the version none"),
        (r#"{"swagger":"2.0"}"#, "has the version none"),
        (r#"{"openapi":"4.0.0"}"#, "has the version 4.0.0"),
    ] {
        let error = OpenApi::new(text, "https://api.example", Api::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let empty = document(&json!({}));
    for url in ["api.example", "file:///etc", "https://user:secret@api.example", "https://a/?b"] {
        let error = OpenApi::new(&empty, url, Api::default()).unwrap_err();
        assert!(error.to_string().starts_with("the base URL"), "{error}");
    }
}

/// One operation that cannot become a tool does not concern the others.
#[tokio::test]
async fn operations_that_cannot_be_called_are_skipped_with_the_reason() {
    let large = "x".repeat(70_000);
    let paths = json!({
        "/ok": { "get": {} },
        "/variable/{id}": { "get": {} },
        "/cookie": { "get": { "parameters": [{ "name": "s", "in": "cookie", "required": true }] } },
        "/form": { "post": { "requestBody": { "required": true, "content": { "text/csv": {} } } } },
        "/lost": { "get": { "parameters": [{ "$ref": "#/components/parameters/none" }] } },
        "/outside": { "get": { "parameters": [
            { "name": "q", "in": "query", "schema": { "$ref": "https://evil.example/schema.json" } },
        ] } },
        "/large": { "get": { "parameters": [{ "name": "q", "in": "query", "description": large }] } },
        "/a/../b": { "get": {} },
        "/same": { "get": { "operationId": "get_ok" } },
        "/matrix/{id}": { "get": { "parameters": [
            { "name": "id", "in": "path", "required": true, "style": "matrix" },
        ] } },
    });
    let OpenApiTools { tools, skipped, .. } = openapi(&document(&paths), &Api::default()).tools();
    let (client, _) = client(tools, agreed());
    let names: Vec<_> =
        client.list_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["get_ok"]);
    let reasons: Vec<_> = skipped
        .iter()
        .map(|skipped| format!("{}: {:.60}", skipped.operation.path(), skipped.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            "/variable/{id}: its path has a variable without a parameter",
            "/cookie: it requires the parameter \"s\" in cookie",
            "/form: its request body is not JSON",
            "/lost: the reference \"#/components/parameters/none\" does not lead i",
            "/outside: the schema reference \"https://evil.example/schema.json\" is n",
            "/large: the schema of its arguments has 70084 bytes; at most 65536 a",
            "/a/../b: its path is not the path of a URL",
            "/same: another operation has the tool name \"get_ok\"",
            "/matrix/{id}: parameters of path have no style \"matrix\" here",
        ]
    );
}

#[tokio::test]
async fn definitions_say_what_the_document_says() {
    let paths = json!({ "/things/{id}": {
        "parameters": [
            { "name": "id", "in": "path", "required": true, "description": "of the path" },
        ],
        "get": {
            "operationId": "things/read one",
            "summary": "Reads a thing",
            "description": "All of it.",
            "parameters": [{ "name": "id", "in": "query", "description": "of the query" }],
        },
        "delete": {},
        "put": {},
        "post": {},
    } });
    let OpenApiTools { tools, .. } = openapi(&document(&paths), &Api::default()).tools();
    let (client, _) = client(tools, agreed());
    let tools = client.list_tools().await.unwrap();
    let read = &tools[0];
    assert_eq!(
        (read.name.as_str(), read.title.as_deref()),
        ("things_read_one", Some("Reads a thing"))
    );
    assert_eq!(read.description.as_deref(), Some("Reads a thing\n\nAll of it."));
    assert_eq!(
        serde_json::to_value(&read.input_schema).unwrap(),
        json!({
            "type": "object",
            "properties": {
                "id": { "description": "of the path" },
                "query_id": { "description": "of the query" },
            },
            "required": ["id"],
            "additionalProperties": false,
        })
    );
    let hints: Vec<_> = tools
        .iter()
        .map(|tool| {
            let hints = tool.annotations.as_ref().unwrap();
            let [read_only, destructive, idempotent] =
                [hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint]
                    .map(|hint| hint.unwrap());
            (tool.description.as_deref().unwrap(), read_only, destructive, idempotent)
        })
        .collect();
    assert_eq!(
        hints,
        [
            ("Reads a thing\n\nAll of it.", true, false, true),
            ("PUT /things/{id}", false, true, true),
            ("POST /things/{id}", false, false, false),
            ("DELETE /things/{id}", false, true, true),
        ]
    );
}
