//! Schemas of arguments.

use mrtr_openapi::{OpenApi, OpenApiTools};
use serde_json::{Value, json};

use super::{Api, agreed, client};

/// Returns the schema of the only tool, whose body has the schema `body`.
async fn schema_of(version: &str, body: Value, schemas: Value) -> Value {
    let document = json!({
        "openapi": version,
        "paths": { "/x": { "post": {
            "operationId": "op",
            "requestBody": { "content": { "application/json": { "schema": body } } },
        } } },
        "components": { "schemas": schemas },
    });
    let OpenApiTools { tools, skipped, .. } =
        OpenApi::new(&document.to_string(), "https://api.example", Api::default()).unwrap().build();
    assert!(skipped.is_empty(), "{skipped:?}");
    let (client, _) = client(tools, agreed());
    let tool = client.list_tools().await.unwrap().remove(0);
    serde_json::to_value(tool.input_schema).unwrap()
}

#[tokio::test]
async fn referenced_schemas_come_along() {
    let schemas = json!({
        "Node": {
            "type": "object",
            "properties": { "next": { "$ref": "#/components/schemas/Node" }, "name": { "$ref": "#/components/schemas/Name" } },
        },
        "Name": { "type": "string", "x-mcp-header": "Name" },
        "Unused": { "type": "string" },
    });
    let schema = schema_of("3.1.0", json!({ "$ref": "#/components/schemas/Node" }), schemas).await;
    assert_eq!(schema["properties"]["body"], json!({ "$ref": "#/$defs/Node" }));
    let next = json!({ "$ref": "#/$defs/Node" });
    assert_eq!(schema["$defs"]["Node"]["properties"]["next"], next);
    // The document does not decide which arguments proxies see.
    assert_eq!(schema["$defs"]["Name"], json!({ "type": "string" }));
    assert_eq!(schema["$defs"].as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn schemas_of_version_3_0_become_json_schema() {
    for (before, after) in [
        (json!({ "type": "string", "nullable": true }), json!({ "type": ["string", "null"] })),
        (
            json!({ "type": "string", "enum": ["a"], "nullable": true }),
            json!({ "type": ["string", "null"], "enum": ["a", null] }),
        ),
        (json!({ "type": "string", "nullable": false }), json!({ "type": "string" })),
        (
            json!({ "type": "integer", "minimum": 1, "exclusiveMinimum": true }),
            json!({ "type": "integer", "exclusiveMinimum": 1 }),
        ),
        (
            json!({ "type": "integer", "maximum": 1, "exclusiveMaximum": false }),
            json!({ "type": "integer", "maximum": 1 }),
        ),
        (
            json!({ "allOf": [{ "type": "string" }], "nullable": true }),
            json!({ "anyOf": [{ "allOf": [{ "type": "string" }] }, { "type": "null" }] }),
        ),
        (
            json!({ "oneOf": [{ "type": "string" }], "nullable": true }),
            json!({ "anyOf": [{ "oneOf": [{ "type": "string" }] }, { "type": "null" }] }),
        ),
    ] {
        let schema = schema_of("3.0.3", before.clone(), json!({})).await;
        assert_eq!(schema["properties"]["body"], after, "{before}");
    }
}

#[tokio::test]
async fn properties_of_responses_are_left_out() {
    let id = json!({ "Id": { "type": "integer", "readOnly": true } });
    let reference = json!({ "$ref": "#/components/schemas/Id" });
    for (version, read_only) in [
        ("3.1.0", json!({ "type": "integer", "readOnly": true })),
        ("3.1.0", reference.clone()),
        ("3.0.3", json!({ "allOf": [reference], "nullable": true, "readOnly": true })),
    ] {
        let own = json!({
            "type": "object",
            "properties": { "id": read_only, "name": {} },
            "required": ["id", "name"],
        });
        let schema = schema_of(version, own, id.clone()).await;
        let body = json!({ "type": "object", "properties": { "name": {} }, "required": ["name"] });
        assert_eq!(schema["properties"]["body"], body);
        let beside = json!({
            "allOf": [{ "properties": { "id": read_only } }],
            "required": ["id"],
        });
        let schema = schema_of(version, beside, id.clone()).await;
        let body = json!({ "allOf": [{ "properties": {} }], "required": [] });
        assert_eq!(schema["properties"]["body"], body);
        // One part requires what another one declares; a nested object has an `id` of its own.
        let inner = json!({ "properties": { "id": {} }, "required": ["id"] });
        let apart = json!({ "allOf": [
            { "properties": { "id": read_only } },
            { "required": ["id", "name"], "properties": { "inner": inner } },
        ] });
        let schema = schema_of(version, apart, id.clone()).await;
        let body = json!({ "allOf": [
            { "properties": {} },
            { "required": ["name"], "properties": { "inner": inner } },
        ] });
        assert_eq!(schema["properties"]["body"], body);
    }
    // Also without `required`, and however the other part declares it.
    let apart = json!({ "allOf": [
        { "properties": { "id": { "readOnly": true } } },
        { "properties": { "id": { "type": "integer" }, "name": {} } },
    ] });
    let schema = schema_of("3.1.0", apart, json!({})).await;
    let body = json!({ "allOf": [{ "properties": {} }, { "properties": { "name": {} } }] });
    assert_eq!(schema["properties"]["body"], body);
    // The parts may be references.
    let named = json!({
        "Ids": { "properties": { "id": { "readOnly": true } } },
        "Named": { "properties": { "name": {} }, "required": ["id", "name"] },
    });
    let part = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let all = json!({ "allOf": [part("Ids"), part("Named")] });
    let schema = schema_of("3.1.0", all, named).await;
    let body = &schema["properties"]["body"]["allOf"];
    assert_eq!(body[0]["$ref"], "#/$defs/Ids");
    assert_eq!(body[1], json!({ "properties": { "name": {} }, "required": ["name"] }));
    let pet = json!({ "Id": { "properties": { "id": { "readOnly": true } } } });
    let referring = json!({ "$ref": "#/components/schemas/Id", "required": ["id", "name"] });
    let schema = schema_of("3.1.0", referring, pet).await;
    assert_eq!(schema["properties"]["body"]["required"], json!(["name"]));
}

/// Names may be those of keywords.
#[tokio::test]
async fn names_are_not_keywords() {
    let body = json!({
        "properties": { "example": {}, "$ref": {}, "xml": { "x-vendor": { "$ref": "/" } }, "enum": {} },
        "dependentRequired": { "example": ["xml"] },
    });
    let schema = schema_of("3.1.0", body.clone(), json!({})).await;
    let mut expected = body;
    expected["properties"]["xml"] = json!({});
    assert_eq!(schema["properties"]["body"], expected);
}
