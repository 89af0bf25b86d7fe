//! Calls that are put down and taken up, sent again, timed, watched and judged.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_client::{CallEvent, CallOutcome, PendingCall, PolicyDecision, RoundLimits};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::input::{InputRequest, InputResponses};
use mrtr_schema::prompt::GetPromptResult;
use mrtr_schema::tool::CallToolResult;
use serde_json::{Value, json};

use crate::{Answer, Asked, Scripted};

fn question(message: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "n": { "type": "integer", "maximum": 9 } },
            "required": ["n"],
        },
    } })
}

/// Puts the call off once, asks twice, and tells what it was told.
fn twice() -> Scripted {
    Scripted::new(|asked| {
        let state = asked.params.get("requestState").and_then(Value::as_str).unwrap_or_default();
        let at = |path: &str| asked.params.pointer(path).cloned().unwrap_or_default();
        let n = |key: &str| at(&format!("/inputResponses/{key}/content/n"));
        Answer::Result(match state {
            "" => json!({ "resultType": "input_required", "requestState": "put off" }),
            "put off" => json!({ "resultType": "input_required", "requestState": "one",
                "inputRequests": { "a": question("One?") } }),
            "one" => {
                json!({ "resultType": "input_required", "requestState": format!("two {}", n("a")),
                "inputRequests": { "b": question("Two?"), "where": { "method": "roots/list" } } })
            }
            other => json!({ "content": [{ "type": "text",
                "text": format!("{other} {} {}", n("b"), at("/arguments/x")) }] }),
        })
    })
}

fn answers(of: &[(&str, Value)]) -> InputResponses {
    let mut all = InputResponses::default();
    for (key, answer) in of {
        all.push(*key, answer).unwrap();
    }
    all
}

fn accept(n: impl serde::Serialize) -> Value {
    json!({ "action": "accept", "content": { "n": n } })
}

fn paused<T: std::fmt::Debug>(turn: CallOutcome<T>) -> PendingCall {
    match turn {
        CallOutcome::InputRequired(call) => call,
        CallOutcome::Complete(done) => panic!("{done:?}"),
    }
}

/// As another process would read it.
fn through_json(call: &PendingCall) -> PendingCall {
    serde_json::from_str(&serde_json::to_string(call).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_put_down_at_each_round_and_taken_up_by_others() {
    let server = twice();
    let client = || server.client().build();
    let arguments = json!({ "x": 9_007_199_254_740_993_u64 });
    let first = paused(client().begin_tool("t", arguments).await.unwrap());
    assert_eq!(
        (first.method(), first.target().as_str(), first.input_round()),
        ("tools/call", "t", 1)
    );
    let asked: Vec<_> = first.input_requests().0.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(asked, ["a"]);

    let one = answers(&[("a", accept(4))]);
    let second = client().resume::<CallToolResult>(through_json(&first), &one).await.unwrap();
    let second = through_json(&paused(second));
    assert_eq!(second.input_round(), 2);
    let two = answers(&[("b", accept(5)), ("where", json!({ "roots": [{ "uri": "file:///x" }] }))]);
    let third = client().resume::<CallToolResult>(second.clone(), &two).await.unwrap();
    let CallOutcome::Complete(result) = third else { panic!("{third:?}") };
    assert_eq!(result.text(), "two 4 5 9007199254740993");
    let states: Vec<_> =
        server.asked().iter().map(|asked| asked.params.get("requestState").cloned()).collect();
    assert_eq!(states, [None, Some(json!("put off")), Some(json!("one")), Some(json!("two 4"))]);

    // Or the handlers do the rest.
    let client = server.client();
    let client = client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?));
    let client = client.on_roots(async |_| Ok(Vec::new())).build();
    let result: CallToolResult = client.finish(through_json(&first)).await.unwrap();
    assert_eq!(result.text(), "two 7 7 9007199254740993");
    // The limits go on where they were.
    let limits = RoundLimits::default().with_input_rounds(1);
    let client = server.client().round_limits(limits).build();
    let error = client.resume::<CallToolResult>(first, &one).await.unwrap_err();
    assert!(error.is_too_many_rounds(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_do_not_fit_send_nothing_and_lose_nothing() {
    let server = twice();
    let client = server.client().build();
    let call = paused(client.begin_tool("t", json!({})).await.unwrap());
    server.asked();
    for (wrong, why) in [
        (answers(&[]), "missing response to input request \"a\""),
        (
            answers(&[("a", accept(10))]),
            "the response to input request \"a\" does not match its form",
        ),
        (
            answers(&[("a", accept("x"))]),
            "the response to input request \"a\" does not match its form",
        ),
        (
            answers(&[("a", json!({ "action": "shrug" }))]),
            "malformed response to input request \"a\"",
        ),
        (answers(&[("a", accept(1)), ("c", accept(1))]), "no input request has the key \"c\""),
    ] {
        let error = client.resume::<CallToolResult>(call.clone(), &wrong).await.unwrap_err();
        assert!(error.is_handler() && error.to_string().contains(why), "{error}");
    }
    let error = client.resume::<GetPromptResult>(call.clone(), &answers(&[])).await.unwrap_err();
    assert!(error.to_string().contains("missing response"), "{error}");
    let one = answers(&[("a", accept(1))]);
    let error = client.resume::<GetPromptResult>(call.clone(), &one).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot resume a tools/call call as prompts/get");
    assert_eq!(server.methods(), [""; 0]);
    // What is declined carries nothing.
    let decline = json!({ "action": "decline", "content": { "n": 3 } });
    paused(client.resume::<CallToolResult>(call, &answers(&[("a", decline)])).await.unwrap());
    assert_eq!(server.asked()[0].params["inputResponses"], json!({ "a": { "action": "decline" } }));
}

/// The written form is stable, and what is none is refused with the reason.
#[tokio::test(start_paused = true)]
async fn what_is_written_is_read_again_or_refused() {
    let server = twice();
    let call = paused(server.client().build().begin_tool("t", json!({ "x": 1 })).await.unwrap());
    let written = serde_json::to_value(&call).unwrap();
    let asked = serde_json::to_string(call.input_requests()).unwrap();
    let expected = json!({
        "mrtrContinuation": 1,
        "method": "tools/call",
        "params": [["name", "\"t\""], ["arguments", "{\"x\":1}"]],
        "requestState": "one",
        "inputRequests": asked,
        "questionRounds": 1,
        "stateRounds": 1,
        "pace": 0,
    });
    assert_eq!(written, expected);
    assert!(!format!("{call:?}").contains("arguments"), "arguments and state are nobody's to log");
    for (change, why) in [
        (json!({ "mrtrContinuation": 2 }), "version 2; this client reads version 1"),
        (json!({ "method": "tools/list" }), "a pending call cannot have the method \"tools/list\""),
        (json!({ "inputRequests": "[" }), "expected a map of input requests"),
        (json!({ "params": [["name", "{"]] }), "EOF"),
        (
            json!({ "inputRequests": null, "requestState": null }),
            "neither input requests nor request state",
        ),
    ] {
        let mut written = written.clone();
        written.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let error = serde_json::from_value::<PendingCall>(written).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// A leg that broke goes out again, with the same state and answers and another id, only if that was allowed.
#[tokio::test(start_paused = true)]
async fn a_broken_leg_is_sent_again_only_where_that_is_said_to_be_safe() {
    let breaks = |times: usize| {
        let (twice, left) = (twice(), Arc::new(AtomicUsize::new(times)));
        let answer = move |asked: &Asked| {
            let is_second = asked.params.get("requestState") == Some(&json!("one"));
            let breaks = is_second
                && left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                    .is_ok();
            if breaks { Answer::Broken } else { (twice.answer)(asked) }
        };
        Scripted::new(answer)
    };
    for (breaks_times, resends, goes_well) in
        [(1, 0, false), (1, 1, true), (3, 2, false), (3, 3, true)]
    {
        let server = breaks(breaks_times);
        let client = server.client();
        let client = client.on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?));
        let client = client.on_roots(async |_| Ok(Vec::new())).build().with_retries(resends);
        let called = client.call_tool("t", json!({ "x": 0 })).await;
        assert_eq!(called.is_ok(), goes_well, "{called:?}");
        let second: Vec<_> = server
            .asked()
            .into_iter()
            .filter(|asked| asked.params.get("requestState") == Some(&json!("one")))
            .collect();
        assert_eq!(second.len(), (breaks_times + 1).min(resends as usize + 1));
        assert!(
            second.windows(2).all(|two| two[0].params == two[1].params && two[0].id != two[1].id)
        );
    }
}

/// Handlers are a client's, and calls of one tool look alike: a label says whose a question is.
#[tokio::test]
async fn a_label_tells_calls_of_one_tool_apart() {
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let watched = Arc::clone(&seen);
    let client = twice().client();
    let client = client.on_form(async |question, _| {
        let n = question.label.as_deref().map_or(0, str::len);
        Ok(ElicitResult::accept(json!({ "n": n }))?)
    });
    let client = client.on_roots(async |_| Ok(Vec::new())).on_event(move |event| {
        if let CallEvent::RequestSent(request) = event {
            watched.lock().unwrap().push(request.label.map(str::to_owned));
        }
    });
    let client = client.build();
    let call = async |client: &mrtr_client::Client<_>| {
        client.call_tool("t", json!({ "x": 0 })).await.unwrap().text()
    };
    let (one, two) = (client.with_label("a"), client.with_label("ab"));
    let texts = tokio::join!(call(&one), call(&client), call(&two));
    let [a, none, ab] = ["two 1 1 0", "two 0 0 0", "two 2 2 0"].map(str::to_owned);
    assert_eq!(texts, (a, none, ab));
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, [None, Some("a".to_owned()), Some("ab".to_owned())]);
}

/// The deadline is for the whole call; people's time can be left out of it; and the error says what was asked.
#[tokio::test(start_paused = true)]
async fn a_deadline_can_leave_out_the_time_that_people_take() {
    for (patient, goes_well) in [(false, false), (true, true)] {
        let client = twice().client().call_timeout(Duration::from_secs(10));
        let client = client.on_form(async |_, _| {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok(ElicitResult::accept(json!({ "n": 7 }))?)
        });
        let client = client.on_roots(async |_| Ok(Vec::new()));
        let client = if patient { client.exclude_handler_time() } else { client };
        let called = client.build().call_tool("t", json!({ "x": 0 })).await;
        assert_eq!(called.is_ok(), goes_well);
        if let Err(error) = called {
            assert!(error.is_timeout());
            assert_eq!(
                error.to_string(),
                r#"tools/call t timed out after 10s; last input requests: "a" "One?""#
            );
        }
    }
    // It is not for each leg anew.
    let slow = Scripted::new(|_| {
        Answer::Result(json!({ "resultType": "input_required", "requestState": "again" }))
    });
    let limits = RoundLimits::default().with_state_rounds(1000);
    let client = slow.client().call_timeout(Duration::from_secs(10)).round_limits(limits).build();
    let begun = tokio::time::Instant::now();
    assert!(client.call_tool("t", json!({})).await.unwrap_err().is_timeout());
    assert_eq!(begun.elapsed().as_secs(), 10);
}

/// Whoever looks on sees every leg and question, before and after, and whoever judges is asked first.
#[tokio::test(start_paused = true)]
async fn a_call_is_watched_and_judged() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let client = twice()
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
        .policy(async |question, request| {
            Ok(match request {
                InputRequest::Roots => PolicyDecision::Refuse("not ours to tell".to_owned()),
                _ if question.key == "a" => PolicyDecision::Decline,
                _ => PolicyDecision::Allow,
            })
        })
        .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "n": 7 }))?))
        .on_roots(async |_| panic!("the policy comes first"))
        .build();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), r#"the policy refused input request "where": not ours to tell"#);
    let seen = seen.lock().unwrap().clone();
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
    assert_eq!(seen, expected);
}
