//! Bodies that are forms.

use serde_json::{Value, json};

use super::{Api, agreed, client, document, openapi, tool_of};

/// Calls an operation whose body is a form with this encoding. Returns the result's text, the
/// question, and the body that was sent.
async fn call(encoding: Value, body: Value) -> (String, Option<String>, Option<String>) {
    let api = Api::default();
    let form = json!({ "application/x-www-form-urlencoded": { "encoding": encoding } });
    let operation = json!({ "operationId": "op", "requestBody": { "content": form } });
    let (client, asked) = client(tool_of("post", "/x", operation, &api), agreed());
    let result = client.call_tool("op", json!({ "body": body })).await.unwrap();
    let sent = api.requests.lock().unwrap().pop();
    let sent = sent.map(|request| {
        assert_eq!(request.headers()["content-type"], "application/x-www-form-urlencoded");
        String::from_utf8(request.body().to_vec()).unwrap()
    });
    assert_eq!(result.is_error, sent.is_none(), "{}", result.text());
    let question = asked.lock().unwrap().pop();
    (result.text(), question, sent)
}

#[tokio::test]
async fn fields_are_written_in_their_styles() {
    let deep = json!({ "address": { "style": "deepObject", "explode": true } });
    let joined = json!({ "ids": { "style": "form", "explode": false } });
    let as_json = json!({ "ids": { "contentType": "application/json" } });
    for (encoding, body, expected) in [
        (json!({}), json!({ "b": "a b&c=d", "a": 12.5, "c": null }), "b=a%20b%26c%3Dd&a=12.5"),
        (json!({}), json!({ "ids": [1, 2], "none": [] }), "ids=1&ids=2"),
        (json!({}), json!({ "filter": { "a": [1] } }), "filter=%7B%22a%22%3A%5B1%5D%7D"),
        (
            deep,
            json!({ "address": { "city": "Bern", "lines": ["a", { "b": 1 }] } }),
            "address%5Bcity%5D=Bern&address%5Blines%5D%5B0%5D=a&address%5Blines%5D%5B1%5D%5Bb%5D=1",
        ),
        (json!({ "a": { "contentType": "text/plain" } }), json!({ "a": {} }), "a=%7B%7D"),
        (joined, json!({ "ids": ["a", "b,c"] }), "ids=a,b%2Cc"),
        (as_json, json!({ "ids": [1] }), "ids=%5B1%5D"),
    ] {
        let (_, _, sent) = call(encoding, body.clone()).await;
        assert_eq!(sent.as_deref(), Some(expected), "{body}");
    }
}

/// The user sees all fields and their structure, and no value looks like another field.
#[tokio::test]
async fn form_is_shown_to_the_user_as_json() {
    let body = json!({
        "transfer": { "memo": "x".repeat(300), "to": "attacker" },
        "ids": (0..100).collect::<Vec<_>>(),
        "note": "y\namount = 1",
        "not sent": null,
        "json": null,
    });
    let encoding = json!({
        "ids": { "explode": false }, "json": { "contentType": "application/json" },
    });
    let (_, question, sent) = call(encoding, body).await;
    let ids: Vec<_> = (0..100).map(|id| id.to_string()).collect();
    let expected = format!(
        "Send this request to api.example?\n\nPOST /v1/x\n\n\
         {{\"transfer\":{{\"memo\":\"{}\" (cut; 300 characters),\"to\":\"attacker\"}},\
         \"ids\":[{}],\"note\":\"y\\namount = 1\",\"json\":null}}",
        "x".repeat(200),
        ids.join(",")
    );
    assert_eq!(question, Some(expected));
    assert!(sent.unwrap().ends_with("&note=y%0Aamount%20%3D%201&json=null"));
}

#[tokio::test]
async fn body_that_is_not_a_form_is_not_sent() {
    let exploded = json!({ "x": { "style": "form", "explode": true } });
    let deep = json!({ "x": { "style": "deepObject" } });
    for (encoding, body, why) in [
        (json!({}), json!([1]), "the argument \"body\" must be an object"),
        (json!({}), json!("a=b"), "must be an object"),
        (json!({}), json!({ "a": [[1]] }), "nested arrays or objects"),
        (exploded, json!({ "x": { "user": "root" } }), "its field \"x\" must not be an object"),
        (deep, json!({ "x": 1 }), "its field \"x\" must be an object or an array"),
    ] {
        let (text, question, sent) = call(encoding, body).await;
        assert!(text.contains(why) && question.is_none() && sent.is_none(), "{text}");
    }
}

/// As with other media types, a body that cannot be sent is left out if it is optional.
#[test]
fn unsupported_encoding_concerns_only_operations_that_require_the_body() {
    let encoding = json!({ "a": { "style": "pipeDelimited", "explode": true } });
    let content = json!({ "application/x-www-form-urlencoded": { "encoding": encoding } });
    let operation = |is_required: bool| json!({ "post": { "requestBody": { "content": content, "required": is_required } } });
    let paths = json!({ "/optional": operation(false), "/required": operation(true) });
    let built = openapi(&document(&paths), &Api::default()).build();
    let skipped: Vec<_> = built.skipped.iter().map(|skipped| &*skipped.reason).collect();
    let why =
        "the field \"a\" of the body: style \"pipeDelimited\" with explode=true is not supported";
    assert_eq!((built.tools.len(), skipped), (1, vec![why]));
}

/// Names are repeated for each value below them, so that a short body could make a form of any
/// length.
#[tokio::test]
async fn length_of_a_form_is_limited() {
    let name = "n".repeat(10_000);
    let many: Vec<_> = (0..10_000).collect();
    // Of empty arrays, nothing is sent, but each has a name.
    let empty = vec![json!([]); 10_000];
    for body in [
        json!({ &name: many }),
        json!({ "deep": { &name: many } }),
        json!({ "deep": { &name: empty } }),
    ] {
        let encoding = json!({ "deep": { "style": "deepObject" } });
        let (text, question, sent) = call(encoding, body).await;
        assert!(text.contains("makes a request of more than 1048576 bytes"), "{text:.200}");
        assert!(question.is_none() && sent.is_none());
    }
}
