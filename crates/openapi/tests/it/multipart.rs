//! Bodies that are forms with files.

use mrtr_schema::jsonrpc::ErrorObject;
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
            "note": { "type": "string" },
        },
    });
    let media = json!({ "schema": schema, "encoding": {
        "photo": { "contentType": "image/png, image/*" },
        "note": { "contentType": "text/markdown" },
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
    let text = match client.call_tool("upload", json!({ "body": body })).await {
        Ok(result) => result.text(),
        Err(error) => error.as_server_error().map(ErrorObject::to_string).unwrap(),
    };
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

#[tokio::test]
async fn fields_are_parts() {
    let body = json!({
        "photo": { "name": "a\"\r\nb.png", "blob": "aGVsbG8=" },
        "pages": [
            { "name": "1.html", "text": "<p>" },
            { "name": "2.html", "text": "\r\n--x", "mimeType": "text/html" },
        ],
        "note": "*new*",
        "more": [1, true, [2]],
        "meta": { "a": [1.50] },
    });
    let (text, question, sent) = call(body).await;
    let expected = "--boundary\r\n\
        Content-Disposition: form-data; name=\"meta\"\r\n\
        Content-Type: application/json\r\n\r\n\
        {\"a\":[1.5]}\r\n\
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
        Content-Disposition: form-data; name=\"note\"\r\n\
        Content-Type: text/markdown\r\n\r\n\
        *new*\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"pages\"; filename=\"1.html\"\r\n\
        Content-Type: text/plain;charset=utf-8\r\n\r\n\
        <p>\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"pages\"; filename=\"2.html\"\r\n\
        Content-Type: text/html\r\n\r\n\
        \r\n--x\r\n\
        --boundary\r\n\
        Content-Disposition: form-data; name=\"photo\"; filename=\"a%22%0D%0Ab.png\"\r\n\
        Content-Type: image/png\r\n\r\n\
        hello\r\n\
        --boundary--\r\n";
    assert_eq!(sent.as_deref(), Some(expected), "{text}");
    let photo = "\"photo\":{\"name\":\"a\\\"\\r\\nb.png\",\"blob\":\"aGVsbG8=\"}";
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
        let photo = json!({ "name": text, "text": text });
        client.call_tool("upload", json!({ "body": { "photo": photo } })).await.unwrap();
        let request = api.requests.lock().unwrap().pop().unwrap();
        let boundary =
            request.headers()["content-type"].to_str().unwrap().split_once('=').unwrap().1;
        let sent = String::from_utf8(request.body().to_vec()).unwrap();
        assert_eq!(sent.matches(boundary).count(), 2, "{sent}");
        text = sent;
    }
}

#[tokio::test]
async fn file_that_cannot_be_sent_is_an_error() {
    let file = |file: Value| json!({ "photo": file });
    for (body, why) in [
        (json!("photo"), "must be an object"),
        (file(json!("aGVsbG8=")), "is no file"),
        (file(json!({ "name": "a", "blob": "not base64" })), "is not base64"),
        (file(json!({ "name": "a" })), "either `text` or `blob`"),
        (file(json!({ "name": "a", "text": "", "blob": "" })), "either `text` or `blob`"),
        (
            file(json!({ "name": "a", "text": "", "mimeType": "text/plain" })),
            "must have a `mimeType` that the API accepts: image/png, image/*",
        ),
        (
            file(json!({ "name": "a", "text": "", "mimeType": "image/x\r\nX: y" })),
            "is no media type",
        ),
        (json!({ "photo": [], "many": vec![0; 257] }), "more than 256 parts"),
    ] {
        let (text, question, sent) = call(body).await;
        assert!(question.is_none() && sent.is_none(), "{text}");
        // With the feature `validate`, the server may refuse the arguments first.
        let is_refused = cfg!(feature = "validate") && text.contains("body");
        assert!(text.contains(why) || is_refused, "{text}");
    }
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

/// As with other media types, a body that cannot be sent is left out if it is optional.
#[test]
fn unsupported_encoding_concerns_only_operations_that_require_the_body() {
    let media = json!({ "encoding": { "a": { "style": "form" } } });
    let operation = |is_required: bool| {
        let content = json!({ "multipart/form-data": media });
        json!({ "post": { "requestBody": { "content": content, "required": is_required } } })
    };
    let paths = json!({ "/optional": operation(false), "/required": operation(true) });
    let built = openapi(&document(&paths), &Api::default()).build();
    let skipped: Vec<_> = built.skipped.iter().map(|skipped| &*skipped.reason).collect();
    let why = "the field \"a\" of the body: \"style\" is not supported in multipart/form-data";
    assert_eq!((built.tools.len(), skipped), (1, vec![why]));
}
