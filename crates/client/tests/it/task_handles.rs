//! Tasks that are persisted, resumed, observed and cancelled.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use mrtr_client::{
    CallEvent, CallOutcome, Client, OutgoingRequest, PendingCall, SubscriptionEvent, Transport,
    TransportError,
};
use mrtr_schema::Object;
use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Response};
use mrtr_schema::subscription::{SubscriptionFilter, name};
use mrtr_schema::tasks::EXTENSION;
use mrtr_schema::tool::CallToolResult;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::tasks::{accepting, completed, created, extension, requires, server, task, working};
use crate::{Reply, ScriptedServer};

fn through_json(call: &PendingCall) -> PendingCall {
    serde_json::from_str(&serde_json::to_string(call).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn task_is_resumed_by_another_client_without_asking_again() {
    let server = server(
        created(&json!({})),
        [working(), requires(&["a"]), requires(&["a", "b"]), requires(&["a"]), completed("done")],
    );
    let client = || accepting(&server).build();
    let none = InputResponses::default();
    let working = |outcome| match outcome {
        CallOutcome::Working(call) => through_json(&call),
        other => panic!("{other:?}"),
    };
    let asked = |outcome| match outcome {
        CallOutcome::InputRequired(call) => through_json(&call),
        other => panic!("{other:?}"),
    };
    let answer = |key: &str| {
        let mut all = InputResponses::default();
        all.push(key, &json!({ "action": "accept", "content": {} })).unwrap();
        all
    };
    let keys = |call: &PendingCall| -> Vec<String> {
        call.input_requests().0.iter().map(|(key, _)| key.clone()).collect()
    };
    let start = Instant::now();
    let first = client().begin_tool("t", json!({})).await.unwrap();
    assert_eq!(server.methods(), ["tools/call"], "the task exists, and nothing was polled");
    let call = working(first);
    assert_eq!(call.task_id(), Some("kT9w"));
    assert!(!format!("{call:?}").contains("kT9w"), "the id may be a credential");

    let call = working(client().resume::<CallToolResult>(call, &none).await.unwrap());
    let call = asked(client().resume::<CallToolResult>(call, &none).await.unwrap());
    assert_eq!(keys(&call), ["a"]);
    let error = client().resume::<CallToolResult>(call.clone(), &none).await.unwrap_err();
    assert!(error.is_handler(), "{error}");
    let call = working(client().resume::<CallToolResult>(call, &answer("a")).await.unwrap());
    let call = asked(client().resume::<CallToolResult>(call, &none).await.unwrap());
    assert_eq!(keys(&call), ["b"], "`a` was answered");
    let call = working(client().resume::<CallToolResult>(call, &answer("b")).await.unwrap());
    let expected = ["tasks/get", "tasks/get", "tasks/update", "tasks/get", "tasks/update"];
    assert_eq!(server.methods(), expected);
    assert!(start.elapsed() < Duration::from_secs(1), "a restored call is polled soon");
    let result: CallToolResult = client().finish(call).await.unwrap();
    assert_eq!(result.text(), "done");
    assert_eq!(server.methods(), ["tasks/get", "tasks/get"]);
}

/// A loop over `resume` in one process keeps the interval.
#[tokio::test(start_paused = true)]
async fn resumed_task_is_polled_at_the_interval() {
    let states = std::iter::repeat_n(working(), 3).chain([completed("done")]);
    let server = server(created(&json!({})), states);
    let client = server.client().with_tasks().build();
    let start = Instant::now();
    let mut outcome = client.begin_tool("t", json!({})).await.unwrap();
    while let CallOutcome::Working(call) = outcome {
        outcome = client.resume(call, &InputResponses::default()).await.unwrap();
    }
    assert!((20..23).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// What was planned, and not waited for because the call was stored, is not part of its age.
#[tokio::test(start_paused = true)]
async fn stored_task_does_not_expire_by_delays_that_were_not_waited_for() {
    let states = std::iter::repeat_n(working(), 20).chain([completed("done")]);
    let server = server(created(&json!({ "ttlMs": 12_000 })), states);
    let client = server.client().with_tasks().build();
    let mut outcome = client.begin_tool("t", json!({})).await.unwrap();
    let start = Instant::now();
    while let CallOutcome::Working(call) = outcome {
        let call = through_json(&call);
        outcome = client.resume(call, &InputResponses::default()).await.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
}

/// The serialized form is stable; calls that are no task keep format version 1.
#[tokio::test(start_paused = true)]
async fn task_has_a_stable_json_form() {
    let server = server(created(&json!({ "ttlMs": 60_000 })), [working()]);
    let outcome = server.client().with_tasks().build().begin_tool("t", json!({})).await.unwrap();
    let CallOutcome::Working(call) = outcome else { panic!("{outcome:?}") };
    let stored = serde_json::to_value(&call).unwrap();
    let expected = json!({
        "mrtrContinuation": 2,
        "method": "tools/call",
        "params": [["name", "\"t\""], ["arguments", "{}"]],
        "task": { "taskId": "kT9w", "answeredKeys": [], "pollIntervalMs": 5000, "ttlMs": 60_000,
            "waitedMs": 5000, "stuckPolls": 0 },
        "questionRounds": 0,
        "stateRounds": 0,
        "lastId": 1,
        "pace": 1,
    });
    assert_eq!(stored, expected);
    let with_id = |id: &str| {
        let mut task = expected["task"].clone();
        task["taskId"] = json!(id);
        json!({ "task": task })
    };
    for (change, message) in [
        (json!({ "mrtrContinuation": 3 }), "version 3; this client reads versions 1 and 2"),
        (json!({ "mrtrContinuation": 1 }), "if and only if its format version is 2"),
        (json!({ "task": null }), "if and only if its format version is 2"),
        (json!({ "method": "prompts/get" }), "cannot have the method \"prompts/get\""),
        (with_id(&"x".repeat(5000)), "more than 4096"),
    ] {
        let mut stored = stored.clone();
        stored.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let error = serde_json::from_value::<PendingCall>(stored).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Applications persist the call with each update, and show the status.
#[tokio::test(start_paused = true)]
async fn observer_sees_each_update_of_a_task_and_can_store_the_call() {
    let stored = Arc::new(Mutex::new(Vec::new()));
    let store = Arc::clone(&stored);
    let half = task("working", &json!({ "statusMessage": "half" }));
    let server = server(created(&json!({})), [half, requires(&["a"]), completed("done")]);
    let client = accepting(&server).on_event(move |event| {
        if let CallEvent::TaskUpdated { call, task, label, .. } = event {
            assert_eq!(label, Some("w"));
            let status = task.status_message.clone().unwrap_or(task.status.as_str().to_owned());
            store.lock().unwrap().push((status, through_json(call)));
        }
    });
    client.build().with_label("w").call_tool("t", json!({})).await.unwrap();
    let stored = stored.lock().unwrap().clone();
    let statuses: Vec<_> = stored.iter().map(|(status, _)| status.as_str()).collect();
    assert_eq!(statuses, ["working", "half", "input_required", "completed"]);
    assert_eq!(stored[2].1.input_requests().0.len(), 1);
    let last_id = |call: &PendingCall| serde_json::to_value(call).unwrap()["lastId"].clone();
    let ids: Vec<_> = stored.iter().map(|(_, call)| last_id(call)).collect();
    assert_eq!(ids, [1, 2, 3, 5], "another process continues after them");
    for (_, call) in stored {
        server.received();
        let result: CallToolResult = accepting(&server).build().finish(call).await.unwrap();
        assert_eq!(result.text(), "done");
        assert!(!server.methods().contains(&"tools/call".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn task_is_cancelled_by_its_own_method_and_only_on_request() {
    let server = server(created(&json!({})), [working()]);
    let client = server.client().with_tasks().build();
    let outcome = client.begin_tool("t", json!({})).await.unwrap();
    let CallOutcome::Working(call) = outcome else { panic!("{outcome:?}") };
    server.received();
    client.cancel(&call).await.unwrap();
    let received = server.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].method, "tasks/cancel");
    assert_eq!(received[0].params, json!({ "taskId": "kT9w" }));
    assert_eq!(extension(&received[0]), Some(&json!({})));

    let wait = Duration::from_secs(12);
    for (cancels, expected) in [(false, 0), (true, 1)] {
        let client = if cancels { client.with_cancel_on_drop() } else { client.clone() };
        let dropped = tokio::time::timeout(wait, client.call_tool("t", json!({}))).await;
        assert!(dropped.is_err());
        let timed_out = client.with_call_timeout(wait).call_tool("t", json!({})).await;
        assert!(timed_out.unwrap_err().is_timeout());
        // Paused for later, so not cancelled.
        client.begin_tool("t", json!({})).await.unwrap();
        tokio::time::sleep(wait).await;
        let methods = server.methods();
        let cancelled = methods.iter().filter(|method| *method == "tasks/cancel").count();
        assert_eq!(cancelled, 2 * expected);
        assert!(methods.iter().all(|method| method != "notifications/cancelled"));
    }
}

#[tokio::test(start_paused = true)]
async fn cancellation_is_sent_again_and_its_error_is_returned() {
    let attempts = Mutex::new(0);
    let server = ScriptedServer::new(move |received| match received.method.as_str() {
        "tools/call" => Reply::Result(created(&json!({}))),
        "tasks/cancel" => {
            let mut attempts = attempts.lock().unwrap();
            *attempts += 1;
            if *attempts == 1 {
                return Reply::Interrupted;
            }
            Reply::Error(ErrorObject::invalid_params("Task not found"))
        }
        other => Reply::Error(ErrorObject::method_not_found(other)),
    });
    let client = server.client().with_tasks().build();
    let outcome = client.begin_tool("t", json!({})).await.unwrap();
    let CallOutcome::Working(call) = outcome else { panic!("{outcome:?}") };
    let error = client.cancel(&call).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32602);
    assert_eq!(server.methods(), ["tools/call", "tasks/cancel", "tasks/cancel"]);
    // A server that creates tasks, and does not have the methods.
    let error = client.finish::<CallToolResult>(call).await.unwrap_err();
    assert_eq!(error.as_server_error().unwrap().code, -32601);
    // A call that is no task has nothing to cancel.
    let asks = ScriptedServer::new(|_| {
        Reply::Result(json!({ "resultType": "input_required",
            "inputRequests": { "a": { "method": "roots/list" } } }))
    });
    let client = asks.client().with_tasks().on_roots(async |_| Ok(Vec::new())).build();
    let outcome = client.begin_tool("t", json!({})).await.unwrap();
    let CallOutcome::InputRequired(call) = outcome else { panic!("{outcome:?}") };
    client.cancel(&call).await.unwrap();
    assert_eq!(asks.methods(), ["tools/call"]);
}

/// A transport that delivers notifications of one subscription.
struct Announces(Vec<Notification>);

impl Transport for Announces {
    async fn send(&self, outgoing: OutgoingRequest<'_>) -> Result<Response, TransportError> {
        let params: Value =
            serde_json::from_str(outgoing.request.params.unwrap().as_str()).unwrap();
        assert_eq!(params["notifications"], json!({ "taskIds": ["kT9w"] }));
        self.0.iter().cloned().for_each(outgoing.on_notification);
        Err(TransportError::subscription_ended("the end"))
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_reports_changes_of_tasks() {
    let notification = |name: &str, params: Value| Notification::new(name, &params).unwrap();
    let filter = SubscriptionFilter::new().with_task("kT9w");
    let acknowledged = json!({ "notifications": { "taskIds": ["kT9w"] } });
    let client = Client::builder(Announces(vec![
        notification(name::ACKNOWLEDGED, acknowledged),
        notification(name::TASK, completed("done")),
        notification(name::TASK, json!({ "taskId": "kT9w" })),
    ]));
    let events: Vec<_> = client.build().listen(&filter).unwrap().collect().await;
    assert_eq!(events.len(), 3);
    let Ok(SubscriptionEvent::Acknowledged(granted)) = &events[0] else { panic!("{events:?}") };
    assert_eq!(*granted, filter);
    let Ok(SubscriptionEvent::TaskUpdated(task)) = &events[1] else { panic!("{events:?}") };
    assert!(task.status.is_terminal() && task.task_id == "kT9w");
    assert!(events[2].as_ref().unwrap_err().is_protocol());
}

#[tokio::test]
async fn subscription_declares_the_capabilities_of_its_client() {
    let server = ScriptedServer::new(|_| Reply::Result(json!({ "resultType": "complete" })));
    let capabilities = ClientCapabilities::new().with_extension(EXTENSION, Object::new());
    let client = server.client().build().with_capabilities(capabilities);
    let filter = SubscriptionFilter::new().with_task("kT9w");
    let _: Vec<_> = client.listen(&filter).unwrap().collect().await;
    assert_eq!(extension(&server.received()[0]), Some(&json!({})));
}
