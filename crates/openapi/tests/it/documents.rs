//! Documents, and operations that cannot become tools.

use mrtr_openapi::{OpenApi, OpenApiTools};
#[cfg(feature = "validate")]
use serde_json::Value;
use serde_json::json;

use super::{Api, agreed, client, document, openapi};

#[test]
fn other_documents_are_refused() {
    for (text, why) in [
        #[cfg(not(feature = "yaml"))]
        ("openapi: 3.1.0", "to read YAML, enable the feature `openapi-yaml`"),
        ("[]", "has no string"),
        (r#"{"swagger":"2.0"}"#, "Swagger 2.0 is not supported"),
        (r#"{"openapi":"4.0.0"}"#, "unsupported OpenAPI version \"4.0.0\""),
        (r#"{"openapi":"3.1.0","openapi":"3.0.0"}"#, "duplicate key \"openapi\""),
        (r#"{"openapi":"3.1.0","x":{"\u0024serde_json::private::RawValue":"1"}}"#, "reserved key"),
    ] {
        let error = OpenApi::new(text, "https://api.example", Api::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let empty = document(&json!({}));
    for url in ["api.example", "file:///etc", "https://user:secret@api.example", "https://a/?b"] {
        let error = OpenApi::new(&empty, url, Api::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("invalid base URL") && !text.contains("secret"), "{text}");
    }
}

/// One operation that cannot become a tool does not concern the others.
#[tokio::test]
async fn operations_that_cannot_be_called_are_skipped_with_the_reason() {
    let large = "x".repeat(70_000);
    let many: Vec<_> =
        (0..257).map(|n| json!({ "name": format!("p{n}"), "in": "query" })).collect();
    let deep = (0..65).fold(json!({}), |schema, _| json!({ "not": schema }));
    let lost = json!({ "$ref": "#/components/schemas/A/properties/no" });
    // Its parts refer to the whole: four levels have 10¹² parts.
    let whole = json!({ "$ref": "#/components/schemas/B" });
    let circular = json!({ "required": ["x"], "allOf": vec![whole; 1_000] });
    let paths = json!({
        "/ok": { "get": {} },
        "/variable/{id}": { "get": {} },
        "/cookie": { "get": { "parameters": [{ "name": "s", "in": "cookie", "required": true }] } },
        "/form": { "post": { "requestBody": { "required": true, "content": { "text/csv": {} } } } },
        "/lost": { "get": { "parameters": [{ "$ref": "#/components/parameters/none" }] } },
        "/circle": { "get": { "parameters": [{ "$ref": "#/components/parameters/a" }] } },
        "/outside": { "get": { "parameters": [
            { "name": "q", "in": "query", "schema": { "$ref": "https://evil.example/schema.json" } },
        ] } },
        "/name": { "get": { "parameters": [{ "name": "n".repeat(2_000), "in": "query" }] } },
        "/again": { "get": { "parameters": vec![json!({ "name": "q", "in": "query" }); 257] } },
        "/large": { "get": { "parameters": [{ "name": "q", "in": "query", "description": large }] } },
        "/a/../b": { "get": {} },
        "/a/..\\..\\x": { "get": {} },
        "/a/%2e%2e/x": { "get": {} },
        "/a\u{202e}": { "get": {} },
        "/many": { "get": { "parameters": many } },
        "/deep": { "get": { "parameters": [{ "name": "q", "in": "query", "schema": deep }] } },
        "/target": { "get": { "parameters": [{ "name": "q", "in": "query", "schema": lost }] } },
        "/id": { "get": { "parameters": [{ "name": "q", "in": "query", "schema": { "$id": "x" } }] } },
        "/media": { "put": { "requestBody": { "content": { "application/json;\n": {} } } } },
        "/same": { "get": { "operationId": "get_ok" } },
        "/trace": { "trace": {} },
        "/many-times": { "get": { "parameters": [
            { "name": "q", "in": "query", "schema": { "$ref": "#/components/schemas/B" } },
        ] } },
        "/style/{id}": { "get": { "parameters": [
            { "name": "id", "in": "path", "required": true, "style": "form" },
        ] } },
    });
    let parameters = json!({
        "a": { "$ref": "#/components/parameters/b" },
        "b": { "$ref": "#/components/parameters/a" },
    });
    let document = json!({
        "openapi": "3.1.0",
        "paths": paths,
        "components": { "parameters": parameters, "schemas": { "A": { "properties": {} }, "B": circular } },
    });
    let OpenApiTools { tools, skipped, .. } =
        openapi(&document.to_string(), &Api::default()).build();
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
            "/variable/{id}: the path has a variable without a path parameter",
            "/cookie: the required parameter \"s\" is in \"cookie\", which is not supp",
            "/form: the required request body is neither JSON, application/x-www",
            "/lost: the reference \"#/components/parameters/none\" has no target i",
            "/circle: more than 16 references lead from one to the next",
            "/outside: the schema reference \"https://evil.example/schema.json\" must",
            "/name: the name of a parameter has more than 1024 bytes",
            "/again: the operation has more than 256 parameters",
            "/large: the input schema has more than 65536 bytes, or refers to its",
            "/a/../b: the path contains a dot segment, or a character that is not ",
            "/a/..\\..\\x: the path contains a dot segment, or a character that is not ",
            "/a/%2e%2e/x: the path contains a dot segment, or a character that is not ",
            "/a\u{202e}: the path contains a dot segment, or a character that is not ",
            "/many: the operation has more than 256 parameters",
            "/deep: a schema is nested more than 64 levels deep",
            "/target: the schema reference \"#/components/schemas/A/properties/no\" ",
            "/id: a schema has the keyword \"$id\", which is not supported",
            "/media: the media type \"application/json;\\n\" is invalid",
            "/same: another operation has the same tool name, \"get_ok\"",
            "/trace: a response to TRACE would contain the request, with its cred",
            "/many-times: the input schema has more than 65536 bytes, or refers to its",
            "/style/{id}: parameter \"id\" in path: style \"form\" with explode=true is no",
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
    let OpenApiTools { tools, .. } = openapi(&document(&paths), &Api::default()).build();
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
            ("POST /things/{id}", false, true, false),
            ("DELETE /things/{id}", false, true, true),
        ]
    );
}

#[tokio::test]
async fn servers_of_the_document_are_ignored() {
    let document = json!({
        "openapi": "3.1.0",
        "servers": [{ "url": "https://evil.example" }],
        "paths": { "/x": { "get": {
            "operationId": "op",
            "servers": [{ "url": "https://evil.example" }],
        } } },
    });
    let api = Api::default();
    let (client, _) = client(openapi(&document.to_string(), &api).build().tools, agreed());
    client.call_tool("op", json!({})).await.unwrap();
    assert_eq!(api.lines(), ["GET https://api.example/v1/x"]);
}

/// A schema that the server cannot use would otherwise keep it from being built.
#[cfg(feature = "validate")]
#[tokio::test]
async fn invalid_schemas_do_not_concern_other_operations() {
    let with = |schema: Value| {
        json!({ "put": { "requestBody": { "content": {
        "application/json": { "schema": schema },
    } } } })
    };
    let password = json!({ "pattern": "^(?=.*[A-Z]).{8,}$" });
    let large = json!({ "properties": { "pattern": { "pattern": "\\p{L}{200}" } } });
    let paths = json!({
        "/password": with(password.clone()),
        "/large": with(large),
        "/kind": with(json!({ "type": "str" })),
        "/length": with(json!({ "minLength": -1 })),
        "/required": with(json!({ "properties": { "a": { "required": true } } })),
    });
    let OpenApiTools { tools, skipped, .. } = openapi(&document(&paths), &Api::default()).build();
    let (client, _) = client(tools, agreed());
    let tools = client.list_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((names, skipped.len()), (vec!["put_password", "put_large"], 3), "{skipped:?}");
    let schemas = tools.iter().map(|tool| &tool.input_schema["properties"]["body"]);
    let without_pattern = json!({ "properties": { "pattern": {} } });
    assert_eq!(schemas.collect::<Vec<_>>(), [&password, &without_pattern]);
}

/// As tools that join the files of a document write them (RFC 6901, section 6).
#[tokio::test]
async fn references_may_be_percent_encoded() {
    let id = json!({ "name": "id", "in": "path", "required": true });
    let schema = json!({ "$ref": "#/components/schemas/my%3A%3APerson/properties/a%20b" });
    let document = json!({
        "openapi": "3.1.0",
        "paths": {
            "/users/{id}": { "get": { "operationId": "a", "parameters": [id] } },
            "/people/{id}": { "get": { "operationId": "b", "parameters": [
                { "$ref": "#/paths/~1users~1%7Bid%7D/get/parameters/0" },
                { "name": "q", "in": "query", "schema": schema },
            ] } },
        },
        "components": { "schemas": { "my::Person": { "properties": { "a b": { "type": "string" } } } } },
    });
    let OpenApiTools { tools, skipped, .. } =
        openapi(&document.to_string(), &Api::default()).build();
    assert!(skipped.is_empty(), "{skipped:?}");
    let (client, _) = client(tools, agreed());
    let tools = client.list_tools().await.unwrap();
    let input = serde_json::to_value(&tools[1].input_schema).unwrap();
    let reference = json!({ "$ref": "#/$defs/my::Person/properties/a%20b" });
    assert_eq!(input["properties"]["q"], reference);
    assert_eq!(input["required"], json!(["id"]));
    let call = client.call_tool("b", json!({ "id": "1", "q": "x" })).await.unwrap();
    assert!(!call.is_error, "{}", call.text());
}

/// Their operations would all be skipped but one.
#[test]
fn ids_without_ascii_letters_are_not_names() {
    let paths = json!({
        "/users": { "get": { "operationId": "\u{83b7}\u{53d6}" } },
        "/users/{id}": {
            "parameters": [{ "name": "id", "in": "path", "required": true }],
            "delete": { "operationId": "\u{5220}\u{9664}" },
        },
    });
    let OpenApiTools { tools, skipped, .. } = openapi(&document(&paths), &Api::default()).build();
    assert_eq!((tools.len(), skipped.len()), (2, 0));
}

#[tokio::test]
async fn document_has_a_maximum_number_of_tools() {
    let mut paths = json!({});
    for n in 0..1_010 {
        paths[format!("/p{n}")] = json!({ "get": {} });
    }
    let OpenApiTools { tools, skipped, .. } = openapi(&document(&paths), &Api::default()).build();
    assert_eq!((tools.len(), skipped.len()), (1_000, 10));
    assert_eq!(skipped[0].reason, "the document has more than 1000 operations");
    // Operations that cannot become tools count, too.
    let mut paths = json!({});
    for n in 0..1_001 {
        paths[format!("/p{n}/{{id}}")] = json!({ "get": {} });
    }
    paths["/q"] = json!({ "get": {} });
    let OpenApiTools { tools, skipped, .. } = openapi(&document(&paths), &Api::default()).build();
    assert_eq!((tools.len(), skipped.len()), (0, 1_002));
    assert_eq!(skipped[1_001].reason, "the document has more than 1000 operations");
}
