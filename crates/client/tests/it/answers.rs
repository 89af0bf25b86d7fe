//! What becomes of a server's questions: what handlers see, and what goes out.

use std::sync::{Arc, Mutex};

use mrtr_client::{CallError, ClientBuilder};
use mrtr_schema::elicitation::{ElicitAction, ElicitResult};
use mrtr_schema::roots::Root;
use mrtr_schema::sampling::CreateMessageResult;
use serde_json::{Value, json};

use crate::{Answer, Scripted};

/// A tool that asks this on its first leg.
fn asking(question: Value) -> Scripted {
    Scripted::new(move |asked| {
        Answer::Result(match asked.params.get("requestState") {
            Some(_) => json!({ "content": [] }),
            None => json!({
                "resultType": "input_required", "requestState": "s", "inputRequests": { "q": question },
            }),
        })
    })
}

/// The answer that goes out, or why none does.
async fn answer(
    question: Value,
    handlers: impl FnOnce(ClientBuilder<Scripted>) -> ClientBuilder<Scripted>,
) -> Result<Value, CallError> {
    let server = asking(question);
    let called = handlers(server.client()).build().call_tool("t", json!({})).await;
    let mut asked = server.asked();
    let last = asked.pop().unwrap().params;
    match called {
        Ok(_) => Ok(last.pointer("/inputResponses/q").unwrap().clone()),
        Err(error) => {
            assert_eq!(last.get("inputResponses"), None, "nothing went out");
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

fn page(url: &str) -> Value {
    json!({ "method": "elicitation/create", "params": { "mode": "url", "message": "Go", "url": url } })
}

fn model(more: &Value) -> Value {
    let mut params = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "?" } }],
        "maxTokens": 5 });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "method": "sampling/createMessage", "params": params })
}

fn roots() -> Value {
    json!({ "method": "roots/list" })
}

fn says(text: &'static str) -> CreateMessageResult {
    CreateMessageResult::text(text, "model")
}

#[tokio::test]
async fn what_does_not_fit_its_form_does_not_go_out() {
    let fits = answer(form(), |client| {
        client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "name": "Ada" }))?))
    });
    assert_eq!(fits.await.unwrap(), json!({ "action": "accept", "content": { "name": "Ada" } }));
    for content in
        [json!({ "name": 5 }), json!({ "name": "A" }), json!({}), json!({ "name": null })]
    {
        let result = ElicitResult::accept(content).unwrap();
        let handler = move |_, _| std::future::ready(Ok(result.clone()));
        let refused = answer(form(), |client| client.on_form(handler)).await.unwrap_err();
        assert!(refused.is_handler() && refused.to_string().contains("name"), "{refused}");
    }
}

#[tokio::test]
async fn nothing_but_an_accepted_form_has_content() {
    let content = || json!({ "name": "Ada" }).as_object().cloned();
    for (action, name) in [(ElicitAction::Decline, "decline"), (ElicitAction::Cancel, "cancel")] {
        let result = ElicitResult { action, content: content() };
        let handler = move |_, _| std::future::ready(Ok(result.clone()));
        let refused = answer(form(), |client| client.on_form(handler)).await.unwrap();
        assert_eq!(refused, json!({ "action": name }));
    }
    let visited = answer(page("https://example.com/login"), |client| {
        client.on_url(async |_, page| {
            assert_eq!(
                (page.message.as_str(), page.url.as_str()),
                ("Go", "https://example.com/login")
            );
            Ok(ElicitResult::accept(json!({ "name": "Ada" }))?)
        })
    });
    assert_eq!(visited.await.unwrap(), json!({ "action": "accept" }));
}

#[tokio::test]
async fn a_page_that_is_none_is_shown_to_nobody() {
    for url in ["javascript:alert(1)", "file:///etc/passwd", "no url", "https://", ""] {
        let refused =
            answer(page(url), |client| client.on_url(async |_, _| panic!("it must not be shown")));
        let refused = refused.await.unwrap_err();
        assert!(refused.is_protocol(), "{url}: {refused}");
    }
}

#[tokio::test]
async fn roots_are_files_and_lead_nowhere_else() {
    let list = |uri: &str| {
        let root = Root { uri: uri.to_owned(), name: Some("work".to_owned()), meta: None };
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
        let refused = list(uri).await.unwrap_err();
        assert!(refused.is_handler(), "{uri}: {refused}");
    }
}

#[tokio::test]
async fn a_client_is_asked_only_what_it_declared() {
    type Add = fn(ClientBuilder<Scripted>) -> ClientBuilder<Scripted>;
    let on_form: Add = |c| c.on_form(async |_, _| Ok(ElicitResult::decline()));
    let on_url: Add = |c| c.on_url(async |_, _| Ok(ElicitResult::decline()));
    let on_sample: Add = |c| c.on_sample(async |_, _| Ok(says("x")));
    let on_roots: Add = |c| c.on_roots(async |_| Ok(Vec::new()));
    let tool = json!([{ "name": "t", "inputSchema": { "type": "object" } }]);
    for (add, declared, fits, not) in [
        (
            on_form,
            json!({ "elicitation": { "form": {} } }),
            vec![form()],
            vec![page("https://a.example"), roots(), model(&json!({}))],
        ),
        (
            on_url,
            json!({ "elicitation": { "url": {} } }),
            vec![page("https://a.example")],
            vec![form(), roots()],
        ),
        (
            on_sample,
            json!({ "sampling": {} }),
            vec![model(&json!({})), model(&json!({ "includeContext": "none" }))],
            vec![
                form(),
                model(&json!({ "tools": tool })),
                model(&json!({ "toolChoice": { "mode": "auto" } })),
                model(&json!({ "includeContext": "thisServer" })),
                model(&json!({ "includeContext": "allServers" })),
            ],
        ),
        (on_roots, json!({ "roots": {} }), vec![roots()], vec![form(), model(&json!({}))]),
    ] {
        let server = asking(roots());
        let _ = add(server.client()).build().call_tool("t", json!({})).await;
        let meta = &server.asked()[0].meta;
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], declared);
        for question in fits {
            answer(question, add).await.unwrap();
        }
        for question in not {
            let refused = answer(question.clone(), add).await.unwrap_err();
            assert!(refused.is_protocol(), "{question}: {refused}");
        }
    }
    let all = asking(roots());
    let _ = on_roots(on_url(on_form(all.client()))).build().call_tool("t", json!({})).await;
    assert_eq!(
        all.asked()[0].meta["io.modelcontextprotocol/clientCapabilities"],
        json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} }),
        "and no extension"
    );
}

#[tokio::test]
async fn sampling_with_tools_or_context_is_accepted_only_if_declared() {
    type Add = fn(ClientBuilder<Scripted>) -> ClientBuilder<Scripted>;
    let sample: Add = |c| c.on_sample(async |_, _| Ok(says("x")));
    let with_tools: Add = |c| c.on_sample(async |_, _| Ok(says("x"))).sampling_tools();
    let with_context: Add = |c| c.sampling_context().on_sample(async |_, _| Ok(says("x")));
    let with_both: Add =
        |c| c.on_sample(async |_, _| Ok(says("x"))).sampling_tools().sampling_context();
    let without_handler: Add =
        |c| c.on_roots(async |_| Ok(Vec::new())).sampling_tools().sampling_context();
    let plain = || model(&json!({}));
    let tools = || model(&json!({ "tools": tool(), "toolChoice": { "mode": "auto" } }));
    let context = || model(&json!({ "includeContext": "thisServer" }));
    let both = || model(&json!({ "tools": tool(), "includeContext": "allServers" }));
    for (add, declared, accepted, refused) in [
        (sample, json!({ "sampling": {} }), vec![plain()], vec![tools(), context(), both()]),
        (
            with_tools,
            json!({ "sampling": { "tools": {} } }),
            vec![plain(), tools(), model(&json!({ "toolChoice": { "mode": "none" } }))],
            vec![context(), both()],
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
        let server = asking(roots());
        let _ = add(server.client()).build().call_tool("t", json!({})).await;
        let meta = &server.asked()[0].meta;
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], declared);
        for request in accepted {
            answer(request, add).await.unwrap();
        }
        for request in refused {
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
        let sampled: CreateMessageResult = serde_json::from_value(result.clone()).unwrap();
        let handler = move |_, _| std::future::ready(Ok(sampled.clone()));
        let answered =
            answer(model(&request), |client| client.on_sample(handler).sampling_tools()).await;
        match answered {
            Ok(response) => assert!(allowed && response == result, "{request}: {response}"),
            Err(error) => {
                assert!(!allowed && error.is_handler(), "{request}: {error}");
                assert_eq!(
                    error.to_string(),
                    "the response to input request \"q\" uses tool \"t\", which the request does \
                     not allow"
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
async fn a_model_sees_the_preferences_in_their_order() {
    let seen = Arc::new(Mutex::new(None));
    let saw = Arc::clone(&seen);
    let preferences =
        json!({ "hints": [{ "name": "b" }, { "name": "a" }, {}], "costPriority": 0.5 });
    let question = model(&json!({ "modelPreferences": preferences, "systemPrompt": "Be brief." }));
    answer(question, |client| {
        client.on_sample(move |_, params| {
            *saw.lock().unwrap() = Some(params);
            async { Ok(says("x")) }
        })
    })
    .await
    .unwrap();
    let params = seen.lock().unwrap().take().unwrap();
    let hints = params.model_preferences.unwrap().hints.unwrap();
    let names: Vec<_> = hints.into_iter().map(|hint| hint.name).collect();
    assert_eq!(names, [Some("b".to_owned()), Some("a".to_owned()), None]);
    assert_eq!(params.system_prompt.as_deref(), Some("Be brief."));
}

#[tokio::test]
async fn too_many_questions_at_once_are_not_answered() {
    let many: serde_json::Map<_, _> = (0..65).map(|n| (format!("q{n}"), form())).collect();
    let server = Scripted::new(move |_| {
        Answer::Result(json!({ "resultType": "input_required", "inputRequests": many }))
    });
    let client = server.client().on_form(async |_, _| panic!("it must not be asked")).build();
    let refused = client.call_tool("t", json!({})).await.unwrap_err();
    assert!(refused.is_too_many_rounds(), "{refused}");
}

#[tokio::test]
async fn a_failed_handler_ends_the_call_and_says_why_to_its_caller_alone() {
    let refused = answer(form(), |client| client.on_form(async |_, _| Err("no person".into())));
    let refused = refused.await.unwrap_err();
    assert!(refused.is_handler() && refused.to_string().contains("no person"), "{refused}");
}
