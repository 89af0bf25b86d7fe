//! Bodies that are HTML forms.

use serde_json::{Value, json};

use super::{Api, agreed, client, tool_of};

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
        (json!({}), json!({ "b": "a b&c=d", "a": 12.5, "c": null }), "a=12.5&b=a%20b%26c%3Dd&c="),
        (json!({}), json!({ "ids": [1, 2], "none": [] }), "ids=1&ids=2"),
        (json!({}), json!({ "filter": { "a": [1] } }), "filter=%7B%22a%22%3A%5B1%5D%7D"),
        (deep, json!({ "address": { "city": "Bern" } }), "address%5Bcity%5D=Bern"),
        (joined, json!({ "ids": ["a", "b,c"] }), "ids=a,b%2Cc"),
        (as_json, json!({ "ids": [1] }), "ids=%5B1%5D"),
    ] {
        let (_, _, sent) = call(encoding, body.clone()).await;
        assert_eq!(sent.as_deref(), Some(expected), "{body}");
    }
}

/// The user sees what is sent, and no value looks like another field.
#[tokio::test]
async fn form_is_shown_to_the_user() {
    let body = json!({
        "amount": 5,
        "name = x\nto": "y\namount = 1",
        "note": "n".repeat(201),
    });
    let (_, question, sent) = call(json!({}), body).await;
    let lines = "amount = 5\nname%20%3D%20x%0Ato = y\\u{a}amount = 1\nnote = ";
    let expected = format!(
        "Send this request to api.example?\n\nPOST /v1/x\n\n{lines}{} (cut; 201 characters)",
        "n".repeat(200)
    );
    assert_eq!(question, Some(expected));
    assert!(sent.is_some());
}

#[tokio::test]
async fn body_that_is_not_a_form_is_not_sent() {
    let exploded = json!({ "x": { "style": "form", "explode": true } });
    for (encoding, body, why) in [
        (json!({}), json!([1]), "must be an object"),
        (json!({}), json!("a=b"), "must be an object"),
        (json!({}), json!({ "a": [[1]] }), "nested arrays or objects"),
        (exploded, json!({ "x": { "user": "root" }, "user": "me" }), "another field"),
    ] {
        let (text, question, sent) = call(encoding, body).await;
        assert!(text.contains(why) && question.is_none() && sent.is_none(), "{text}");
    }
}
