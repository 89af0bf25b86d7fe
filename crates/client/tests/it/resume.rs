//! Calls that pause and resume, and their retries, timeouts, labels, observer and policy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_client::{CallEvent, CallOutcome, Client, PendingCall, PolicyDecision, RoundLimits};
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::input::{InputRequest, InputResponses};
use mrtr_schema::jsonrpc::RequestId;
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::resource::ReadResourceResult;
use mrtr_schema::tool::CallToolResult;
use serde_json::{Value, json};

use crate::{ReceivedRequest, Reply, ScriptedServer};

fn form(message: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "n": { "type": "integer", "maximum": 9 } },
            "required": ["n"],
        },
    } })
}

/// A server that postpones the call once, requests input twice, and returns what it received.
fn two_input_rounds() -> ScriptedServer {
    ScriptedServer::new(|received| {
        let state = received.params.get("requestState").and_then(Value::as_str).unwrap_or_default();
        let at = |path: &str| received.params.pointer(path).cloned().unwrap_or_default();
        let n = |key: &str| at(&format!("/inputResponses/{key}/content/n"));
        Reply::Result(match state {
            "" => json!({ "resultType": "input_required", "requestState": "postponed" }),
            "postponed" => json!({ "resultType": "input_required", "requestState": "one",
                "inputRequests": { "a": form("One?") } }),
            "one" => {
                json!({ "resultType": "input_required", "requestState": format!("two {}", n("a")),
                "inputRequests": { "b": form("Two?"), "where": { "method": "roots/list" } } })
            }
            other => json!({ "content": [{ "type": "text",
                "text": format!("{other} {} {}", n("b"), at("/arguments/x")) }] }),
        })
    })
}

fn responses(all: &[(&str, Value)]) -> InputResponses {
    let mut responses = InputResponses::default();
    for (key, response) in all {
        responses.push(*key, response).unwrap();
    }
    responses
}

fn accept(n: impl serde::Serialize) -> Value {
    json!({ "action": "accept", "content": { "n": n } })
}

fn paused<R: std::fmt::Debug>(outcome: CallOutcome<R>) -> PendingCall {
    match outcome {
        CallOutcome::InputRequired(call) => call,
        other => panic!("{other:?}"),
    }
}

/// Creates a client without handlers that declares forms and sampling.
fn declaring(server: &ScriptedServer) -> Client<ScriptedServer> {
    let capabilities = ClientCapabilities::new()
        .with_elicitation(ElicitationCapability::form())
        .with_sampling(SamplingCapability::default())
        .with_roots(RootsCapability::default());
    server.client().build().with_capabilities(capabilities)
}

/// Serializes and deserializes a call, as another process would.
fn through_json(call: &PendingCall) -> PendingCall {
    serde_json::from_str(&serde_json::to_string(call).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn call_pauses_at_each_round_and_is_resumed_by_other_clients() {
    let server = two_input_rounds();
    let client = || declaring(&server);
    let arguments = json!({ "x": 9_007_199_254_740_993_u64 });
    let first = paused(client().begin_tool("t", arguments).await.unwrap());
    assert_eq!(
        (first.method(), first.target().as_str(), first.input_round()),
        ("tools/call", "t", 1)
    );
    let received: Vec<_> = first.input_requests().0.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(received, ["a"]);

    let one = responses(&[("a", accept(4))]);
    let second = client().resume::<CallToolResult>(through_json(&first), &one).await.unwrap();
    let second = through_json(&paused(second));
    assert_eq!(second.input_round(), 2);
    let two =
        responses(&[("b", accept(5)), ("where", json!({ "roots": [{ "uri": "file:///x" }] }))]);
    let third = client().resume::<CallToolResult>(second.clone(), &two).await.unwrap();
    let CallOutcome::Complete(result) = third else { panic!("{third:?}") };
    assert_eq!(result.text(), "two 4 5 9007199254740993");
    let states: Vec<_> = server
        .received()
        .iter()
        .map(|received| received.params.get("requestState").cloned())
        .collect();
    assert_eq!(states, [None, Some(json!("postponed")), Some(json!("one")), Some(json!("two 4"))]);

    // The handlers can finish the call.
    let client = server.client();
    let client = client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?));
    let client = client.on_roots(async |_| Ok(Vec::new())).build();
    let result: CallToolResult = client.finish(through_json(&first)).await.unwrap();
    assert_eq!(result.text(), "two 7 7 9007199254740993");
    // The limits count from where the call paused.
    let limits = RoundLimits::default().with_input_rounds(1);
    let client = server.client().round_limits(limits).build();
    let error = client.resume::<CallToolResult>(first, &one).await.unwrap_err();
    assert!(error.is_too_many_rounds(), "{error}");
}

/// A server that requests one form for prompts and for resources, and returns its answer.
fn prompts_and_resources() -> ScriptedServer {
    ScriptedServer::new(|received| {
        let Some(n) = received.params.pointer("/inputResponses/n/content/n") else {
            return Reply::Result(json!({ "resultType": "input_required", "requestState": "s",
                "inputRequests": { "n": form("How many?") } }));
        };
        assert_eq!(received.params["requestState"], "s");
        let text = format!("{} {n}", received.params["arguments"]["x"]);
        Reply::Result(match received.method.as_str() {
            "prompts/get" => {
                let content = json!({ "type": "text", "text": text });
                json!({ "messages": [{ "role": "user", "content": content }] })
            }
            "resources/read" => {
                json!({ "contents": [{ "uri": received.params["uri"], "text": text }] })
            }
            other => panic!("unexpected method {other}"),
        })
    })
}

fn prompt_text(result: &GetPromptResult) -> &str {
    result.messages[0].content.as_text().unwrap()
}

#[tokio::test]
async fn prompt_pauses_and_is_resumed_or_finished() {
    let server = prompts_and_resources();
    let outcome = declaring(&server).begin_prompt("p", json!({ "x": "y" })).await.unwrap();
    let call = through_json(&paused(outcome));
    assert_eq!((call.method(), call.target().as_str()), ("prompts/get", "p"));
    assert_eq!(call.input_round(), 1);

    let client = declaring(&server);
    let error = client
        .resume::<GetPromptResult>(call.clone(), &responses(&[("n", accept(10))]))
        .await
        .unwrap_err();
    assert!(error.is_handler(), "{error}");
    let valid = responses(&[("n", accept(4))]);
    let resumed = client.resume::<GetPromptResult>(call.clone(), &valid).await.unwrap();
    let CallOutcome::Complete(result) = resumed else { panic!("{resumed:?}") };
    assert_eq!(prompt_text(&result), r#""y" 4"#);

    let client = server.client();
    let client = client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?)).build();
    let result: GetPromptResult = client.finish(call.clone()).await.unwrap();
    assert_eq!(prompt_text(&result), r#""y" 7"#);
    let error = client.finish::<ReadResourceResult>(call).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot resume a prompts/get call as resources/read");
    // Without pausing, the handlers answer.
    let result = client.get_prompt("p", json!({ "x": "y" })).await.unwrap();
    assert_eq!(prompt_text(&result), r#""y" 7"#);
}

#[tokio::test]
async fn resource_pauses_and_is_resumed_or_finished() {
    let server = prompts_and_resources();
    let outcome = declaring(&server).begin_resource("a:1").await.unwrap();
    let call = through_json(&paused(outcome));
    assert_eq!((call.method(), call.target().as_str()), ("resources/read", "a:1"));
    assert_eq!(call.input_round(), 1);

    let client = declaring(&server);
    let missing = client.resume::<ReadResourceResult>(call.clone(), &responses(&[])).await;
    assert!(missing.unwrap_err().is_handler());
    let valid = responses(&[("n", accept(4))]);
    let resumed = client.resume::<ReadResourceResult>(call.clone(), &valid).await.unwrap();
    let CallOutcome::Complete(result) = resumed else { panic!("{resumed:?}") };
    assert_eq!(result.contents[0].uri, "a:1");
    assert_eq!(result.contents[0].text.as_deref(), Some("null 4"));

    let client = server.client();
    let client = client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?)).build();
    let result: ReadResourceResult = client.finish(call).await.unwrap();
    assert_eq!(result.contents[0].text.as_deref(), Some("null 7"));
    // Without pausing, the handlers answer.
    let result = client.read_resource("a:1").await.unwrap();
    assert_eq!(result.contents[0].text.as_deref(), Some("null 7"));
}

/// Responses that the application passes are validated as those of handlers are.
#[tokio::test]
async fn resume_validates_sampling_results() {
    let server = ScriptedServer::new(|received| {
        Reply::Result(match received.params.get("inputResponses") {
            Some(_) => json!({ "content": [] }),
            None => json!({ "resultType": "input_required", "requestState": "s",
                "inputRequests": { "q": { "method": "sampling/createMessage",
                    "params": { "messages": [], "maxTokens": 5 } } } }),
        })
    });
    let client = declaring(&server);
    let call = paused(client.begin_tool("t", json!({})).await.unwrap());
    let sampled = |content: Value| {
        responses(&[("q", json!({ "role": "assistant", "content": content, "model": "m" }))])
    };
    let usage = sampled(json!({ "type": "tool_use", "id": "1", "name": "t", "input": {} }));
    let error = client.resume::<CallToolResult>(call.clone(), &usage).await.unwrap_err();
    assert!(error.is_handler() && error.to_string().contains("uses the tool \"t\""), "{error}");
    let text = sampled(json!({ "type": "text", "text": "x" }));
    let resumed = client.resume::<CallToolResult>(call, &text).await.unwrap();
    assert!(matches!(resumed, CallOutcome::Complete(_)), "{resumed:?}");
}

#[tokio::test(start_paused = true)]
async fn invalid_responses_send_nothing_and_leave_the_call_resumable() {
    let server = two_input_rounds();
    let client = declaring(&server);
    let call = paused(client.begin_tool("t", json!({})).await.unwrap());
    server.received();
    for (invalid, message) in [
        (responses(&[]), "missing response to input request \"a\""),
        (
            responses(&[("a", accept(10))]),
            "the response to input request \"a\" does not match its form",
        ),
        (
            responses(&[("a", accept("x"))]),
            "the response to input request \"a\" does not match its form",
        ),
        (
            responses(&[("a", json!({ "action": "shrug" }))]),
            "malformed response to input request \"a\"",
        ),
        (responses(&[("a", accept(1)), ("c", accept(1))]), "no input request has the key \"c\""),
    ] {
        let error = client.resume::<CallToolResult>(call.clone(), &invalid).await.unwrap_err();
        assert!(error.is_handler() && error.to_string().contains(message), "{error}");
    }
    let error = client.resume::<GetPromptResult>(call.clone(), &responses(&[])).await.unwrap_err();
    assert!(error.to_string().contains("missing response"), "{error}");
    let one = responses(&[("a", accept(1))]);
    let error = client.resume::<GetPromptResult>(call.clone(), &one).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot resume a tools/call call as prompts/get");
    assert_eq!(server.methods(), [""; 0]);
    // A declined form is sent without content.
    let decline = json!({ "action": "decline", "content": { "n": 3 } });
    paused(client.resume::<CallToolResult>(call, &responses(&[("a", decline)])).await.unwrap());
    assert_eq!(
        server.received()[0].params["inputResponses"],
        json!({ "a": { "action": "decline" } })
    );
}

/// Request ids of another process begin at 1 again (specification: MRTR, requirements of clients).
#[tokio::test(start_paused = true)]
async fn retry_of_another_process_has_a_new_id() {
    let server = two_input_rounds();
    let first = paused(declaring(&server).begin_tool("t", json!({ "x": 1 })).await.unwrap());
    let one = responses(&[("a", accept(4))]);
    let other = declaring(&server);
    let second = other.resume::<CallToolResult>(through_json(&first), &one).await.unwrap();
    let two = responses(&[("b", accept(5)), ("where", json!({ "roots": [] }))]);
    let third = declaring(&server);
    third.resume::<CallToolResult>(through_json(&paused(second)), &two).await.unwrap();
    let ids: Vec<_> = server.received().into_iter().map(|received| received.id).collect();
    assert_eq!(ids, [1, 2, 3, 4].map(RequestId::Number));
}

/// The process that has paused it may have had other handlers.
#[tokio::test(start_paused = true)]
async fn stored_requests_are_checked_by_the_client_that_finishes_the_call() {
    let sampling = json!({ "method": "sampling/createMessage", "params": {
        "messages": [], "maxTokens": 5, "tools": [{ "name": "x", "inputSchema": { "type": "object" } }],
    } });
    let server = ScriptedServer::new(move |_| {
        Reply::Result(json!({ "resultType": "input_required", "requestState": "s",
            "inputRequests": { "a": sampling } }))
    });
    let capabilities = json!({ "sampling": { "tools": {} } });
    let client = server.client().build();
    let paused = client
        .with_capabilities(serde_json::from_value(capabilities).unwrap())
        .begin_tool("t", json!({}))
        .await
        .unwrap();
    let CallOutcome::InputRequired(paused) = paused else { panic!("{paused:?}") };
    let without_tools = server.client().on_sample(async |_, _| panic!("it is asked")).build();
    let error = without_tools.finish::<CallToolResult>(paused).await.unwrap_err();
    assert!(error.to_string().contains("sampling.tools"), "{error}");
}

/// The serialized form is stable, and invalid ones are rejected with the reason.
#[tokio::test(start_paused = true)]
async fn pending_call_has_a_stable_json_form() {
    let server = two_input_rounds();
    let call = paused(declaring(&server).begin_tool("t", json!({ "x": 1 })).await.unwrap());
    let stored = serde_json::to_value(&call).unwrap();
    let received = serde_json::to_string(call.input_requests()).unwrap();
    let expected = json!({
        "mrtrContinuation": 1,
        "method": "tools/call",
        "params": [["name", "\"t\""], ["arguments", "{\"x\":1}"]],
        "requestState": "one",
        "inputRequests": received,
        "questionRounds": 1,
        "stateRounds": 1,
        "lastId": 2,
        "pace": 0,
    });
    assert_eq!(stored, expected);
    assert!(!format!("{call:?}").contains("arguments"), "arguments and state are not for logs");
    for (change, message) in [
        (json!({ "mrtrContinuation": 3 }), "version 3; this client reads versions 1 and 2"),
        (json!({ "method": "tools/list" }), "a pending call cannot have the method \"tools/list\""),
        (json!({ "inputRequests": "[" }), "expected a map of input requests"),
        (json!({ "params": [["name", "{"]] }), "EOF"),
        (
            json!({ "inputRequests": null, "requestState": null }),
            "neither input requests nor request state",
        ),
    ] {
        let mut stored = stored.clone();
        stored.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let error = serde_json::from_value::<PendingCall>(stored).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// A retry has the same state, the same responses and a new id.
#[tokio::test(start_paused = true)]
async fn interrupted_request_is_sent_again_only_with_retries() {
    let interrupted_server = |times: usize| {
        let (server, left) = (two_input_rounds(), Arc::new(AtomicUsize::new(times)));
        let answer = move |received: &ReceivedRequest| {
            let is_second = received.params.get("requestState") == Some(&json!("one"));
            let interrupts = is_second
                && left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok();
            if interrupts { Reply::Interrupted } else { (server.reply)(received) }
        };
        ScriptedServer::new(answer)
    };
    for (interruptions, retries, succeeds) in
        [(1, 0, false), (1, 1, true), (3, 2, false), (3, 3, true)]
    {
        let server = interrupted_server(interruptions);
        let client = server.client();
        let client = client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?));
        let client = client.on_roots(async |_| Ok(Vec::new())).build().with_retries(retries);
        let called = client.call_tool("t", json!({ "x": 0 })).await;
        assert_eq!(called.is_ok(), succeeds, "{called:?}");
        let second: Vec<_> = server
            .received()
            .into_iter()
            .filter(|received| received.params.get("requestState") == Some(&json!("one")))
            .collect();
        assert_eq!(second.len(), (interruptions + 1).min(retries as usize + 1));
        assert!(
            second.windows(2).all(|two| two[0].params == two[1].params && two[0].id != two[1].id)
        );
    }
}

/// Handlers and the observer belong to the client, so only a label distinguishes its calls.
#[tokio::test]
async fn label_distinguishes_calls_of_one_tool() {
    let labels = Arc::<Mutex<Vec<_>>>::default();
    let recorder = Arc::clone(&labels);
    let client = two_input_rounds().client();
    let client = client.on_form(async |context, _| {
        let n = context.label.as_deref().map_or(0, str::len);
        Ok(ElicitResult::accept(json!({ "n": n }))?)
    });
    let client = client.on_roots(async |_| Ok(Vec::new())).on_event(move |event| {
        if let CallEvent::RequestSent(request) = event {
            recorder.lock().unwrap().push(request.label.map(str::to_owned));
        }
    });
    let client = client.build();
    let call =
        async |client: &Client<_>| client.call_tool("t", json!({ "x": 0 })).await.unwrap().text();
    let (one, two) = (client.with_label("a"), client.with_label("ab"));
    let texts = tokio::join!(call(&one), call(&client), call(&two));
    let [a, none, ab] = ["two 1 1 0", "two 0 0 0", "two 2 2 0"].map(str::to_owned);
    assert_eq!(texts, (a, none, ab));
    let mut labels = labels.lock().unwrap().clone();
    labels.sort();
    labels.dedup();
    assert_eq!(labels, [None, Some("a".to_owned()), Some("ab".to_owned())]);
}

/// The timeout covers the whole call, can exclude handlers, and names the last input requests.
#[tokio::test(start_paused = true)]
async fn call_timeout_covers_all_rounds_and_can_exclude_handler_time() {
    for (excludes_handlers, succeeds) in [(false, false), (true, true)] {
        let client = two_input_rounds().client().call_timeout(Duration::from_secs(10));
        let client = client.on_form(async |_, _| {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok(ElicitResult::accept(json!({ "n": 7 }))?)
        });
        let client = client.on_roots(async |_| Ok(Vec::new()));
        let client = if excludes_handlers { client.exclude_handler_time() } else { client };
        let called = client.build().call_tool("t", json!({ "x": 0 })).await;
        assert_eq!(called.is_ok(), succeeds);
        if let Err(error) = called {
            assert!(error.is_timeout());
            assert_eq!(
                error.to_string(),
                r#"tools/call t timed out after 10s; last input requests: "a" "One?""#
            );
        }
    }
    // It does not start again with each round.
    let server = ScriptedServer::new(|_| {
        Reply::Result(json!({ "resultType": "input_required", "requestState": "again" }))
    });
    let limits = RoundLimits::default().with_state_rounds(1000);
    let client = server.client().call_timeout(Duration::from_secs(10)).round_limits(limits).build();
    let start = tokio::time::Instant::now();
    assert!(client.call_tool("t", json!({})).await.unwrap_err().is_timeout());
    assert_eq!(start.elapsed().as_secs(), 10);
}

/// The observer sees the start and the end of each request and input request. The policy decides
/// before the handler is called.
#[tokio::test(start_paused = true)]
async fn observer_and_policy_see_each_request_and_input_request() {
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    let client = two_input_rounds()
        .client()
        .on_event(move |event| {
            let line = match event {
                CallEvent::RequestSent(request) => {
                    format!("sent {} {}", request.target, request.round)
                }
                CallEvent::RequestFinished { request, outcome, .. } => {
                    format!("finished {} {}", request.round, outcome.is_ok())
                }
                CallEvent::InputRequested { context, .. } => {
                    format!("requested {} {}", context.key, context.input_round)
                }
                CallEvent::InputFinished { context, outcome, .. } => {
                    let outcome = outcome.map_or_else(ToString::to_string, ToString::to_string);
                    format!("answered {} {outcome}", context.key)
                }
                _ => "?".to_owned(),
            };
            log.lock().unwrap().push(line);
        })
        .policy(async |context, request| {
            Ok(match request {
                InputRequest::Roots => PolicyDecision::Refuse("not ours to tell".to_owned()),
                _ if context.key == "a" => PolicyDecision::Decline,
                _ => PolicyDecision::Allow,
            })
        })
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?))
        .on_roots(async |_| panic!("the policy refuses the request"))
        .build();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), r#"the policy refused input request "where": not ours to tell"#);
    let events = events.lock().unwrap().clone();
    let expected = [
        "sent t 1",
        "finished 1 true",
        "sent t 2",
        "finished 2 true",
        "requested a 1",
        r#"answered a {"action":"decline"}"#,
        "sent t 3",
        "finished 3 true",
        "requested b 2",
        r#"answered b {"action":"accept","content":{"n":7}}"#,
        "requested where 2",
        r#"answered where the policy refused input request "where": not ours to tell"#,
    ];
    assert_eq!(events, expected);
}
