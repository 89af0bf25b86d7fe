//! Requests of calls.

use mrtr_openapi::OpenApiTools;
use mrtr_schema::elicitation::ElicitResult;
use serde_json::{Value, json};

use super::{Api, agreed, client, document, openapi, tool_of};

/// Calls the only tool of an operation with these parameters, and returns the request.
async fn sent(path: &str, parameters: Value, arguments: Value) -> String {
    let api = Api::default();
    let operation = json!({ "operationId": "op", "parameters": parameters });
    let (client, _) = client(tool_of("get", path, operation, &api), agreed());
    let result = client.call_tool("op", arguments).await.unwrap();
    assert!(!result.is_error, "{}", result.text());
    api.lines().pop().unwrap()
}

#[tokio::test]
async fn parameters_are_written_in_their_styles() {
    let integers = json!({ "type": "array", "items": { "type": "integer" } });
    let query = |extra: Value| {
        let mut parameter = json!({ "name": "q", "in": "query" });
        parameter.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!([parameter])
    };
    for (parameters, arguments, expected) in [
        (query(json!({})), json!({ "q": "a b&c=d" }), "?q=a%20b%26c%3Dd"),
        (query(json!({})), json!({}), ""),
        (
            query(json!({})),
            json!({ "q": 12_345_678_901_234_567_890_u64 }),
            "?q=12345678901234567890",
        ),
        (query(json!({ "schema": integers })), json!({ "q": [1, 2] }), "?q=1&q=2"),
        (query(json!({ "explode": false })), json!({ "q": ["a", "b,c"] }), "?q=a,b%2Cc"),
        (query(json!({ "explode": false })), json!({ "q": ["", "a"] }), "?q=,a"),
        (query(json!({ "content": { "text/plain": {} } })), json!({ "q": "a" }), "?q=a"),
        (
            query(json!({ "style": "pipeDelimited", "explode": false })),
            json!({ "q": ["a", "b"] }),
            "?q=a%7Cb",
        ),
        (
            query(json!({ "style": "pipeDelimited", "explode": false })),
            json!({ "q": { "R": 100, "G": 200 } }),
            "?q=G%7C200%7CR%7C100",
        ),
        (
            query(json!({ "style": "spaceDelimited", "explode": false })),
            json!({ "q": { "R": 100, "G": 200 } }),
            "?q=G%20200%20R%20100",
        ),
        (
            query(json!({ "style": "deepObject" })),
            json!({ "q": { "min": 1, "max": 2 } }),
            "?q%5Bmax%5D=2&q%5Bmin%5D=1",
        ),
        (query(json!({})), json!({ "q": { "b": 2, "a": 1 } }), "?a=1&b=2"),
        (
            query(json!({ "content": { "application/json": {} } })),
            json!({ "q": { "a": [1] } }),
            "?q=%7B%22a%22%3A%5B1%5D%7D",
        ),
    ] {
        let line = sent("/things", parameters, arguments.clone()).await;
        assert_eq!(line, format!("GET https://api.example/v1/things{expected}"), "{arguments}");
    }
    let path = json!([{ "name": "id", "in": "path", "required": true }]);
    let line = sent("/things/{id}/x", path.clone(), json!({ "id": "a/b?c" })).await;
    assert_eq!(line, "GET https://api.example/v1/things/a%2Fb%3Fc/x");
    let line = sent("/things/{id}", path, json!({ "id": ["a", "b"] })).await;
    assert_eq!(line, "GET https://api.example/v1/things/a,b");
}

/// The examples of OpenAPI 3.1, section 4.8.12.4.
#[tokio::test]
async fn paths_have_labels_and_matrix_parameters() {
    let (text, list) = (json!("blue"), json!(["blue", "black"]));
    let object = json!({ "R": 100, "G": 200 });
    for (style, explode, value, expected) in [
        ("label", false, &text, ".blue"),
        ("label", false, &list, ".blue,black"),
        ("label", false, &object, ".G,200,R,100"),
        ("label", true, &list, ".blue.black"),
        ("label", true, &object, ".G=200.R=100"),
        ("matrix", false, &text, ";color=blue"),
        ("matrix", false, &list, ";color=blue,black"),
        ("matrix", false, &object, ";color=G,200,R,100"),
        ("matrix", true, &text, ";color=blue"),
        ("matrix", true, &list, ";color=blue;color=black"),
        ("matrix", true, &object, ";G=200;R=100"),
        ("matrix", false, &json!("a;b=c/d"), ";color=a%3Bb%3Dc%2Fd"),
    ] {
        let parameter = json!({
            "name": "color", "in": "path", "required": true, "style": style, "explode": explode,
        });
        let arguments = json!({ "color": value });
        let line = sent("/things/{color}", json!([parameter]), arguments).await;
        assert_eq!(line, format!("GET https://api.example/v1/things/{expected}"));
    }
}

/// A model that was misled must not reach other resources than those of the operation.
#[tokio::test]
async fn arguments_cannot_leave_the_path() {
    let api = Api::default();
    let operation = json!({
        "operationId": "op",
        "parameters": [
            { "name": "id", "in": "path", "required": true },
            { "name": "kind", "in": "path", "required": true },
        ],
    });
    let tools = tool_of("get", "/things/{id}/{kind}.", operation, &api);
    let (client, _) = client(tools, agreed());
    for (id, kind) in [
        ("..", "x"),
        (".", "x"),
        ("", "x"),
        ("x", "."),
        ("../admin", "x"),
        ("a/../b", "x"),
        ("..\\admin", "x"),
        ("..;a", "x"),
    ] {
        let result = client.call_tool("op", json!({ "id": id, "kind": kind })).await.unwrap();
        assert!(result.is_error, "{id:?} {kind:?}");
    }
    // Not decoded a second time by the API.
    assert!(
        !client.call_tool("op", json!({ "id": "%2e%2e", "kind": "x" })).await.unwrap().is_error
    );
    assert_eq!(api.lines(), ["GET https://api.example/v1/things/%252e%252e/x."]);

    for style in ["label", "matrix"] {
        let parameter = json!({ "name": "id", "in": "path", "required": true, "style": style });
        let operation = json!({ "operationId": "op", "parameters": [parameter] });
        let (client, _) = self::client(tool_of("get", "/things/{id}", operation, &api), agreed());
        for id in [json!(""), json!([]), json!(["", ""])] {
            let result = client.call_tool("op", json!({ "id": id })).await.unwrap();
            assert!(result.is_error, "{style} {id}");
        }
        let result = client.call_tool("op", json!({ "id": "." })).await.unwrap();
        assert_eq!(result.is_error, style == "label");
    }
}

#[tokio::test]
async fn headers_of_the_protocol_are_not_for_the_model() {
    let api = Api::default();
    let header =
        |name: &str| json!({ "name": name, "in": "header", "schema": { "type": "string" } });
    let operation = json!({
        "operationId": "op",
        "parameters": [header("Host"), header("Authorization"), header("cookie"),
            header("Idempotency-Key"), header("X-HTTP-Method-Override"), header("x-trace"), header("X-Trace"),
            header("X-Forwarded-For"), header("x-real-ip"), header("Content-Encoding"), header("Origin")],
    });
    let (client, _) = client(tool_of("get", "/things", operation, &api), agreed());
    let tool = client.list_tools().await.unwrap().remove(0);
    let names: Vec<_> = tool.input_schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["X-Trace"]);
    client.call_tool("op", json!({ "X-Trace": "7" })).await.unwrap();
    let broken = client.call_tool("op", json!({ "X-Trace": "7\r\nHost: evil" })).await.unwrap();
    assert!(broken.is_error && broken.text().contains("X-Trace"), "{}", broken.text());
    let requests = api.requests.lock().unwrap();
    assert_eq!((requests.len(), &requests[0].headers()["x-trace"]), (1, &"7".parse().unwrap()));
}

/// The user sees what is sent, and nothing is sent without agreement.
#[tokio::test]
async fn unsafe_methods_need_the_agreement_of_the_user() {
    let body = json!({ "required": true, "content": { "application/json": {} } });
    for (answer, requests) in [
        (agreed(), 1),
        (ElicitResult::accept(json!({ "send": false })).unwrap(), 0),
        (ElicitResult::accept(json!({})).unwrap(), 0),
        (ElicitResult::decline(), 0),
        (ElicitResult::cancel(), 0),
    ] {
        let api = Api::default();
        let operation = json!({
            "operationId": "op",
            "parameters": [{ "name": "id", "in": "path", "required": true }],
            "requestBody": body,
        });
        let (client, asked) = client(tool_of("patch", "/things/{id}", operation, &api), answer);
        let arguments = json!({ "id": 7, "body": { "price": 1.50 } });
        let result = client.call_tool("op", arguments).await.unwrap();
        assert_eq!((api.lines().len(), result.is_error), (requests, requests == 0));
        let question = "Send this request to api.example?\n\nPATCH /v1/things/7\n\n{\"price\":1.5}";
        assert_eq!(*asked.lock().unwrap(), [question]);
        for request in api.requests.lock().unwrap().iter() {
            assert_eq!(request.body(), &br#"{"price":1.5}"#[..]);
            assert_eq!(request.headers()["content-type"], "application/json");
            assert!(request.headers()["idempotency-key"].len() > 20);
        }
    }
}

/// Those of POST and PATCH have it anyway.
#[tokio::test]
async fn request_that_declares_an_idempotency_key_has_one() {
    let key = json!({ "name": "Idempotency-Key", "in": "header", "required": true });
    for parameters in [json!([key]), json!([])] {
        let api = Api::default();
        let operation = json!({ "operationId": "op", "parameters": parameters });
        let (client, _) = client(tool_of("put", "/things", operation, &api), agreed());
        client.call_tool("op", json!({})).await.unwrap();
        let headers = api.requests.lock().unwrap()[0].headers().clone();
        assert_eq!(headers.contains_key("idempotency-key"), parameters != json!([]));
    }
}

/// Returns the question about a body, and what was sent.
async fn asked_about(body: Value) -> (Option<String>, Vec<String>) {
    let api = Api::default();
    let operation = json!({
        "operationId": "op",
        "requestBody": { "content": { "application/json": {} } },
    });
    let (client, asked) = client(tool_of("put", "/x", operation, &api), agreed());
    let result = client.call_tool("op", json!({ "body": body })).await.unwrap();
    assert_eq!(result.is_error, api.lines().is_empty(), "{}", result.text());
    let question = asked.lock().unwrap().pop();
    let sent = api.requests.lock().unwrap();
    (question, sent.iter().map(|r| String::from_utf8(r.body().to_vec()).unwrap()).collect())
}

/// What is cut off in the question is counted, and all members are shown.
#[tokio::test]
async fn long_body_is_shown_in_part() {
    let body = json!({ "note": "x\"".repeat(2_500), "amount": 1_000_000 });
    let (question, _) = asked_about(body).await;
    let end = "\" (cut; 7500 characters),\"amount\":1000000}";
    assert!(question.as_ref().unwrap().ends_with(end), "{question:?}");
    let many: Vec<_> = (0..2_000).collect();
    assert_eq!(asked_about(json!(many)).await, (None, Vec::new()));
}

/// A body that was shown in another form than it is sent would not be what the user approved.
#[tokio::test]
async fn body_is_shown_as_it_is_sent() {
    for body in [
        r#"{"a":123456789012345678901234567890,"b":0.1000000000000000055511151231257827}"#,
        // With `validate`, it is refused.
        #[cfg(not(feature = "validate"))]
        r#"{"$serde_json::private::RawValue":"{\"price\":1}","to":"attacker"}"#,
        r#"["\\","\"",1.50]"#,
    ] {
        let api = Api::default();
        let operation = json!({
            "operationId": "op",
            "requestBody": { "content": { "application/json": {} } },
        });
        let (client, asked) = client(tool_of("put", "/x", operation, &api), agreed());
        let arguments = format!(r#"{{"body":{body}}}"#);
        let arguments = serde_json::value::RawValue::from_string(arguments).unwrap();
        let result = client.call_tool("op", &*arguments).await.unwrap();
        assert!(!result.is_error, "{body}: {}", result.text());
        let asked = asked.lock().unwrap();
        assert!(asked[0].ends_with(&format!("\n\n{body}")), "{}", asked[0]);
        assert_eq!(api.requests.lock().unwrap()[0].body(), body.as_bytes());
    }
}

#[tokio::test]
async fn rules_of_the_operator_apply() {
    let api = Api::default();
    let paths = json!({
        "/public": { "get": { "operationId": "read" }, "post": { "operationId": "write" } },
        "/admin": { "get": { "operationId": "hidden", "tags": ["admin"] } },
    });
    let OpenApiTools { tools, .. } = openapi(&document(&paths), &api)
        .filter(|operation| operation.tags().all(|tag| tag != "admin"))
        .confirm_when(|_| false)
        .before_send(|cx, request| {
            assert!(cx.principal().is_none());
            request.headers_mut().insert("authorization", "Bearer of-the-gateway".parse().unwrap());
            Ok(())
        })
        .build();
    let (client, asked) = client(tools, agreed());
    let names: Vec<_> =
        client.list_tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(names, ["read", "write"]);
    client.call_tool("write", json!({})).await.unwrap();
    assert!(asked.lock().unwrap().is_empty());
    let requests = api.requests.lock().unwrap();
    assert_eq!(requests[0].headers()["authorization"], "Bearer of-the-gateway");
}

/// Text that shows otherwise than it is sent would deceive the user.
#[tokio::test]
async fn invisible_characters_are_shown() {
    let (question, _) = asked_about(json!("pay\u{202e}001\u{200b}\u{e0101}")).await;
    let end = "\"pay\\u{202e}001\\u{200b}\\u{e0101}\"";
    assert!(question.as_ref().unwrap().ends_with(end), "{question:?}");
}

/// A path can repeat a variable, and a style the name of a parameter.
#[tokio::test]
async fn length_of_a_path_is_limited() {
    let api = Api::default();
    let name = "n".repeat(1_000);
    let repeated = json!({ "operationId": "op", "parameters": [
        { "name": "a", "in": "path", "required": true },
    ] });
    let matrix = json!({ "operationId": "op", "parameters": [
        { "name": name, "in": "path", "required": true, "style": "matrix", "explode": true },
    ] });
    for (path, operation, arguments) in [
        ("/{a}".repeat(100), repeated, json!({ "a": "x".repeat(1_000) })),
        (format!("/{{{name}}}"), matrix, json!({ &name: vec![1; 100] })),
    ] {
        let (client, _) = client(tool_of("get", &path, operation, &api), agreed());
        let result = client.call_tool("op", arguments).await.unwrap();
        assert!(result.text().contains("more than 65536 bytes"), "{}", result.text());
    }
    assert!(api.lines().is_empty());
}

/// The names of members are names of parameters.
#[tokio::test]
async fn object_does_not_set_another_parameter() {
    let api = Api::default();
    let parameters = json!([{ "name": "q", "in": "query" }, { "name": "user", "in": "query" }]);
    let operation = json!({ "operationId": "op", "parameters": parameters });
    let (client, _) = client(tool_of("get", "/x", operation, &api), agreed());
    // Many servers read the second as a list with the name `user`.
    for name in ["user", "user[]"] {
        let arguments = json!({ "q": { name: "root" }, "user": "me" });
        let result = client.call_tool("op", arguments).await.unwrap();
        let text = result.text();
        assert!(result.is_error && text.contains("another parameter"), "{text}");
    }

    let parameters = json!([
        { "name": "q", "in": "query" },
        { "name": "filter", "in": "query", "style": "deepObject" },
    ]);
    let operation = json!({ "operationId": "op", "parameters": parameters });
    let (client, _) = self::client(tool_of("get", "/x", operation, &api), agreed());
    let result = client.call_tool("op", json!({ "q": { "filter[admin]": "1" } })).await.unwrap();
    assert!(result.is_error && result.text().contains("another parameter"), "{}", result.text());
    assert!(api.lines().is_empty());
    let arguments = json!({ "q": { "a": "1" }, "filter": { "admin": 0 } });
    assert!(!client.call_tool("op", arguments).await.unwrap().is_error);
    assert_eq!(api.lines(), ["GET https://api.example/v1/x?a=1&filter%5Badmin%5D=0"]);
}

/// The operator adds the keys, and some servers take the first of two.
#[tokio::test]
async fn credentials_of_the_document_are_not_for_the_model() {
    let api = Api::default();
    let mut document: Value = serde_json::from_str(&document(&json!({ "/x": { "get": {
        "operationId": "op",
        "parameters": [
            { "name": "key", "in": "query", "required": true },
            { "name": "X-Key", "in": "header", "required": true },
            { "name": "q", "in": "query" },
        ],
    } } })))
    .unwrap();
    document["components"]["securitySchemes"] = json!({
        "a": { "type": "apiKey", "in": "query", "name": "key" },
        "b": { "type": "apiKey", "in": "header", "name": "x-key" },
        "c": { "$ref": "#/components/securitySchemes/a" },
    });
    let OpenApiTools { tools, .. } = openapi(&document.to_string(), &api).build();
    let (client, _) = client(tools, agreed());
    let tool = client.list_tools().await.unwrap().remove(0);
    let names: Vec<_> = tool.input_schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["q"]);
    for name in ["key", "key[]"] {
        let arguments = json!({ "q": { name: "another" } });
        let result = client.call_tool("op", arguments).await.unwrap();
        assert!(result.is_error && result.text().contains("another parameter"), "{result:?}");
    }
    assert!(api.lines().is_empty());
}

/// RFC 6570 calls such values undefined. Without them, a required filter would select everything.
#[tokio::test]
async fn values_that_cannot_be_sent_are_left_out_unless_they_are_required() {
    let parameters = |is_required: bool| {
        let parameter = |name: &str, location: &str, style: &str, explode: bool| {
            json!({ "name": name, "in": location, "style": style, "explode": explode,
                "required": is_required })
        };
        json!([
            parameter("a", "query", "form", true),
            parameter("b", "query", "form", false),
            parameter("c", "query", "deepObject", true),
            parameter("X-D", "header", "simple", false),
        ])
    };
    let names = ["a", "b", "c", "X-D"];
    for value in [json!(null), json!([]), json!({}), json!([null]), json!({ "m": null })] {
        let arguments: Value = names
            .iter()
            .map(|name| ((*name).to_owned(), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert_eq!(sent("/x", parameters(false), arguments).await, "GET https://api.example/v1/x");
        for name in names {
            let api = Api::default();
            let parameters: Vec<Value> = parameters(true)
                .as_array()
                .unwrap()
                .iter()
                .filter(|parameter| parameter["name"] == name)
                .cloned()
                .collect();
            let operation = json!({ "operationId": "op", "parameters": parameters });
            let (client, _) = client(tool_of("get", "/x", operation, &api), agreed());
            let result = client.call_tool("op", json!({ name: value })).await.unwrap();
            let text = result.text();
            assert!(
                result.is_error && text.contains("no value that can be sent"),
                "{name}: {text}"
            );
        }
    }
    let arguments = json!({ "a": [1, null, ""], "b": [null, 2], "c": { "m": null, "n": "" } });
    let line = sent("/x", parameters(false), arguments).await;
    assert_eq!(line, "GET https://api.example/v1/x?a=1&a=&b=2&c%5Bn%5D=");
}

/// A model that was misled can only send what the document declares for each.
#[tokio::test]
async fn parameters_may_have_names_with_brackets() {
    let parameters = json!([
        { "name": "page", "in": "query", "style": "deepObject" },
        { "name": "page[size]", "in": "query" },
        { "name": "page[number]", "in": "query" },
    ]);
    let api = Api::default();
    let operation = json!({ "operationId": "op", "parameters": parameters });
    let (client, _) = client(tool_of("get", "/x", operation, &api), agreed());
    for size in [json!(1), json!([1]), json!({ "x": 1 })] {
        let result = client.call_tool("op", json!({ "page": { "size": size } })).await.unwrap();
        let text = result.text();
        assert!(result.is_error && text.contains("another parameter"), "{text}");
    }
    for name in ["page", "page[admin]", "page[number]"] {
        let arguments = json!({ "page_size_": { name: 9 } });
        let result = client.call_tool("op", arguments).await.unwrap();
        let text = result.text();
        assert!(result.is_error && text.contains("another parameter"), "{text}");
    }
    let arguments = json!({ "page": { "sort": "a" }, "page_size_": 2, "page_number_": 3 });
    assert!(!client.call_tool("op", arguments).await.unwrap().is_error);
    let query = "page%5Bsort%5D=a&page%5Bsize%5D=2&page%5Bnumber%5D=3";
    assert_eq!(api.lines(), [format!("GET https://api.example/v1/x?{query}")]);
    // Names that only resemble each other.
    let parameters = json!([
        { "name": "filter[status]", "in": "query" },
        { "name": "q", "in": "query" },
    ]);
    let line = sent("/x", parameters, json!({ "q": { "filter[name]": "a" } })).await;
    assert_eq!(line, "GET https://api.example/v1/x?filter%5Bname%5D=a");
}

/// The document has the same name in several locations, or names without ASCII letters.
#[tokio::test]
async fn arguments_have_names_of_their_own() {
    let parameters = json!([
        { "name": "\u{7528}", "in": "query" },
        { "name": "\u{6237}", "in": "query" },
        { "name": "\u{540d}", "in": "query" },
        { "name": "\u{5b57}", "in": "query" },
    ]);
    let arguments = json!({ "_": 1, "query__": 2, "query___2": 3, "query___3": 4 });
    let line = sent("/x", parameters, arguments).await;
    let query = "%E7%94%A8=1&%E6%88%B7=2&%E5%90%8D=3&%E5%AD%97=4";
    assert_eq!(line, format!("GET https://api.example/v1/x?{query}"));
}

/// A range has no place in a request.
#[tokio::test]
async fn body_has_the_most_exact_media_type() {
    let kinds = ["application/*+json", "application/merge-patch+json", "application/json"];
    for (count, expected) in [(1, kinds[2]), (2, kinds[1]), (3, kinds[2])] {
        let api = Api::default();
        let content: serde_json::Map<_, _> =
            kinds.iter().take(count).map(|kind| ((*kind).to_owned(), json!({}))).collect();
        let operation = json!({ "operationId": "op", "requestBody": { "content": content } });
        let (client, _) = client(tool_of("patch", "/x", operation, &api), agreed());
        client.call_tool("op", json!({ "body": {} })).await.unwrap();
        let request = api.requests.lock().unwrap().pop().unwrap();
        assert_eq!(request.headers()["content-type"], expected);
    }
}
