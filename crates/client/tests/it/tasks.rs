//! Calls that the server turns into tasks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_client::{CallError, CallEvent, ClientBuilder};
use mrtr_schema::elicitation::ElicitResult;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::tasks::EXTENSION;
use mrtr_schema::tool::CallToolResult;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{ReceivedRequest, Reply, ScriptedServer};

/// A task as JSON, with further members.
pub(crate) fn task(status: &str, more: &Value) -> Value {
    let mut task = json!({ "resultType": "complete", "taskId": "kT9w", "status": status,
        "createdAt": "2026-11-24T10:30:00Z", "lastUpdatedAt": "2026-11-24T10:30:00Z",
        "ttlMs": null, "pollIntervalMs": 5000 });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

pub(crate) fn working() -> Value {
    task("working", &json!({}))
}

pub(crate) fn created(more: &Value) -> Value {
    let mut created = task("working", &json!({ "resultType": "task" }));
    created.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    created
}

pub(crate) fn completed(text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    task("completed", &json!({ "result": { "content": content } }))
}

/// A task that requires input under these keys.
pub(crate) fn requires(keys: &[&str]) -> Value {
    let form = json!({ "method": "elicitation/create", "params": { "message": "?",
        "requestedSchema": { "type": "object", "properties": {} } } });
    let requests: serde_json::Map<_, _> =
        keys.iter().map(|key| ((*key).to_owned(), form.clone())).collect();
    task("input_required", &json!({ "inputRequests": requests }))
}

/// A server that creates a task, and returns these results of `tasks/get` in turn; the last one
/// again and again. Other methods are acknowledged.
pub(crate) fn server(created: Value, states: impl IntoIterator<Item = Value>) -> ScriptedServer {
    let states = Mutex::new(states.into_iter().collect::<VecDeque<_>>());
    ScriptedServer::new(move |received| match received.method.as_str() {
        "tools/call" | "prompts/get" => Reply::Result(created.clone()),
        "tasks/get" => {
            let mut states = states.lock().unwrap();
            let last = states.len() == 1;
            Reply::Result(if last { states[0].clone() } else { states.pop_front().unwrap() })
        }
        _ => Reply::Result(json!({ "resultType": "complete" })),
    })
}

pub(crate) fn accepting(server: &ScriptedServer) -> ClientBuilder<ScriptedServer> {
    server.client().with_tasks().on_form(async |_, _| Ok(ElicitResult::accept(json!({}))?))
}

async fn call(server: &ScriptedServer) -> Result<CallToolResult, CallError> {
    accepting(server).build().call_tool("t", json!({})).await
}

pub(crate) fn extension(received: &ReceivedRequest) -> Option<&Value> {
    received.meta["io.modelcontextprotocol/clientCapabilities"].get("extensions")?.get(EXTENSION)
}

#[tokio::test(start_paused = true)]
async fn task_is_polled_at_the_interval_of_the_server_until_it_is_complete() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let recorder = Arc::clone(&times);
    let slower = task("working", &json!({ "pollIntervalMs": 60_000, "statusMessage": "half" }));
    let server = server(created(&json!({})), [working(), slower, completed("done")]);
    let client = server.client().with_tasks().on_event(move |event| {
        if let CallEvent::RequestSent(request) = event {
            assert_eq!(request.target, "t");
            recorder.lock().unwrap().push(Instant::now());
        }
    });
    let result = client.build().call_tool("t", json!({ "x": 1 })).await.unwrap();
    assert_eq!(result.text(), "done");
    let received = server.received();
    let methods: Vec<_> = received.iter().map(|received| received.method.as_str()).collect();
    assert_eq!(methods, ["tools/call", "tasks/get", "tasks/get", "tasks/get"]);
    for received in &received {
        assert_eq!(extension(received), Some(&json!({})), "each request declares the extension");
    }
    for received in &received[1..] {
        assert_eq!(received.params, json!({ "taskId": "kT9w" }));
    }
    let delays: Vec<_> =
        times.lock().unwrap().windows(2).map(|two| two[1].duration_since(two[0])).collect();
    for (delay, interval) in delays.iter().zip([5, 5, 60].map(Duration::from_secs)) {
        let allowed = interval..=interval.mul_f64(1.1) + Duration::from_millis(1);
        assert!(allowed.contains(delay), "{delay:?}, not within {allowed:?}");
    }
}

/// The interval is bounded: a server cannot make the client poll without a pause, or never again.
#[tokio::test(start_paused = true)]
async fn poll_interval_is_bounded_and_has_a_default() {
    for (interval, expected) in [
        (json!(0), Duration::from_millis(100)),
        (json!(u64::MAX), Duration::from_hours(1)),
        (json!(1e300), Duration::from_hours(1)),
        (json!(-5), Duration::from_millis(100)),
        (Value::Null, Duration::from_millis(500)),
    ] {
        let created = created(&json!({ "pollIntervalMs": interval }));
        let start = Instant::now();
        call(&server(created, [completed("done")])).await.unwrap();
        let allowed = expected..=expected.mul_f64(1.1) + Duration::from_millis(1);
        assert!(allowed.contains(&start.elapsed()), "{interval}: {:?}", start.elapsed());
    }
    // Without an interval, the delays grow.
    let silent = task("working", &json!({ "pollIntervalMs": null }));
    let states = std::iter::repeat_n(silent, 20).chain([completed("done")]);
    let start = Instant::now();
    call(&server(created(&json!({ "pollIntervalMs": null })), states)).await.unwrap();
    assert!(start.elapsed() > Duration::from_mins(4), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn call_that_is_no_task_is_complete_at_once() {
    let server = ScriptedServer::new(|_| Reply::Result(json!({ "content": [], "isError": true })));
    assert!(call(&server).await.unwrap().is_error);
    assert_eq!(server.methods(), ["tools/call"]);
}

/// The first status need not be `working`. Its members are only in the result of a poll.
#[tokio::test(start_paused = true)]
async fn task_that_is_created_in_another_status_is_polled_at_once() {
    for status in ["input_required", "completed"] {
        let server = server(created(&json!({ "status": status })), [completed("done")]);
        let start = Instant::now();
        assert_eq!(call(&server).await.unwrap().text(), "done");
        assert_eq!(start.elapsed(), Duration::ZERO, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_key_of_a_task_is_answered_once() {
    let server = server(
        created(&json!({})),
        [requires(&["a"]), requires(&["a"]), requires(&["a", "b"]), working(), completed("done")],
    );
    assert_eq!(call(&server).await.unwrap().text(), "done");
    let received = server.received();
    let updates: Vec<_> = received.iter().filter(|r| r.method == "tasks/update").collect();
    let answer = json!({ "action": "accept", "content": {} });
    assert_eq!(updates.len(), 2);
    for (update, key) in updates.iter().zip(["a", "b"]) {
        let expected = json!({ "taskId": "kT9w", "inputResponses": { key: answer } });
        assert_eq!(update.params, expected);
        assert_eq!(extension(update), Some(&json!({})));
    }
}

#[tokio::test(start_paused = true)]
async fn task_that_never_ends_its_input_rounds_is_given_up() {
    // The same key again and again, although it was answered.
    let stuck = server(created(&json!({})), [requires(&["a"])]);
    let error = call(&stuck).await.unwrap_err();
    assert!(error.is_too_many_rounds(), "{error}");
    let methods = stuck.methods();
    assert_eq!(methods.iter().filter(|method| *method == "tasks/update").count(), 1);
    assert_eq!(methods.iter().filter(|method| *method == "tasks/get").count(), 62);
    // No key at all.
    let error = call(&server(created(&json!({})), [requires(&[])])).await.unwrap_err();
    assert!(error.is_too_many_rounds(), "{error}");
    // A new key in each poll.
    let keys: Vec<_> = (0..100).map(|n| format!("k{n}")).collect();
    let endless = server(created(&json!({})), keys.iter().map(|key| requires(&[key])));
    let error = call(&endless).await.unwrap_err();
    assert!(error.to_string().contains("input in more than 10 rounds"), "{error}");
    // Too many keys at once.
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let error = call(&server(created(&json!({})), [requires(&keys)])).await.unwrap_err();
    assert!(error.to_string().contains("100 input requests in one round"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn end_of_a_task_is_the_end_of_the_call() {
    let end = async |state: Value| call(&server(created(&json!({})), [state])).await;
    let failed = json!({ "error": { "code": -32603, "message": "rate limit" } });
    let error = end(task("failed", &failed)).await.unwrap_err();
    assert!(error.is_task_failed() && !error.is_task_cancelled(), "{error}");
    assert_eq!(error.as_server_error().unwrap().message, "rate limit");
    assert_eq!(error.to_string(), "the task failed: rate limit (-32603)");

    let unknown = ErrorObject::invalid_params("the task does not exist");
    let refusing = ScriptedServer::new(move |received| match received.method.as_str() {
        "tools/call" => Reply::Result(created(&json!({}))),
        _ => Reply::Error(unknown.clone()),
    });
    let error = call(&refusing).await.unwrap_err();
    assert!(error.as_server_error().is_some() && !error.is_task_failed(), "{error}");

    let stopped = json!({ "statusMessage": "stopped\n" });
    let error = end(task("cancelled", &stopped)).await.unwrap_err();
    assert!(error.is_task_cancelled() && !error.is_protocol(), "{error}");
    assert_eq!(error.to_string(), r#"the task was cancelled: "stopped\n""#);

    let result = json!({ "result": { "content": [], "isError": true } });
    assert!(end(task("completed", &result)).await.unwrap().is_error);
}

/// Its store may be down for a moment: the task goes on.
#[tokio::test(start_paused = true)]
async fn internal_error_of_a_poll_does_not_end_the_call() {
    for method in ["tasks/get", "tasks/update"] {
        let failures = Mutex::new(3);
        let states = server(created(&json!({})), [requires(&["a"]), completed("done")]);
        let server = ScriptedServer::new(move |received| {
            let mut failures = failures.lock().unwrap();
            if received.method == method && *failures > 0 {
                *failures -= 1;
                return Reply::Error(ErrorObject::internal("The task store is unavailable"));
            }
            (states.reply)(received)
        });
        assert_eq!(call(&server).await.unwrap().text(), "done");
        let sent = server.received();
        let again: Vec<_> = sent.iter().filter(|received| received.method == method).collect();
        assert!(again.len() > 3 && again[..4].iter().all(|one| one.params == again[0].params));
    }
    // Not without end, and the task is not cancelled.
    let down = ScriptedServer::new(|received| match received.method.as_str() {
        "tools/call" => Reply::Result(created(&json!({}))),
        _ => Reply::Error(ErrorObject::internal("The task store is unavailable")),
    });
    let client = accepting(&down).build().with_cancel_on_drop();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32603);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let methods = down.methods();
    assert_eq!(methods.len(), 1 + 13);
    assert!(methods.iter().all(|method| method != "tasks/cancel"));
    // Too little time for the next attempt is a timeout.
    let client = client.with_call_timeout(Duration::from_secs(12));
    client.call_tool("t", json!({})).await.unwrap_err();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(down.methods().iter().any(|method| method == "tasks/cancel"));
}

/// A task that outlives its `ttlMs` by the client's own waits is given up.
#[tokio::test(start_paused = true)]
async fn task_that_outlives_its_ttl_is_given_up() {
    let state = task("working", &json!({ "ttlMs": 60_000 }));
    let start = Instant::now();
    let error = call(&server(created(&json!({ "ttlMs": 60_000 })), [state])).await.unwrap_err();
    assert!(error.is_task_expired() && !error.is_timeout(), "{error}");
    let elapsed = start.elapsed().as_secs();
    assert!((60..80).contains(&elapsed), "{elapsed}");
    // The server may extend it.
    let states = (0..100).map(|n| task("working", &json!({ "ttlMs": 60_000 + n * 5000 })));
    let server = server(created(&json!({})), states.chain([completed("done")]));
    call(&server).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn invalid_responses_about_tasks_are_protocol_errors() {
    let malformed = |more: Value| task("working", &more);
    let huge = "x".repeat(1 << 20);
    for (first, state, why) in [
        (created(&json!({ "taskId": 5 })), working(), "malformed result of tools/call"),
        (created(&json!({ "taskId": huge })), working(), "has 1048576 bytes, more than 4096"),
        (created(&json!({ "ttlMs": "x" })), working(), "malformed result of tools/call"),
        (created(&json!({})), malformed(json!({ "resultType": "task" })), "expected \"complete\""),
        (created(&json!({})), malformed(json!({ "taskId": "other" })), "returned another task"),
        (created(&json!({})), malformed(json!({ "status": "done" })), "unknown variant `done`"),
        (created(&json!({})), malformed(json!({ "status": "completed" })), "requires `result`"),
        (created(&json!({})), malformed(json!({ "status": "failed" })), "requires `error`"),
        (created(&json!({})), json!([]), "malformed result of tasks/get"),
        (
            created(&json!({})),
            task("completed", &json!({ "result": { "resultType": "input_required" } })),
            "completed with a result of type \"input_required\"",
        ),
    ] {
        let error = call(&server(first, [state])).await.unwrap_err();
        assert!(error.is_protocol() && error.to_string().contains(why), "{error}");
        assert!(error.to_string().len() < 500);
    }
    let unacknowledged = ScriptedServer::new(|received| {
        Reply::Result(match received.method.as_str() {
            "tools/call" => created(&json!({})),
            "tasks/get" => requires(&["a"]),
            _ => json!({ "resultType": "task" }),
        })
    });
    let error = call(&unacknowledged).await.unwrap_err();
    assert!(error.to_string().contains("acknowledged tasks/update"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn task_is_refused_for_other_methods_and_without_the_declaration() {
    let server = server(created(&json!({})), [completed("done")]);
    let client = server.client().with_tasks().build();
    let error = client.get_prompt("p", json!({})).await.unwrap_err();
    assert!(error.is_protocol(), "{error}");
    assert!(error.to_string().contains("prompts/get must not create a task"), "{error}");

    let client = server.client().build();
    let error = client.call_tool("t", json!({})).await.unwrap_err();
    assert!(error.is_protocol(), "{error}");
    assert!(error.to_string().contains("did not declare io.modelcontextprotocol/tasks"), "{error}");
    let received = server.received();
    assert_eq!(received.len(), 2, "nothing is polled");
    assert_eq!(extension(&received[1]), None);
}

/// Requests about a task are sent again by themselves. The call itself is not.
#[tokio::test(start_paused = true)]
async fn only_requests_about_a_task_are_sent_again_after_an_interruption() {
    // More interruptions than one request may have in a row.
    let states = std::iter::repeat_n(working(), 15);
    let states = [requires(&["a"])].into_iter().chain(states).chain([completed("done")]);
    let inner = server(created(&json!({})), states);
    let last = Mutex::new(Value::Null);
    let flaky = ScriptedServer::new(move |received| {
        // Every other attempt fails.
        let attempt = json!([received.method, received.params]);
        let mut last = last.lock().unwrap();
        if received.method != "tools/call" && *last != attempt {
            *last = attempt;
            return Reply::Interrupted;
        }
        *last = Value::Null;
        (inner.reply)(received)
    });
    assert_eq!(call(&flaky).await.unwrap().text(), "done");
    let received = flaky.received();
    let count = |method: &str| received.iter().filter(|one| one.method == method).count();
    assert_eq!((count("tools/call"), count("tasks/get"), count("tasks/update")), (1, 34, 2));

    let interrupted = ScriptedServer::new(|_| Reply::Interrupted);
    assert!(call(&interrupted).await.unwrap_err().as_transport_error().is_some());
    assert_eq!(interrupted.methods(), ["tools/call"]);
    // Not for ever.
    let gone = ScriptedServer::new(|received| match received.method.as_str() {
        "tools/call" => Reply::Result(created(&json!({}))),
        _ => Reply::Interrupted,
    });
    assert!(call(&gone).await.unwrap_err().as_transport_error().is_some());
    assert_eq!(gone.methods().len(), 14);
}

/// `ttlMs` of a task is not a caching hint.
#[tokio::test(start_paused = true)]
async fn tasks_are_not_cached() {
    let state = task("working", &json!({ "ttlMs": 3_600_000 }));
    let server = server(created(&json!({})), [state]);
    let client = server.client().with_tasks().build();
    for _ in 0..2 {
        let _: Value = client.request("tasks/get", json!({ "taskId": "kT9w" })).await.unwrap();
    }
    assert_eq!(server.methods(), ["tasks/get", "tasks/get"]);
}

/// Rounds before the task are those of the call; the task has keys of its own.
#[tokio::test(start_paused = true)]
async fn call_becomes_a_task_after_a_round_with_input() {
    let inner = server(created(&json!({})), [requires(&["a"]), completed("done")]);
    let asks_first = ScriptedServer::new(move |received| {
        if received.method == "tools/call" && received.params.get("inputResponses").is_none() {
            let mut asks = requires(&["a"]);
            asks["resultType"] = json!("input_required");
            asks["requestState"] = json!("sealed");
            return Reply::Result(asks);
        }
        (inner.reply)(received)
    });
    assert_eq!(call(&asks_first).await.unwrap().text(), "done");
    let received = asks_first.received();
    let methods: Vec<_> = received.iter().map(|received| received.method.as_str()).collect();
    let expected = ["tools/call", "tools/call", "tasks/get", "tasks/update", "tasks/get"];
    assert_eq!(methods, expected);
    for received in &received[2..] {
        assert_eq!(received.params.get("requestState"), None);
    }
}
