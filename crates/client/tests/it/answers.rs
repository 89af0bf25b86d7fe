//! Input requests, the handlers that see them, and the responses that are sent.

use std::sync::{Arc, Mutex};

use mrtr_client::{CallError, ClientBuilder};
use mrtr_schema::elicitation::{ElicitAction, ElicitResult};
use mrtr_schema::roots::Root;
use mrtr_schema::sampling::{CreateMessageResult, IncludeContext};
use serde_json::{Value, json};

use crate::{Reply, ScriptedServer};

/// A server that sends this input request in the first round.
fn server_requesting(request: Value) -> ScriptedServer {
    ScriptedServer::new(move |received| {
        Reply::Result(match received.params.get("requestState") {
            Some(_) => json!({ "content": [] }),
            None => json!({
                "resultType": "input_required", "requestState": "s", "inputRequests": { "q": request },
            }),
        })
    })
}

/// Returns the response that is sent, or the error of the call.
async fn answer(
    request: Value,
    handlers: impl FnOnce(ClientBuilder<ScriptedServer>) -> ClientBuilder<ScriptedServer>,
) -> Result<Value, CallError> {
    let server = server_requesting(request);
    let called = handlers(server.client()).build().call_tool("t", json!({})).await;
    let mut received = server.received();
    let last = received.pop().unwrap().params;
    match called {
        Ok(_) => Ok(last.pointer("/inputResponses/q").unwrap().clone()),
        Err(error) => {
            assert_eq!(last.get("inputResponses"), None, "no response is sent");
            Err(error)
        }
    }
}

fn form() -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form", "message": "Who?",
        "requestedSchema": { "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object", "required": ["name"],
            "properties": { "name": { "type": "string", "minLength": 2 } } },
    } })
}

fn url(url: &str) -> Value {
    json!({ "method": "elicitation/create", "params": { "mode": "url", "message": "Go", "url": url } })
}

fn sampling(more: &Value) -> Value {
    let mut params = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "?" } }],
        "maxTokens": 5 });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "method": "sampling/createMessage", "params": params })
}

fn roots() -> Value {
    json!({ "method": "roots/list" })
}

fn sampled(text: &str) -> CreateMessageResult {
    CreateMessageResult::text(text, "model")
}

#[tokio::test]
async fn form_response_that_does_not_match_its_form_is_not_sent() {
    let accepted = answer(form(), |client| {
        client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "name": "Ada" }))?))
    });
    assert_eq!(
        accepted.await.unwrap(),
        json!({ "action": "accept", "content": { "name": "Ada" } })
    );
    for content in
        [json!({ "name": 5 }), json!({ "name": "A" }), json!({}), json!({ "name": null })]
    {
        let result = ElicitResult::accept(content).unwrap();
        let handler = move |_, _| std::future::ready(Ok(result.clone()));
        let error = answer(form(), |client| client.on_form(handler)).await.unwrap_err();
        assert!(error.is_handler() && error.to_string().contains("name"), "{error}");
    }
}

#[tokio::test]
async fn only_accepted_forms_have_content() {
    let content = || json!({ "name": "Ada" }).as_object().cloned();
    for (action, name) in [(ElicitAction::Decline, "decline"), (ElicitAction::Cancel, "cancel")] {
        let result = ElicitResult::new(action, content());
        let handler = move |_, _| std::future::ready(Ok(result.clone()));
        let response = answer(form(), |client| client.on_form(handler)).await.unwrap();
        assert_eq!(response, json!({ "action": name }));
    }
    let consented = answer(url("https://example.com/login"), |client| {
        client.on_url(async |_, params| {
            assert_eq!(
                (params.message.as_str(), params.url.as_str()),
                ("Go", "https://example.com/login")
            );
            Ok(ElicitResult::accept(json!({ "name": "Ada" }))?)
        })
    });
    assert_eq!(consented.await.unwrap(), json!({ "action": "accept" }));
}

#[tokio::test]
async fn invalid_url_does_not_reach_the_handler() {
    for url in ["javascript:alert(1)", "file:///etc/passwd", "no url", "https://", ""] {
        let answered = answer(self::url(url), |client| {
            client.on_url(async |_, _| panic!("the handler must not see it"))
        });
        let error = answered.await.unwrap_err();
        assert!(error.is_protocol(), "{url}: {error}");
    }
}

#[tokio::test]
async fn roots_must_be_file_uris_without_traversal() {
    let list = |uri: &str| {
        let root = Root::new(uri).with_name("work");
        answer(roots(), |client| {
            client.on_roots(move |_| {
                let root = root.clone();
                async move { Ok(vec![root]) }
            })
        })
    };
    let listed = list("file:///home/work").await.unwrap();
    assert_eq!(listed, json!({ "roots": [{ "uri": "file:///home/work", "name": "work" }] }));
    for uri in
        ["https://example.com", "/home", "file:///a/../b", "file:///a/%2e%2E/b", "file:///%ff"]
    {
        let error = list(uri).await.unwrap_err();
        assert!(error.is_handler(), "{uri}: {error}");
    }
}

#[tokio::test]
async fn undeclared_input_requests_are_rejected() {
    type Add = fn(ClientBuilder<ScriptedServer>) -> ClientBuilder<ScriptedServer>;
    let on_form: Add = |c| c.on_form(async |_, _| Ok(ElicitResult::decline()));
    let on_url: Add = |c| c.on_url(async |_, _| Ok(ElicitResult::decline()));
    let on_sample: Add = |c| c.on_sample(async |_, _| Ok(sampled("x")));
    let on_roots: Add = |c| c.on_roots(async |_| Ok(Vec::new()));
    for (add, declared, accepted, rejected) in [
        (
            on_form,
            json!({ "elicitation": { "form": {} } }),
            vec![form()],
            vec![url("https://a.example"), roots(), sampling(&json!({}))],
        ),
        (
            on_url,
            json!({ "elicitation": { "url": {} } }),
            vec![url("https://a.example")],
            vec![form(), roots()],
        ),
        (
            on_sample,
            json!({ "sampling": {} }),
            vec![
                sampling(&json!({})),
                sampling(&json!({ "includeContext": "none" })),
                sampling(&json!({ "includeContext": "thisServer" })),
                sampling(&json!({ "includeContext": "allServers" })),
            ],
            vec![
                form(),
                sampling(&json!({ "tools": tool() })),
                sampling(&json!({ "toolChoice": { "mode": "auto" } })),
            ],
        ),
        (on_roots, json!({ "roots": {} }), vec![roots()], vec![form(), sampling(&json!({}))]),
    ] {
        let server = server_requesting(roots());
        let _ = add(server.client()).build().call_tool("t", json!({})).await;
        let meta = &server.received()[0].meta;
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], declared);
        for request in accepted {
            answer(request, add).await.unwrap();
        }
        for request in rejected {
            let error = answer(request.clone(), add).await.unwrap_err();
            assert!(error.is_protocol(), "{request}: {error}");
        }
    }
    let all = server_requesting(roots());
    let _ = on_roots(on_url(on_form(all.client()))).build().call_tool("t", json!({})).await;
    assert_eq!(
        all.received()[0].meta["io.modelcontextprotocol/clientCapabilities"],
        json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} }),
        "no extension is declared"
    );
}

/// A client may ignore `includeContext`, and so do handlers without the capability.
#[tokio::test]
async fn context_is_included_only_if_declared() {
    for declares in [false, true] {
        let server = server_requesting(sampling(&json!({ "includeContext": "thisServer" })));
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let handled = Arc::clone(&seen);
        let client = server.client().on_sample(move |_, params| {
            handled.lock().unwrap().push(params.include_context);
            std::future::ready(Ok(sampled("x")))
        });
        let client = if declares { client.sampling_context() } else { client };
        client.build().call_tool("t", json!({})).await.unwrap();
        let expected = declares.then_some(IncludeContext::ThisServer);
        assert_eq!(*seen.lock().unwrap(), [expected]);
    }
}

#[tokio::test]
async fn sampling_with_tools_is_accepted_only_if_declared() {
    type Add = fn(ClientBuilder<ScriptedServer>) -> ClientBuilder<ScriptedServer>;
    let sample: Add = |c| c.on_sample(async |_, _| Ok(sampled("x")));
    let with_tools: Add = |c| c.on_sample(async |_, _| Ok(sampled("x"))).sampling_tools();
    let with_context: Add = |c| c.sampling_context().on_sample(async |_, _| Ok(sampled("x")));
    let with_both: Add =
        |c| c.on_sample(async |_, _| Ok(sampled("x"))).sampling_tools().sampling_context();
    let without_handler: Add =
        |c| c.on_roots(async |_| Ok(Vec::new())).sampling_tools().sampling_context();
    let plain = || sampling(&json!({}));
    let tools = || sampling(&json!({ "tools": tool(), "toolChoice": { "mode": "auto" } }));
    let context = || sampling(&json!({ "includeContext": "thisServer" }));
    let both = || sampling(&json!({ "tools": tool(), "includeContext": "allServers" }));
    for (add, declared, accepted, rejected) in [
        (sample, json!({ "sampling": {} }), vec![plain(), context()], vec![tools(), both()]),
        (
            with_tools,
            json!({ "sampling": { "tools": {} } }),
            vec![
                plain(),
                tools(),
                context(),
                both(),
                sampling(&json!({ "toolChoice": { "mode": "none" } })),
            ],
            vec![],
        ),
        (
            with_context,
            json!({ "sampling": { "context": {} } }),
            vec![plain(), context()],
            vec![tools(), both()],
        ),
        (
            with_both,
            json!({ "sampling": { "context": {}, "tools": {} } }),
            vec![plain(), tools(), context(), both()],
            vec![],
        ),
        (without_handler, json!({ "roots": {} }), vec![roots()], vec![plain(), tools(), context()]),
    ] {
        let server = server_requesting(roots());
        let _ = add(server.client()).build().call_tool("t", json!({})).await;
        let meta = &server.received()[0].meta;
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], declared);
        for request in accepted {
            answer(request, add).await.unwrap();
        }
        for request in rejected {
            let error = answer(request.clone(), add).await.unwrap_err();
            assert!(error.is_protocol(), "{request}: {error}");
        }
    }
    let error = answer(tools(), sample).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server violated the protocol: input request \"q\" requires the capability \
         sampling.tools, which this client did not declare"
    );
}

/// A handler may return a tool use only if the request has tools and does not forbid their use.
#[tokio::test]
async fn sampling_result_uses_tools_only_if_the_request_allows_it() {
    let usage = json!({ "type": "tool_use", "id": "1", "name": "t", "input": {} });
    let result =
        json!({ "role": "assistant", "content": usage, "model": "m", "stopReason": "toolUse" });
    for (request, allowed) in [
        (json!({ "tools": tool() }), true),
        (json!({ "tools": tool(), "toolChoice": { "mode": "auto" } }), true),
        (json!({ "tools": tool(), "toolChoice": { "mode": "required" } }), true),
        (json!({ "tools": tool(), "toolChoice": { "mode": "none" } }), false),
        (json!({ "toolChoice": { "mode": "auto" } }), false),
        (json!({}), false),
    ] {
        let returned: CreateMessageResult = serde_json::from_value(result.clone()).unwrap();
        let handler = move |_, _| std::future::ready(Ok(returned.clone()));
        let answered =
            answer(sampling(&request), |client| client.on_sample(handler).sampling_tools()).await;
        match answered {
            Ok(response) => assert!(allowed && response == result, "{request}: {response}"),
            Err(error) => {
                assert!(!allowed && error.is_handler(), "{request}: {error}");
                assert_eq!(
                    error.to_string(),
                    "the response to input request \"q\" is invalid: /content: uses the tool \"t\", \
                     which the request does not allow"
                );
            }
        }
    }
}

/// The tools of a sampling request.
fn tool() -> Value {
    json!([{ "name": "t", "inputSchema": { "type": "object" } }])
}

#[tokio::test]
async fn sampling_handler_receives_the_model_preferences_in_order() {
    let received = Arc::new(Mutex::new(None));
    let recorder = Arc::clone(&received);
    let preferences =
        json!({ "hints": [{ "name": "b" }, { "name": "a" }, {}], "costPriority": 0.5 });
    let request =
        sampling(&json!({ "modelPreferences": preferences, "systemPrompt": "Be brief." }));
    answer(request, |client| {
        client.on_sample(move |_, params| {
            *recorder.lock().unwrap() = Some(params);
            async { Ok(sampled("x")) }
        })
    })
    .await
    .unwrap();
    let params = received.lock().unwrap().take().unwrap();
    let hints = params.model_preferences.unwrap().hints.unwrap();
    let names: Vec<_> = hints.into_iter().map(|hint| hint.name).collect();
    assert_eq!(names, [Some("b".to_owned()), Some("a".to_owned()), None]);
    assert_eq!(params.system_prompt.as_deref(), Some("Be brief."));
}

#[tokio::test]
async fn too_many_input_requests_in_one_round_end_the_call() {
    let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("q{n}"), form())).collect();
    let server = ScriptedServer::new(move |_| {
        Reply::Result(json!({ "resultType": "input_required", "inputRequests": many }))
    });
    let client =
        server.client().on_form(async |_, _| panic!("the handler must not be called")).build();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert!(error.is_too_many_rounds(), "{error}");
}

#[tokio::test]
async fn handler_failure_ends_the_call_and_is_not_sent() {
    let answered = answer(form(), |client| client.on_form(async |_, _| Err("no user".into())));
    let error = answered.await.unwrap_err();
    assert!(error.is_handler() && error.to_string().contains("no user"), "{error}");
}
