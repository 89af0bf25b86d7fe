//! Bodies that are forms with files.

use mrtr_server::Tool;
use serde_json::{Value, json};

use super::{Api, agreed, client, document, openapi, tool_of};

/// An operation with files and other fields.
fn operation() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["photo"],
        "properties": {
            "photo": { "$ref": "#/paths/~1upload/post/x-photo" },
            "pages": { "type": "array", "items": { "contentMediaType": "text/html" } },
            "scan": { "type": "string", "format": "binary" },
            "note": { "type": "string" },
        },
    });
    let media = json!({ "schema": schema, "encoding": {
        "photo": { "contentType": "image/png, image/*" },
        "scan": { "contentType": "image/*" },
        "note": { "contentType": "text/markdown" },
        "as-json": { "contentType": "application/json" },
    } });
    json!({
        "operationId": "upload",
        "x-photo": { "type": "string", "format": "binary", "description": "A photo" },
        "requestBody": { "required": true, "content": { "multipart/form-data": media } },
    })
}

/// Calls the operation. Returns the result's text, the question, and the body that was sent, with
/// the boundary replaced.
async fn call(body: Value) -> (String, Option<String>, Option<String>) {
    let api = Api::default();
    let (client, asked) = client(tool_of("post", "/upload", operation(), &api), agreed());
    let text = client.call_tool("upload", json!({ "body": body })).await.unwrap().text();
    let sent = api.requests.lock().unwrap().pop();
    let sent = sent.map(|request| {
        let content_type = request.headers()["content-type"].to_str().unwrap();
        let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
        assert!(boundary.len() == 32, "{boundary}");
        String::from_utf8(request.body().to_vec()).unwrap().replace(boundary, "boundary")
    });
    let question = asked.lock().unwrap().pop();
    (text, question, sent)
}

/// As the generators of some frameworks write forms with several parts.
#[tokio::test]
async fn files_in_parts_of_the_schema_are_files() {
    let file = json!({ "properties": { "file": { "type": "string", "format": "binary" } } });
    let tags = json!({ "properties": { "tags": { "type": "string" } } });
    let note =
        json!({ "properties": { "note": { "type": "string", "title": "x".repeat(40_000) } } });
    let part = json!({ "$ref": "#/paths/~1upload/post/x-part" });
    let schema = json!({ "allOf": [{ "allOf": [part] }, tags, note] });
    let operation = json!({ "operationId": "upload", "x-part": file, "requestBody": {
        "required": true, "content": { "multipart/form-data": { "schema": schema } },
    } });
    let api = Api::default();
    let (client, _) = client(tool_of("post", "/upload", operation, &api), agreed());
    let body = json!({ "file": { "name": "a.txt", "text": "hello" }, "tags": "x" });
    let result = client.call_tool("upload", json!({ "body": body })).await.unwrap();
    assert!(!result.is_error, "{}", result.text());
    let request = api.requests.lock().unwrap().pop().unwrap();
    let sent = String::from_utf8(request.body().to_vec()).unwrap();
    assert!(sent.contains("name=\"file\"; filename=\"a.txt\""), "{sent}");
    assert!(sent.contains("name=\"tags\"\r\n\r\nx"), "{sent}");
}

#[tokio::test]
async fn fields_are_parts() {
    let body = json!({
        "photo": { "name": "a\"b.png", "blob": "aGVsbG8=" },
        "pages": [
            { "name": "1.html", "text": "<p>" },
            { "name": "2.html", "text": "\r\n--x", "mimeType": "text/html" },
        ],
        "note": "*new*",
        "more": [1, true, [2]],
        "meta": { "a": [1.50] },
        "none": null,
        "as-json": "text",
    });
    let (text, question, sent) = call(body).await;
    let expected = "--boundary\r\n\
        Content-Disposition: form-data; name=\"photo\"; filename=\"a%22b.png\"\r\n\
        Content-Type: image/png\r\n\r\n\
        hello\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"pages\"; filename=\"1.html\"\r\n\
        Content-Type: text/plain;charset=utf-8\r\n\r\n\
        <p>\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"pages\"; filename=\"2.html\"\r\n\
        Content-Type: text/html\r\n\r\n\
        \r\n--x\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"note\"\r\n\
        Content-Type: text/markdown\r\n\r\n\
        *new*\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"more\"\r\n\r\n\
        1\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"more\"\r\n\r\n\
        true\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"more\"\r\n\
        Content-Type: application/json\r\n\r\n\
        [2]\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"meta\"\r\n\
        Content-Type: application/json\r\n\r\n\
        {\"a\":[1.5]}\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"as-json\"\r\n\
        Content-Type: application/json\r\n\r\n\
        \"text\"\r\n\
        --boundary--\r\n";
    assert_eq!(sent.as_deref(), Some(expected), "{text}");
    let photo = "\"photo\":{\"name\":\"a\\\"b.png\",\"blob\":\"aGVsbG8=\"}";
    let question = question.unwrap();
    assert!(question.contains(photo), "{question}");
}

/// A file with the boundary of an earlier request looks like the end of its part.
#[tokio::test]
async fn no_part_contains_the_boundary() {
    let api = Api::default();
    let (client, _) = client(tool_of("post", "/upload", operation(), &api), agreed());
    let mut text = "hello".to_owned();
    for _ in 0..3 {
        let photo = json!({ "name": "a", "text": text });
        client.call_tool("upload", json!({ "body": { "photo": photo } })).await.unwrap();
        let request = api.requests.lock().unwrap().pop().unwrap();
        let boundary =
            request.headers()["content-type"].to_str().unwrap().split_once('=').unwrap().1;
        let sent = String::from_utf8(request.body().to_vec()).unwrap();
        assert_eq!(sent.matches(boundary).count(), 2, "{sent}");
        text = sent;
    }
}

/// The server checks arguments before the handler does, if it is built with `validate`.
#[tokio::test]
async fn file_that_cannot_be_sent_is_an_error() {
    let file = |file: Value| json!({ "photo": file });
    let long = "n".repeat(4_200);
    for (body, why) in [
        (json!("photo"), "must be an object"),
        (file(json!("aGVsbG8=")), "is not a file"),
        (file(json!({ "name": "a", "blob": "not base64" })), "is not base64"),
        (file(json!({ "name": "a" })), "either `text` or `blob`"),
        (file(json!({ "name": "a", "text": "", "blob": "" })), "either `text` or `blob`"),
        (
            file(json!({ "name": "a", "text": "", "mimeType": "text/plain" })),
            "must have a `mimeType` that the API accepts: image/png, image/*",
        ),
        (
            file(json!({ "name": "a", "text": "", "mimeType": "image/x\r\nX: y" })),
            "is not a media type",
        ),
        (
            json!({ "photo": [], "scan": { "name": "a", "blob": "" } }),
            "must have a `mimeType` that the API accepts: image/*",
        ),
        (file(json!({ "name": "a\r\nX: y", "text": "" })), "control characters or backslashes"),
        (file(json!({ "name": "a\\", "text": "" })), "control characters or backslashes"),
        (
            json!({ "note": {} }),
            "cannot be an object or a nested array: the API expects text/markdown",
        ),
        (json!({ "photo": [], "many": vec![0; 257] }), "more than 256 parts"),
        (json!({ &long: vec![0; 256] }), "more than 1048576 bytes of headers"),
    ] {
        let api = Api::default();
        let tools = tool_of("post", "/upload", operation(), &api);
        let tools = tools.into_iter().map(Tool::skip_validation).collect();
        let (client, asked) = client(tools, agreed());
        let result = client.call_tool("upload", json!({ "body": body })).await.unwrap();
        assert!(result.text().contains(why), "{}", result.text());
        assert!(asked.lock().unwrap().is_empty() && api.requests.lock().unwrap().is_empty());
    }
}

/// Generators of documents write optional files and lists in several ways.
#[tokio::test]
async fn files_are_found_behind_compositions() {
    let file = json!({ "type": "string", "format": "binary" });
    let files =
        json!({ "type": "array", "items": { "$ref": "#/components/schemas/F" }, "minItems": 1 });
    let none = json!({ "type": "null" });
    let properties = json!({
        "a": { "anyOf": [file, none], "title": "A" },
        "b": { "allOf": [{ "$ref": "#/components/schemas/F" }] },
        "c": { "oneOf": [none, files] },
        "raw": { "contentMediaType": "text/html" },
        "typed": { "type": "string", "contentMediaType": "application/octet-stream" },
        "read": { "$ref": "#/components/schemas/F", "readOnly": true },
        "text": { "type": "string", "contentMediaType": "text/markdown" },
        "json": { "type": "string", "contentMediaType": "application/json", "contentSchema": {} },
        "encoded": { "type": "string", "contentMediaType": "image/png", "contentEncoding": "base64" },
        "mixed": { "anyOf": [file, { "type": "integer" }] },
    });
    let form = json!({
        "type": "object", "properties": properties, "required": ["a"], "minProperties": 1,
    });
    let schema = json!({
        "$ref": "#/components/schemas/Form",
        "required": ["b", "a"],
        "minProperties": 2,
        "properties": { "more": { "$ref": "#/components/schemas/F" } },
    });
    let operation = json!({ "operationId": "op", "requestBody": { "content": {
        "multipart/form-data": { "schema": schema },
    } } });
    let document = json!({
        "openapi": "3.1.0",
        "paths": { "/x": { "post": operation } },
        "components": { "schemas": { "F": file, "Form": form } },
    });
    let tools = openapi(&document.to_string(), &Api::default()).build().tools;
    let tool = client(tools, agreed()).0.list_tools().await.unwrap().remove(0);
    let schema = serde_json::to_value(&tool.input_schema).unwrap();
    let body = &schema["properties"]["body"];
    assert_eq!(body["required"], json!(["a", "b"]));
    assert_eq!(
        (&body["minProperties"], &body["allOf"]),
        (&json!(1), &json!([{ "minProperties": 2 }]))
    );
    let properties = body["properties"].as_object().unwrap();
    let is_file = |schema: &Value| schema["properties"]["blob"].is_object();
    let files: Vec<_> =
        properties.iter().filter(|(_, s)| is_file(s)).map(|(name, _)| name).collect();
    assert_eq!(files, ["a", "b", "raw", "typed", "more"]);
    assert_eq!(properties["a"]["title"], "A");
    assert!(is_file(&properties["c"]["items"]) && properties["c"]["minItems"] == 1);
    assert!(!properties.contains_key("read"), "it is for responses");
}

/// A short document may refer to the same long one many times.
#[test]
fn references_to_a_long_file_schema_are_not_copied_without_end() {
    let file = json!({ "type": "string", "format": "binary", "description": "x".repeat(60_000) });
    let properties: serde_json::Map<_, _> = (0..1_000)
        .map(|n| (format!("p{n}"), json!({ "$ref": "#/components/schemas/F" })))
        .collect();
    let media = json!({ "schema": { "type": "object", "properties": properties } });
    let operation = json!({ "requestBody": { "content": { "multipart/form-data": media } } });
    let document = json!({
        "openapi": "3.1.0",
        "paths": { "/x": { "post": operation } },
        "components": { "schemas": { "F": file } },
    });
    let built = openapi(&document.to_string(), &Api::default()).build();
    assert!(built.tools.is_empty());
    assert_eq!(built.skipped[0].reason, "the input schema has more than 65536 bytes");
}

#[tokio::test]
async fn files_are_objects_in_the_arguments() {
    let tools = tool_of("post", "/upload", operation(), &Api::default());
    let tool = client(tools, agreed()).0.list_tools().await.unwrap().remove(0);
    let schema = serde_json::to_value(&tool.input_schema).unwrap();
    let body = &schema["properties"]["body"];
    assert_eq!(body["required"], json!(["photo"]));
    assert_eq!(body["properties"]["note"], json!({ "type": "string" }));
    let photo = &body["properties"]["photo"];
    assert_eq!((&photo["type"], &photo["description"]), (&json!("object"), &json!("A photo")));
    assert_eq!(photo["properties"]["blob"]["contentEncoding"], "base64");
    assert_eq!(body["properties"]["pages"]["items"]["required"], json!(["name"]));
}

/// As with other media types, a body that cannot be sent is left out if it is optional. In OpenAPI
/// 3.0, `style` has no effect, and generators write it.
#[test]
fn unsupported_encoding_concerns_only_operations_that_require_the_body() {
    let media =
        |encoding: Value| json!({ "multipart/form-data": { "encoding": { "a": encoding } } });
    let operation = |encoding: Value, is_required: bool| json!({ "post": { "requestBody": { "content": media(encoding), "required": is_required } } });
    let paths = json!({
        "/form": operation(json!({ "style": "form", "explode": true }), true),
        "/optional": operation(json!({ "style": "deepObject" }), false),
        "/required": operation(json!({ "explode": false }), true),
        "/invalid": operation(json!({ "contentType": "text" }), true),
    });
    for (version, expected) in [
        ("3.1.0", &[STYLE, "the field \"a\" of the body: the media type \"text\" is invalid"][..]),
        ("3.0.3", &["the field \"a\" of the body: the media type \"text\" is invalid"]),
    ] {
        let document = document(&paths).replace("3.1.0", version);
        let built = openapi(&document, &Api::default()).build();
        let skipped: Vec<_> = built.skipped.iter().map(|skipped| &*skipped.reason).collect();
        assert_eq!(skipped, expected, "{version}");
    }
}

const STYLE: &str = "the field \"a\" of the body: only style \"form\" with explode=true is supported \
                     in multipart/form-data";
