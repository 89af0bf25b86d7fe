//! Calls that become tasks.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
use mrtr_server::{Context, Error, Principal, Tool};
use serde_json::{Value, json};

use crate::support::tasks::{TaskFleet, accept, id_of, order, text, with_tasks};
use crate::support::{Counter, Text, with_meta};

fn unknown_task() -> Value {
    json!({ "error": {
        "code": -32602,
        "message": "Invalid params: unknown `taskId`: the task does not exist",
    } })
}

fn missing_extension() -> Value {
    json!({ "error": {
        "code": -32021,
        "message": "Missing required client capability",
        "data": { "requiredCapabilities": {
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        } },
    } })
}

#[tokio::test(start_paused = true)]
async fn a_task_asks_and_completes_on_any_replica() {
    for policy in [TaskPolicy::immediately(), TaskPolicy::on_detach()] {
        let (held, placed) = (Counter::default(), Counter::default());
        let fleet = TaskFleet::start(3, || order(policy.clone(), &held, &placed));
        let created = fleet.call(0, json!({})).await;
        let id = id_of(&created);
        assert_eq!(id.len(), 22);
        for absent in ["result", "error", "inputRequests", "requestState", "task"] {
            assert_eq!(created.get(absent), None, "{created}");
        }
        assert_eq!(
            (created["ttlMs"].as_u64(), &created["status"]),
            (Some(86_400_000), &json!("working"))
        );
        assert_eq!(created["pollIntervalMs"], 1_000);

        let task = fleet.wait_for(1, &id, "input_required").await;
        let requests = task["inputRequests"].as_object().unwrap();
        assert_eq!(requests.keys().collect::<Vec<_>>(), ["one", "other"]);
        assert_eq!(requests["one"]["params"]["message"], "One?");

        // A partial answer is taken, and what is left is still required.
        let answers = json!({ "one": accept("a"), "unknown": { "ignored": true } });
        let acknowledged = fleet.answer(2, &id, answers).await;
        assert_eq!(acknowledged["resultType"], "complete");
        assert_eq!(acknowledged.get("taskId"), None);
        let task = fleet.get(0, &id).await;
        let left = task["inputRequests"].as_object().unwrap();
        assert_eq!(left.keys().collect::<Vec<_>>(), ["other"]);
        // The first answer stands.
        fleet.answer(2, &id, json!({ "one": accept("x") })).await;
        fleet.answer(0, &id, json!({ "other": accept("b") })).await;

        let task = fleet.wait_for(1, &id, "completed").await;
        assert_eq!(text(&task), "1: a and b");
        assert_eq!(task["resultType"], "complete");
        assert_eq!((held.get(), placed.get()), (1, 1));
        // The task has one end.
        fleet.answer(0, &id, json!({ "other": accept("c") })).await;
        assert_eq!(fleet.cancel(0, &id).await["resultType"], "complete");
        assert_eq!(fleet.get(2, &id).await, task);
    }
}

#[tokio::test(start_paused = true)]
async fn rounds_come_before_the_task_and_a_repeated_request_gets_the_same_one() {
    let runs = Counter::default();
    let fleet = TaskFleet::start(2, || {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let before: Text = cx.elicit("q", "Before?").await?;
                cx.detach().await?;
                cx.step("s", async |_| Ok(runs.increment())).await?;
                let after: Text = cx.elicit("q2", "After?").await?;
                Ok::<_, Error>(format!("{}, {}", before.text, after.text))
            }
        });
        tool.task(TaskPolicy::on_detach())
    });
    let asked = fleet.call(0, json!({})).await;
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(fleet.connections[0].operations.load(Ordering::SeqCst), 0);
    let retry = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "q": accept("a") },
    });
    let id = id_of(&fleet.call(0, retry.clone()).await);
    fleet.wait_for(1, &id, "input_required").await;
    assert_eq!(id_of(&fleet.call(1, retry.clone()).await), id);
    let other =
        json!({ "requestState": retry["requestState"], "inputResponses": { "q": accept("b") } });
    assert_ne!(id_of(&fleet.call(1, other).await), id, "another answer is another task");
    fleet.answer(1, &id, json!({ "q2": accept("c") })).await;
    assert_eq!(text(&fleet.wait_for(1, &id, "completed").await), "a, c");
    assert_eq!(runs.get(), 2, "once for each task");
}

#[tokio::test(start_paused = true)]
async fn a_fast_call_does_not_touch_the_store_and_a_slow_one_goes_on() {
    let runs = Counter::default();
    let fleet = TaskFleet::start(1, || {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context, Text { text }: Text| {
            let runs = runs.clone();
            async move {
                let seconds = text.parse().unwrap();
                let step = cx.step("s", async |_| {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok(runs.increment())
                });
                let run = step.await?;
                Ok::<_, Error>(run.to_string())
            }
        });
        tool.task(TaskPolicy::after(Duration::from_secs(5)))
    });
    let fast = fleet.call(0, json!({ "arguments": { "text": "4" } })).await;
    assert_eq!(fast["content"][0]["text"], "1");
    let operations = &fleet.connections[0].operations;
    assert_eq!(operations.load(Ordering::SeqCst), 0);
    // Much longer than a request may take.
    let id = id_of(&fleet.call(0, json!({ "arguments": { "text": "600" } })).await);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "2");
    assert_eq!(runs.get(), 2, "the step was not interrupted");
}

#[tokio::test(start_paused = true)]
async fn a_client_without_the_extension_gets_no_task() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(1, || order(TaskPolicy::immediately(), &held, &placed));
    let params = with_meta(json!({ "name": "t", "arguments": {} }));
    let result = fleet.send(0, "tools/call", params).await;
    assert_eq!(result["resultType"], "input_required");
    // Declared is what this request declares.
    let id = id_of(&fleet.call(0, json!({})).await);
    for (method, more) in [
        ("tasks/get", json!({})),
        ("tasks/update", json!({ "inputResponses": {} })),
        ("tasks/cancel", json!({})),
        ("subscriptions/listen", json!({ "notifications": { "taskIds": [&id] } })),
    ] {
        for id in [&*id, "unknown"] {
            let mut params = with_meta(json!({ "taskId": id }));
            params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_eq!(fleet.send(0, method, params).await, missing_extension(), "{method}");
        }
    }
    let required =
        TaskFleet::start(1, || order(TaskPolicy::immediately().required(), &held, &placed));
    let params = with_meta(json!({ "name": "t", "arguments": {} }));
    assert_eq!(required.send(0, "tools/call", params).await, missing_extension());
    for removed in ["tasks/result", "tasks/list"] {
        let result = fleet.send(0, removed, with_tasks(json!({ "taskId": id }))).await;
        assert_eq!(result["error"]["code"], -32601);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_exists_for_its_caller_only() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(2, || order(TaskPolicy::immediately(), &held, &placed));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    let mallory = Principal::new("https://login.example", "mallory");
    let other_client = fleet.caller.clone().with_client("other");
    for (caller, id) in [(&mallory, &*id), (&other_client, &id), (&fleet.caller, "unknown")] {
        for (method, params) in [
            ("tasks/get", json!({ "taskId": id })),
            ("tasks/update", json!({ "taskId": id, "inputResponses": { "one": accept("x") } })),
            ("tasks/cancel", json!({ "taskId": id })),
        ] {
            let found = fleet.send_as(Some(caller), 1, method, with_tasks(params)).await;
            assert_eq!(found, unknown_task(), "{method}");
        }
    }
    let task = fleet.get(1, &id).await;
    assert_eq!(task["inputRequests"].as_object().unwrap().len(), 2, "nothing was answered");
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_end_a_task_as_they_end_a_call() {
    for (kind, status, expected) in [
        ("error", "completed", json!({ "isError": true })),
        ("panic", "failed", json!({ "code": -32603, "message": "Internal error" })),
        ("capability", "failed", json!({ "code": -32021 })),
    ] {
        let fleet = TaskFleet::start(1, || {
            let tool = Tool::new("t", "", move |cx: Context| async move {
                match kind {
                    "error" => Err(Error::new("No.")),
                    "panic" => panic!("a bug"),
                    _ => cx.elicit_url("u", "Go there", "https://a.example").await.map(|()| "x"),
                }
            });
            tool.task(TaskPolicy::immediately())
        });
        let id = id_of(&fleet.call(0, json!({})).await);
        let task = fleet.wait_for(0, &id, status).await;
        let (shown, hidden) =
            if status == "failed" { ("error", "result") } else { ("result", "error") };
        assert_eq!(task.get(hidden), None);
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(task[shown][name], *value, "{task}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_is_asked_again_under_another_key() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            let answer: Text = cx.elicit("q", "What?").await?;
            Ok::<_, Error>(answer.text)
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    let wrong = json!({ "action": "accept", "content": { "text": 5 } });
    assert_eq!(fleet.answer(0, &id, json!({ "q": wrong })).await["resultType"], "complete");
    let task = fleet.wait_for(0, &id, "input_required").await;
    let message = task["inputRequests"]["q~2"]["params"]["message"].as_str().unwrap();
    assert!(message.starts_with("What?\n(The last answer did not fit:"), "{message}");
    fleet.answer(0, &id, json!({ "q~2": accept("b") })).await;
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "b");
}

#[tokio::test(start_paused = true)]
async fn progress_is_the_status_message_and_a_task_expires() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            for n in 1..=3_u32 {
                tokio::time::sleep(Duration::from_secs(10)).await;
                cx.progress(f64::from(n), Some(3.0), (n == 1).then_some("The first"));
            }
            std::future::pending::<String>().await
        });
        tool.task(TaskPolicy::immediately().ttl(Duration::from_mins(5)))
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    assert_eq!(fleet.get(0, &id).await.get("statusMessage"), None);
    for (seconds, message) in [(15, "The first"), (10, "2 of 3"), (10, "3 of 3")] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        assert_eq!(fleet.get(0, &id).await["statusMessage"], message);
    }
    tokio::time::sleep(Duration::from_secs(264)).await;
    assert_eq!(fleet.get(0, &id).await["status"], "working");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fleet.get(0, &id).await, unknown_task());
}

/// Progress is written at most once per second, but the last report is not lost.
#[tokio::test(start_paused = true)]
async fn last_progress_is_the_status_message_also_of_a_task_that_has_ended() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            for n in 1..=2_u32 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                cx.progress(f64::from(n), Some(3.0), None);
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            cx.progress(3.0, Some(3.0), None);
            // It is being written when the handler returns.
            tokio::time::sleep(Duration::from_millis(1)).await;
            "done"
        });
        tool.task(TaskPolicy::immediately())
    });
    fleet.connections[0].is_slow.store(true, Ordering::SeqCst);
    let id = id_of(&fleet.call(0, json!({})).await);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(fleet.get(0, &id).await["statusMessage"], "2 of 3");
    let task = fleet.wait_for(0, &id, "completed").await;
    assert_eq!(task["statusMessage"], "3 of 3");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_send_the_task_when_it_changes() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(1, || order(TaskPolicy::immediately(), &held, &placed));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    let story = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        fleet.answer(0, &id, json!({ "one": accept("a") })).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        fleet.answer(0, &id, json!({ "other": accept("b") })).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
    };
    let received: Vec<Value> = fleet
        .listen(0, &[&id, "unknown"], story)
        .await
        .iter()
        .map(|n| json!({ "method": n.method, "params": serde_json::to_value(&n.params).unwrap() }))
        .collect();
    assert_eq!(received[0]["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(received[0]["params"]["notifications"], json!({ "taskIds": [id] }));
    let statuses: Vec<_> = received[1..]
        .iter()
        .map(|n| {
            assert_eq!(n["method"], "notifications/tasks");
            assert_eq!(n["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
            let open = n["params"]["inputRequests"].as_object().map_or(0, serde_json::Map::len);
            (n["params"]["status"].as_str().unwrap().to_owned(), open)
        })
        .collect();
    let expected = [("input_required", 2), ("input_required", 1), ("completed", 0)];
    assert_eq!(statuses, expected.map(|(status, open)| (status.to_owned(), open)));
    let mut last = received.last().unwrap()["params"].clone();
    let mut read = fleet.get(0, &id).await;
    for task in [&mut last, &mut read] {
        task.as_object_mut().unwrap().remove("_meta");
        task.as_object_mut().unwrap().remove("resultType");
    }
    assert_eq!(last, read, "as `tasks/get` returns it");
}

#[tokio::test(start_paused = true)]
async fn nothing_in_the_store_is_in_the_clear() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context, Text { text }: Text| {
            cx.step("canary-step", async |_| Ok("canary-result".to_owned())).await?;
            let answer: Text = cx.elicit("canary-question", "canary-message").await?;
            Ok::<_, Error>(text + &answer.text)
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({ "arguments": { "text": "canary-argument" } })).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.answer(0, &id, json!({ "canary-question": accept("canary-answer") })).await;
    let task = fleet.wait_for(0, &id, "completed").await;
    assert_eq!(text(&task), "canary-argumentcanary-answer");
    let written = fleet.connections[0].written.lock().unwrap();
    let written = String::from_utf8_lossy(&written);
    assert!(written.contains("mrtr1."));
    for secret in ["canary", &id, "alice"] {
        assert!(!written.contains(secret), "{secret}");
    }
}

/// A claim shortly before the answer does not delay it.
#[tokio::test(start_paused = true)]
async fn an_answer_reaches_its_handler_at_once() {
    let answered = Arc::new(Mutex::new(None));
    let told = Arc::clone(&answered);
    let fleet = TaskFleet::start_with(1, move |_, builder| {
        let told = Arc::clone(&told);
        let tool = Tool::new("t", "", move |cx: Context| {
            let told = Arc::clone(&told);
            async move {
                let answer = cx.elicit::<Text>("q", "What?").await?;
                *told.lock().unwrap() = Some(tokio::time::Instant::now());
                Ok::<_, Error>(answer.text)
            }
        });
        // The store of a fleet announces no changes.
        let builder = builder.task_store(MemoryTaskStore::new(10));
        builder.tool(tool.task(TaskPolicy::immediately()))
    });
    for _ in 0..5 {
        let call = with_tasks(json!({ "name": "t", "arguments": {} }));
        let id = id_of(&fleet.send(0, "tools/call", call).await);
        // Time does not pass while this process is busy.
        while fleet.get(0, &id).await["status"] != "input_required" {
            tokio::task::yield_now().await;
        }
        let before = tokio::time::Instant::now();
        fleet.answer(0, &id, json!({ "q": accept("a") })).await;
        fleet.wait_for(0, &id, "completed").await;
        let delay = answered.lock().unwrap().take().unwrap() - before;
        assert!(delay <= Duration::from_millis(10), "{delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn number_of_tasks_that_run_is_bounded() {
    let (running, most) = (Arc::new(AtomicU8::new(0)), Arc::new(AtomicU8::new(0)));
    let fleet = TaskFleet::start_with(1, |_, builder| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let tool = Tool::new("t", "", move |_: Context| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, Error>("done")
            }
        });
        builder.tool(tool.task(TaskPolicy::immediately())).max_running_tasks(2)
    });
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(id_of(&fleet.call(0, json!({})).await));
    }
    for id in &ids {
        fleet.wait_for(0, id, "completed").await;
    }
    assert_eq!(most.load(Ordering::Relaxed), 2);
}
