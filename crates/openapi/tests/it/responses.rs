//! Results of tools.

use bytes::Bytes;
use http::Response;
use mrtr_openapi::OpenApiTools;
use mrtr_schema::tool::CallToolResult;
use serde_json::json;

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
    let text = result_of(200, "text/plain", b"hello").await;
    assert_eq!(text.text(), "hello");
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
