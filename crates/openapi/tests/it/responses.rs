//! Results of tools.

use bytes::Bytes;
use http::Response;
use mrtr_openapi::OpenApiTools;
use mrtr_schema::tool::CallToolResult;
use serde_json::{Value, json};

use super::{Api, agreed, client, document, openapi, tool_of};

async fn result_of(status: u16, kind: &str, body: &'static [u8]) -> CallToolResult {
    let api = Api::default();
    let answer = Response::builder().status(status).header("content-type", kind);
    *api.answer.lock().unwrap() = Some(answer.body(Bytes::from_static(body)).unwrap());
    let (client, _) = client(tool_of("get", "/x", json!({ "operationId": "op" }), &api), agreed());
    client.call_tool("op", json!({})).await.unwrap()
}

#[tokio::test]
async fn responses_become_results() {
    let object = result_of(200, "application/json; charset=utf-8", br#"{"a":[1]}"#).await;
    assert_eq!(object.structured_content, Some(json!({ "a": [1] })));
    assert_eq!(object.text(), r#"{"a":[1]}"#);
    let list = result_of(200, "application/json", b"[1]").await;
    assert_eq!((list.structured_content.clone(), list.text()), (None, "[1]".to_owned()));
    let deep = [["{\"a\":".repeat(126), "1".to_owned()].concat(), "}".repeat(126)].concat();
    let deep: &'static str = deep.leak();
    let result = result_of(200, "application/json", deep.as_bytes()).await;
    assert_eq!((result.structured_content.clone(), result.text()), (None, deep.to_owned()));
    let text = result_of(200, "text/plain", b"hello").await;
    assert_eq!(text.text(), "hello");
    // Such a key could hide a text that is nested without bound.
    let reserved = r#"{"a":{"$serde_json::private::RawValue":"[1]"}}"#;
    let result = result_of(200, "application/json", reserved.as_bytes()).await;
    assert_eq!((result.structured_content.clone(), result.text()), (None, reserved.to_owned()));
    let broken = result_of(200, "application/json", b"{").await;
    assert_eq!((broken.structured_content.clone(), broken.text()), (None, "{".to_owned()));
    let binary = result_of(200, "image/png", b"\x89PNG").await;
    assert_eq!(binary.text(), "The API answered 200 OK, with 4 bytes of image/png.");
    let empty = result_of(204, "text/plain", b"").await;
    assert_eq!(empty.text(), "The API answered 204 No Content.");
    let missing = result_of(404, "application/json", br#"{"error":"no such thing"}"#).await;
    assert!(missing.is_error);
    assert_eq!(missing.text(), r#"The API answered 404 Not Found. {"error":"no such thing"}"#);
}

#[tokio::test]
async fn response_beyond_the_limit_fails() {
    let api = Api::default();
    let paths = json!({ "/x": { "get": { "operationId": "op" } } });
    let OpenApiTools { tools, .. } =
        openapi(&document(&paths), &api).max_response_bytes(10).build();
    let (client, _) = client(tools, agreed());
    let result = client.call_tool("op", json!({})).await.unwrap();
    assert!(result.is_error && result.text().contains("too large"), "{}", result.text());
}

/// A response with the operation's tool, which has an output schema if the document has a usable
/// one.
async fn result_with_schema(
    responses: &Value,
    answer: (u16, &str, &'static str),
) -> (Option<Value>, CallToolResult) {
    let api = Api::default();
    let (status, kind, body) = answer;
    let answer = Response::builder().status(status).header("content-type", kind);
    *api.answer.lock().unwrap() = Some(answer.body(Bytes::from_static(body.as_bytes())).unwrap());
    let order = json!({
        "type": "object",
        "properties": {
            "id": { "type": "integer", "readOnly": true },
            "token": { "type": "string", "writeOnly": true },
            "next": { "$ref": "#/components/schemas/Order" },
        },
        "required": ["id", "token"],
    });
    let document = json!({
        "openapi": "3.1.0",
        "paths": { "/x": { "get": { "operationId": "op", "responses": responses } } },
        "components": {
            "schemas": { "Order": order },
            "responses": { "Empty": { "description": "" } },
        },
    });
    let openapi = openapi(&document.to_string(), &api).output_schema_when(|_| true);
    let OpenApiTools { tools, skipped, .. } = openapi.build();
    assert!(skipped.is_empty(), "{skipped:?}");
    let (client, _) = client(tools, agreed());
    let schema = client.list_tools().await.unwrap().remove(0).output_schema.map(Value::Object);
    (schema, client.call_tool("op", json!({})).await.unwrap())
}

fn order() -> Value {
    json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Order" } } } })
}

const JSON: &str = "application/json";

#[tokio::test]
async fn output_schema_is_that_of_the_responses() {
    let body = r#"{"id":1,"next":{"id":2}}"#;
    let (schema, result) =
        result_with_schema(&json!({ "200": order(), "default": {} }), (200, JSON, body)).await;
    let schema = schema.unwrap();
    // What only requests have is left out, and a reference at the top is followed.
    assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["id"])));
    assert_eq!(schema["properties"].as_object().unwrap().len(), 2);
    assert_eq!(schema["$defs"]["Order"]["properties"]["next"]["$ref"], "#/$defs/Order");
    assert_eq!(result.structured_content.unwrap()["next"], json!({ "id": 2 }));

    let list = json!({ "content": { "application/json": { "schema": {
        "type": "array", "items": { "$ref": "#/components/schemas/Order" },
    } } } });
    let (schema, result) =
        result_with_schema(&json!({ "2XX": list, "404": {} }), (200, JSON, r#"[{"id":1}]"#)).await;
    assert_eq!(schema.unwrap()["type"], "array");
    assert_eq!(result.structured_content, Some(json!([{ "id": 1 }])));

    if cfg!(feature = "validate") {
        let pattern = json!({ "content": { "application/json": { "schema": {
            "type": "string", "pattern": "\\p{L}{200}",
        } } } });
        let (schema, _) = result_with_schema(&json!({ "200": pattern }), (200, JSON, "1")).await;
        assert_eq!(schema.unwrap(), json!({ "type": "string" }), "the pattern is too large");
    }

    let responses = json!({ "200": order(), "202": list });
    let (schema, result) = result_with_schema(&responses, (202, JSON, "[]")).await;
    assert_eq!(schema.unwrap()["anyOf"].as_array().unwrap().len(), 2);
    assert_eq!(result.structured_content, Some(json!([])));
}

#[tokio::test]
async fn operation_with_other_responses_has_no_output_schema() {
    let empty = json!({ "$ref": "#/components/responses/Empty" });
    let lost = json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Lost" } } } });
    for responses in [json!({}), json!({ "200": order(), "204": empty }), json!({ "200": lost })] {
        let (schema, result) = result_with_schema(&responses, (204, JSON, "")).await;
        assert_eq!(schema, None, "{responses}");
        assert!(!result.is_error, "{responses}");
    }
}

/// The request was carried out, so its response must not be lost.
#[tokio::test]
async fn response_that_does_not_match_the_output_schema_reaches_the_model() {
    let responses = json!({ "200": order() });
    for (kind, body) in
        [(JSON, r#"{"id":"A-1"}"#), (JSON, "[]"), ("text/plain", "done"), (JSON, "")]
    {
        // Without the feature, only what is not JSON is found.
        if cfg!(not(feature = "validate")) && kind == JSON && !body.is_empty() {
            continue;
        }
        let (_, result) = result_with_schema(&responses, (200, kind, body)).await;
        assert!(result.is_error && result.structured_content.is_none(), "{body}");
        let text = result.text();
        assert!(text.contains("carried out the request") && text.contains(body), "{text}");
    }
}
