//! Tasks at the edges: where calls become tasks, and where several features meet.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{Context, Error, Tool};
use mrtr_transport::{GrantedScopes, IncomingRequest, NotificationSender, RequestHandler as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::tasks::{TaskFleet, accept, id_of, order, text, with_tasks};
use crate::support::{Counter, LogLines, Text, request, with_meta};

/// Asks one question.
pub(super) fn ask(policy: TaskPolicy) -> Tool {
    let tool = Tool::new("t", "", async |cx: Context| {
        let answer: Text = cx.elicit("q", "What?").await?;
        cx.detach().await?;
        Ok::<_, Error>(answer.text)
    });
    tool.task(policy)
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_crashes_is_a_restart_again() {
    let (go, old_answers) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let fleet = TaskFleet::start_with(3, |n, builder| {
        let (go, seen) = (Arc::clone(&go), Arc::clone(&old_answers));
        let tool = Tool::new("t", "", move |cx: Context| {
            let (go, seen) = (Arc::clone(&go), Arc::clone(&seen));
            async move {
                cx.step("one", async |_| Ok(())).await?;
                if n == 0 {
                    cx.step("more", async |_| Ok(())).await?;
                } else {
                    let wait = async |_| {
                        go.acquire().await.unwrap().forget();
                        Ok(())
                    };
                    cx.step("two", wait).await?;
                }
                let answer: Text = cx.elicit("q", "What?").await?;
                seen.lock().unwrap().push(answer.text.clone());
                Ok::<_, Error>(answer.text)
            }
        });
        let version = if n == 0 { 1 } else { 2 };
        let tool = tool.version(version).min_compatible_version(version);
        builder.tool(tool.task(TaskPolicy::immediately()))
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.connections[0].cut();
    fleet.connections[2].cut();
    fleet.answer(1, &id, json!({ "q": accept("old") })).await;
    fleet.wait_for(1, &id, "working").await;
    // Restarted, with fewer entries than before; then its replica dies.
    tokio::time::sleep(Duration::from_secs(5)).await;
    fleet.connections[1].cut();
    fleet.connections[2].restore();
    tokio::time::sleep(Duration::from_secs(15)).await;
    go.add_permits(2);
    let task = fleet.wait_for(2, &id, "input_required").await;
    assert!(task["inputRequests"].get("q~2").is_some(), "{task}");
    fleet.answer(2, &id, json!({ "q~2": accept("new") })).await;
    assert_eq!(text(&fleet.wait_for(2, &id, "completed").await), "new");
    assert_eq!(*old_answers.lock().unwrap(), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_became_part_of_the_task_can_be_rejected() {
    let fleet = TaskFleet::start(1, || ask(TaskPolicy::immediately()));
    let params = with_meta(json!({ "name": "t", "arguments": {} }));
    let asked = fleet.send(0, "tools/call", params).await;
    let wrong = json!({ "action": "accept", "content": { "text": 5 } });
    let retry = json!({ "requestState": asked["requestState"], "inputResponses": { "q": wrong } });
    let id = id_of(&fleet.call(0, retry).await);
    let task = fleet.wait_for(0, &id, "input_required").await;
    let key = task["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    fleet.answer(0, &id, json!({ key: accept("right") })).await;
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "right");
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_replica_still_runs_its_tasks() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start_with(2, |_, builder| {
        builder.tool(order(TaskPolicy::immediately(), &held, &placed)).shed_load_when(|| true)
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.answer(0, &id, json!({ "one": accept("a"), "other": accept("b") })).await;
    fleet.wait_for(0, &id, "completed").await;
    assert_eq!((held.get(), placed.get()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_about_a_task_need_the_scopes_of_its_tool() {
    let mut fleet = TaskFleet::start(1, || ask(TaskPolicy::immediately()).requires_scope("pay"));
    fleet.scopes = Some(GrantedScopes::new(["pay"]));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.scopes = Some(GrantedScopes::new(["read"]));
    for refused in [
        fleet.get(0, &id).await,
        fleet.answer(0, &id, json!({ "q": accept("a") })).await,
        fleet.cancel(0, &id).await,
    ] {
        assert_eq!(refused["error"]["data"]["reason"], "insufficient_scope", "{refused}");
    }
    fleet.scopes = Some(GrantedScopes::new(["pay"]));
    assert_eq!(fleet.get(0, &id).await["status"], "input_required");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_gets_the_task_as_it_is() {
    let fleet = TaskFleet::start(1, || ask(TaskPolicy::on_detach()));
    let asked = fleet.call(0, json!({})).await;
    let retry = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "q": accept("a") },
    });
    let id = id_of(&fleet.call(0, retry.clone()).await);
    fleet.wait_for(0, &id, "completed").await;
    let again = fleet.call(0, retry).await;
    assert_eq!((id_of(&again), &again["status"]), (id, &json!("completed")));
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_goes_on_if_the_store_is_full() {
    let runs = Counter::default();
    let fleet = TaskFleet::start(1, || {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                cx.step("s", async |_| {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    Ok(runs.increment())
                })
                .await?;
                let answer: Text = cx.elicit("q", "What?").await?;
                Ok::<_, Error>(answer.text)
            }
        });
        tool.task(TaskPolicy::after(Duration::from_secs(5)))
    });
    // A store that fails may have created the task, so the call cannot go on beside it.
    fleet.connections[0].cut();
    let refused = fleet.call(0, json!({})).await;
    assert_eq!(refused["error"]["data"]["reason"], "task_store_unavailable");
    fleet.connections[0].restore();
    fleet.connections[0].is_full.store(true, Ordering::SeqCst);
    let asked = fleet.call(0, json!({})).await;
    assert_eq!(asked["resultType"], "input_required");
    let retry = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "q": accept("a") },
    });
    assert_eq!(fleet.call(0, retry).await["content"][0]["text"], "a");
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_not_committed_is_not_seen_by_tasks_of_the_handler() {
    let (go, seen) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let fleet = TaskFleet::start(1, || {
        let (go, seen) = (Arc::clone(&go), Arc::clone(&seen));
        let tool = Tool::new("t", "", move |cx: Context| {
            let (go, seen) = (Arc::clone(&go), Arc::clone(&seen));
            async move {
                let spawned = tokio::spawn(async move {
                    let wait = async move |_| {
                        go.acquire().await.unwrap().forget();
                        Ok(1)
                    };
                    let result = cx.step("s", wait).await;
                    seen.lock().unwrap().push(result.is_err_and(|e| e.is_round_closed()));
                });
                spawned.await.map_err(Error::internal)?;
                Ok::<_, Error>("done")
            }
        });
        tool.task(TaskPolicy::immediately())
    });
    id_of(&fleet.call(0, json!({})).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fleet.connections[0].cut();
    tokio::time::sleep(Duration::from_secs(20)).await;
    go.add_permits(1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*seen.lock().unwrap(), [true]);
}

#[tokio::test(start_paused = true)]
async fn an_open_question_whose_link_changes_keeps_its_key() {
    let links = Counter::default();
    let fleet = TaskFleet::start(1, || {
        let links = links.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let links = links.clone();
            async move {
                let url = format!("https://a.example/pay?token={}", links.increment());
                let (answer, ()) = tokio::try_join!(
                    cx.elicit::<Text>("q", "What?"),
                    cx.elicit_url("u", "Please pay.", url)
                )?;
                Ok::<_, Error>(answer.text)
            }
        });
        tool.task(TaskPolicy::immediately())
    });
    let mut params = with_tasks(json!({ "name": "t", "arguments": {} }));
    let capabilities = &mut params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    capabilities["elicitation"] = json!({ "form": {}, "url": {} });
    let id = id_of(&fleet.send(0, "tools/call", params).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.answer(0, &id, json!({ "q": accept("a") })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let task = fleet.wait_for(0, &id, "input_required").await;
    let open: Vec<_> = task["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(open, ["u"]);
    fleet.answer(0, &id, json!({ "u": { "action": "accept" } })).await;
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "a");
}

/// The writer of a task is polled together with the handler, and must not end its epoch early.
#[tokio::test(start_paused = true)]
async fn a_handler_that_yields_beside_a_question_asks_all_at_once() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            let later = async {
                for n in 0..5 {
                    cx.step(format!("s{n}"), async |_| Ok(())).await?;
                    cx.progress(f64::from(n), None, None);
                    tokio::task::yield_now().await;
                }
                cx.elicit::<Text>("later", "Later?").await
            };
            let (now, later) = tokio::try_join!(cx.elicit::<Text>("now", "Now?"), later)?;
            Ok::<_, Error>(now.text + &later.text)
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    let task = fleet.wait_for(0, &id, "input_required").await;
    let open: Vec<_> = task["inputRequests"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(open, ["now", "later"]);
}

#[tokio::test(start_paused = true)]
async fn an_internal_error_of_a_task_is_logged_and_not_shown() {
    let (log, _guard) = LogLines::collect();
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |_: Context| {
            Err::<String, _>(Error::internal(std::io::Error::other("the disk is full")))
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    let task = fleet.wait_for(0, &id, "completed").await;
    assert_eq!(task["result"]["isError"], true);
    assert!(!task.to_string().contains("disk"), "{task}");
    let text = log.text();
    assert!(text.contains("handler failed") && text.contains("the disk is full"), "{text}");
}

/// A handler that continues as a task does not count towards a transport's limit of requests in
/// flight.
#[tokio::test(start_paused = true)]
async fn a_running_task_does_not_count_as_a_request() {
    let fleet = TaskFleet::start(1, || {
        Tool::new("t", "", std::future::pending::<&str>).task(TaskPolicy::immediately())
    });
    let params = with_tasks(json!({ "name": "t", "arguments": {} }));
    let permit = Arc::new(());
    let (sender, receiver) = NotificationSender::with_permit(Arc::clone(&permit));
    let meta = serde_json::from_value(params["_meta"].clone()).unwrap();
    let request = request("tools/call", &params);
    let mut incoming = IncomingRequest::new(request, Some(Arc::new(meta)), sender);
    incoming.extensions.insert(fleet.caller.clone());
    let response = Arc::new(fleet.servers[0].clone()).handle(incoming).await;
    drop(receiver);
    let created: Value = serde_json::from_str(response.outcome.unwrap().as_str()).unwrap();
    assert_eq!(Arc::strong_count(&permit), 1);
    assert_eq!(fleet.get(0, &id_of(&created)).await["status"], "working");
}

/// A connection to the store that broke silently does not cost the lease.
#[tokio::test(start_paused = true)]
async fn a_write_without_a_reply_is_repeated_while_the_lease_lasts() {
    let steps = Counter::default();
    let fleet = TaskFleet::start(1, || {
        let steps = steps.clone();
        let once = move |cx: Context| {
            let steps = steps.clone();
            async move {
                let count = async |_| {
                    steps.increment();
                    Ok(())
                };
                cx.step("s", count).await?;
                Ok::<_, Error>("done")
            }
        };
        Tool::new("t", "", once).task(TaskPolicy::immediately())
    });
    fleet.connections[0].loses_writes.store(2, Ordering::SeqCst);
    let id = id_of(&fleet.call(0, json!({})).await);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "done");
    assert_eq!(steps.get(), 1);
}

/// A claim whose reply was lost does not count as a failed run.
#[tokio::test(start_paused = true)]
async fn lost_claims_do_not_fail_a_task() {
    let fleet = TaskFleet::start(1, || ask(TaskPolicy::immediately()));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.connections[0].loses_replies.store(true, Ordering::SeqCst);
    fleet.answer(0, &id, json!({ "q": accept("a") })).await;
    tokio::time::sleep(Duration::from_mins(3)).await;
    fleet.connections[0].loses_replies.store(false, Ordering::SeqCst);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_during_an_outage_of_the_store_is_an_error() {
    let fleet = TaskFleet::start(1, || ask(TaskPolicy::immediately()));
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.connections[0].cut();
    let params = with_tasks(json!({ "notifications": { "taskIds": [id] } }));
    let refused = fleet.send(0, "subscriptions/listen", params).await;
    assert_eq!(refused["error"]["data"]["reason"], "task_store_unavailable");
}

/// The store keeps refused answers, so their length is limited.
#[tokio::test(start_paused = true)]
async fn the_answers_of_a_task_are_limited_together() {
    let fleet = TaskFleet::start(1, || ask(TaskPolicy::immediately()).max_rounds(50));
    let id = id_of(&fleet.call(0, json!({})).await);
    let long = "a".repeat(250_000);
    let mut sent = 0;
    loop {
        let task = fleet.wait_for(0, &id, "input_required").await;
        let key = task["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        // It does not fit the form.
        let answer = json!({ "action": "accept", "content": { "other": long } });
        let outcome = fleet.answer(0, &id, json!({ key.as_str(): answer })).await;
        if outcome["error"]["code"] == -32602 {
            fleet.answer(0, &id, json!({ key: accept("a") })).await;
            break;
        }
        sent += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(sent, 16);
    fleet.wait_for(0, &id, "completed").await;
}

/// Answers count before an epoch has taken them in.
#[tokio::test(start_paused = true)]
async fn answers_that_no_replica_has_read_yet_are_limited() {
    const QUESTIONS: usize = 20;
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context| {
            let question = |n| cx.elicit::<Text>(format!("q{n}"), "What?");
            let mut questions: Vec<_> = (0..QUESTIONS).map(question).collect();
            poll_fn(|cx| {
                questions.retain_mut(|question| Pin::new(question).poll(cx).is_pending());
                if questions.is_empty() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            Ok::<_, Error>("done")
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    let task = fleet.wait_for(0, &id, "input_required").await;
    fleet.connections[0].hangs_in_claims.store(true, Ordering::SeqCst);
    let mut sent = 0;
    for key in task["inputRequests"].as_object().unwrap().keys() {
        let outcome = fleet.answer(0, &id, json!({ key.as_str(): accept(&"a".repeat(250_000)) }));
        sent += usize::from(outcome.await["error"]["code"] != -32602);
    }
    assert_eq!(sent, 16);
}

/// A claim leaves permits to calls that become tasks meanwhile.
#[tokio::test(start_paused = true)]
async fn a_claim_in_progress_does_not_keep_calls_from_becoming_tasks() {
    let fleet = TaskFleet::start_with(1, |_, builder| {
        let slow = async |cx: Context| {
            let wait = async |_| {
                tokio::time::sleep(Duration::from_secs(8)).await;
                Ok(())
            };
            cx.step("s", wait).await?;
            Ok::<_, Error>("done")
        };
        let tool = Tool::new("t", "", slow).task(TaskPolicy::after(Duration::from_secs(5)));
        builder.tool(tool).max_running_tasks(16)
    });
    fleet.connections[0].hangs_in_claims.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let id = id_of(&fleet.call(0, json!({})).await);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "done");
}
