//! Tasks whose replica dies, shuts down or is replaced, or that are cancelled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{Context, Error, Step, Tool};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::tasks::{TaskFleet, accept, id_of, order, text, wait_until, with_tasks};
use crate::support::{Counter, Text};

/// A tool that records the keys of its steps, and waits for `go` in the second one.
fn two_steps(go: &Arc<Semaphore>, keys: &Arc<Mutex<Vec<String>>>) -> Tool {
    let (go, keys) = (Arc::clone(go), Arc::clone(keys));
    let tool = Tool::new("t", "", move |cx: Context| {
        let (go, keys) = (Arc::clone(&go), Arc::clone(&keys));
        async move {
            let (log, more) = (Arc::clone(&keys), Arc::clone(&keys));
            cx.step("one", async move |step| {
                log.lock().unwrap().push(format!("one {}", step.idempotency_key()));
                Ok(())
            })
            .await?;
            cx.step("two", async move |step| {
                more.lock().unwrap().push(format!("two {}", step.idempotency_key()));
                go.acquire().await.unwrap().forget();
                Ok(())
            })
            .await?;
            Ok::<_, Error>("done")
        }
    });
    tool.task(TaskPolicy::immediately())
}

/// Arguments that a version of the program cannot read.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Fragile {
    #[serde(deserialize_with = "fragile")]
    #[expect(dead_code, reason = "only read from JSON")]
    text: String,
}

static PANICS: AtomicBool = AtomicBool::new(false);

fn fragile<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    assert!(!PANICS.load(Ordering::Relaxed), "a bug of the new version");
    serde::Deserialize::deserialize(deserializer)
}

/// Otherwise it would be claimed again after each lease.
#[tokio::test(start_paused = true)]
async fn task_whose_arguments_make_the_program_panic_fails() {
    let fleet = TaskFleet::start(1, || {
        let tool = Tool::new("t", "", async |cx: Context, _: Fragile| {
            cx.elicit::<Text>("q", "What?").await.map(|answer| answer.text)
        });
        tool.task(TaskPolicy::immediately())
    });
    let call = with_tasks(json!({ "name": "t", "arguments": { "text": "a" } }));
    let id = id_of(&fleet.send(0, "tools/call", call).await);
    fleet.wait_for(0, &id, "input_required").await;
    PANICS.store(true, Ordering::Relaxed);
    fleet.answer(0, &id, json!({ "q": accept("a") })).await;
    fleet.wait_for(0, &id, "failed").await;
}

/// Without room for another task, a step that is in flight would be interrupted, and run again.
#[tokio::test(start_paused = true)]
async fn a_step_in_flight_is_not_interrupted_when_its_call_becomes_a_task() {
    let (go, runs) = (Arc::new(Semaphore::new(0)), Counter::default());
    let fleet = TaskFleet::start_with(1, |_, builder| {
        let (go, runs) = (Arc::clone(&go), runs.clone());
        let holds = Tool::new("holds", "", move || {
            let go = Arc::clone(&go);
            async move { go.acquire().await.map(|_| "held").map_err(Error::internal) }
        });
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let charge = async |_| {
                    runs.increment();
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    Ok(())
                };
                tokio::try_join!(cx.step("charge", charge), cx.detach())?;
                Ok::<_, Error>("charged")
            }
        });
        let holds = holds.task(TaskPolicy::immediately());
        builder.tool(holds).tool(tool.task(TaskPolicy::on_detach())).max_running_tasks(1)
    });
    let held = with_tasks(json!({ "name": "holds", "arguments": {} }));
    let held = id_of(&fleet.send(0, "tools/call", held).await);
    let id = id_of(&fleet.call(0, json!({})).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    go.add_permits(1);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "charged");
    fleet.wait_for(0, &held, "completed").await;
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_replica_continues_after_a_crash() {
    let (go, keys) = (Arc::new(Semaphore::new(0)), Arc::default());
    let fleet = TaskFleet::start(2, || two_steps(&go, &keys));
    let id = id_of(&fleet.call(0, json!({})).await);
    wait_until(|| keys.lock().unwrap().len() >= 2).await;
    let cut_at = tokio::time::Instant::now();
    fleet.connections[0].cut();
    wait_until(|| keys.lock().unwrap().len() >= 3).await;
    let taken = cut_at.elapsed();
    assert!(taken < Duration::from_millis(11_500), "the lease and 1.5 s: {taken:?}");
    go.add_permits(1);
    assert_eq!(text(&fleet.wait_for(1, &id, "completed").await), "done");
    let keys = keys.lock().unwrap().clone();
    assert_eq!(keys.len(), 3, "the first step did not run again: {keys:?}");
    assert_eq!(keys[1], keys[2], "one idempotency key");
    // The replica that was cut off has dropped its run: nobody waits for a permit.
    fleet.connections[0].restore();
    go.add_permits(1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(go.available_permits(), 1);
}

/// A tool that logs three steps, each of which waits for `go`.
fn three_steps(go: &Arc<Semaphore>, begun: &Arc<Mutex<Vec<String>>>) -> Tool {
    let (go, begun) = (Arc::clone(go), Arc::clone(begun));
    let tool = Tool::new("t", "", move |cx: Context| {
        let (go, begun) = (Arc::clone(&go), Arc::clone(&begun));
        async move {
            for n in 0..3 {
                let (go, begun) = (Arc::clone(&go), Arc::clone(&begun));
                cx.step(format!("s{n}"), async move |_| {
                    begun.lock().unwrap().push(n.to_string());
                    go.acquire().await.unwrap().forget();
                    Ok(())
                })
                .await?;
            }
            Ok::<_, Error>("done")
        }
    });
    tool.task(TaskPolicy::immediately())
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_shuts_down_releases_its_tasks() {
    let (go, keys) = (Arc::new(Semaphore::new(0)), Arc::default());
    let fleet = TaskFleet::start(2, || three_steps(&go, &keys));
    let id = id_of(&fleet.call(0, json!({})).await);
    wait_until(|| !keys.lock().unwrap().is_empty()).await;
    // The step in flight ends, and the next one runs elsewhere.
    fleet.servers[0].begin_shutdown();
    go.add_permits(1);
    fleet.servers[0].drained().await;
    let drained_at = tokio::time::Instant::now();
    wait_until(|| keys.lock().unwrap().len() >= 2).await;
    assert!(drained_at.elapsed() <= Duration::from_secs(1), "the keeper's pause");
    go.add_permits(2);
    fleet.wait_for(1, &id, "completed").await;
    assert_eq!(*keys.lock().unwrap(), ["0", "1", "2"]);
}

/// A tool that asks beside its second step, and records the keys of both.
fn step_beside_question(go: &Arc<Semaphore>, keys: &Arc<Mutex<Vec<String>>>) -> Tool {
    let (go, keys) = (Arc::clone(go), Arc::clone(keys));
    let tool = Tool::new("t", "", move |cx: Context| {
        let (go, keys) = (Arc::clone(&go), Arc::clone(&keys));
        async move {
            let step = |name: &'static str, waits: bool| {
                let (go, keys) = (Arc::clone(&go), Arc::clone(&keys));
                cx.step(name, async move |step| {
                    keys.lock().unwrap().push(format!("{name} {}", step.idempotency_key()));
                    if waits {
                        go.acquire().await.unwrap().forget();
                    }
                    Ok(())
                })
            };
            step("one", true).await?;
            let (answer, ()) = tokio::try_join!(cx.elicit::<Text>("q", "?"), step("two", false))?;
            Ok::<_, Error>(answer.text)
        }
    });
    tool.task(TaskPolicy::immediately())
}

/// The epoch does not end before the step has run: an answer in between would change its key, and a
/// replica that has died may have run it with another one.
#[tokio::test(start_paused = true)]
async fn a_replica_that_shuts_down_does_not_ask_before_a_step_that_it_leaves_out() {
    let (go, keys) = (Arc::new(Semaphore::new(0)), Arc::default());
    let fleet = TaskFleet::start(2, || step_beside_question(&go, &keys));
    let id = id_of(&fleet.call(0, json!({})).await);
    wait_until(|| !keys.lock().unwrap().is_empty()).await;
    fleet.servers[0].begin_shutdown();
    // The run learns of it while its step is in flight.
    tokio::time::sleep(Duration::from_secs(1)).await;
    go.add_permits(1);
    fleet.servers[0].drained().await;
    fleet.wait_for(1, &id, "input_required").await;
    assert_eq!(keys.lock().unwrap().len(), 2, "both steps ran before the question was asked");
    fleet.answer(1, &id, json!({ "q": accept("a") })).await;
    assert_eq!(text(&fleet.wait_for(1, &id, "completed").await), "a");
    assert_eq!(keys.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cancelled_is_cancelled() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(2, || order(TaskPolicy::immediately(), &held, &placed));
    // Nobody runs it: at once.
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    let acknowledged = fleet.cancel(1, &id).await;
    for absent in ["taskId", "status", "result", "error", "inputRequests"] {
        assert_eq!(acknowledged.get(absent), None);
    }
    assert_eq!(fleet.get(0, &id).await["status"], "cancelled");
    fleet.answer(0, &id, json!({ "one": accept("a"), "other": accept("b") })).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fleet.get(0, &id).await["status"], "cancelled");
    assert_eq!(placed.get(), 0);

    // It runs at another replica, outside of steps: dropped when that learns of it.
    let fleet = TaskFleet::start(2, || {
        let tool = Tool::new("t", "", async |_: Context| std::future::pending::<String>().await);
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.cancel(1, &id).await;
    let asked = tokio::time::Instant::now();
    fleet.wait_for(1, &id, "cancelled").await;
    assert!(asked.elapsed() <= Duration::from_secs(4), "a third of the lease");

    // A step in flight ends, and no other begins.
    let (go, keys) = (Arc::new(Semaphore::new(0)), Arc::default());
    let fleet = TaskFleet::start(1, || three_steps(&go, &keys));
    let id = id_of(&fleet.call(0, json!({})).await);
    wait_until(|| !keys.lock().unwrap().is_empty()).await;
    fleet.cancel(0, &id).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fleet.get(0, &id).await["status"], "working");
    go.add_permits(3);
    fleet.wait_for(0, &id, "cancelled").await;
    assert_eq!(*keys.lock().unwrap(), ["0"]);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_does_not_fit_loses_no_task() {
    let fleet = TaskFleet::start_with(2, |n, builder| {
        let tool = Tool::new("t", "", move |cx: Context| async move {
            // The second replica has another handler, which does not reach the step.
            if n == 0 {
                cx.step("s", async |_| Ok(())).await?;
            }
            let answer: Text = cx.elicit("q", "What?").await?;
            Ok::<_, Error>(answer.text)
        });
        builder.tool(tool.task(TaskPolicy::immediately().ttl(Duration::from_hours(48))))
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.connections[0].cut();
    fleet.answer(1, &id, json!({ "q": accept("a") })).await;
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(fleet.get(1, &id).await["status"], "working");
    // Back to the version that fits.
    fleet.connections[1].cut();
    fleet.connections[0].restore();
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_continues_or_restarts_a_task_and_an_older_one_leaves_it_alone() {
    for (old, new, restarts) in [((1, 0), (2, 1), false), ((1, 0), (2, 2), true)] {
        let (runs, keys) = (Counter::default(), Arc::<Mutex<Vec<String>>>::default());
        let fleet = TaskFleet::start_with(2, |n, builder| {
            let (runs, keys) = (runs.clone(), Arc::clone(&keys));
            let tool = Tool::new("t", "", move |cx: Context| {
                let (runs, keys) = (runs.clone(), Arc::clone(&keys));
                async move {
                    let step = async |step: Step| {
                        keys.lock().unwrap().push(step.idempotency_key().to_owned());
                        Ok(runs.increment())
                    };
                    cx.step("s", step).await?;
                    let answer: Text = cx.elicit("q", "What?").await?;
                    cx.step("s2", async |_| Ok(())).await?;
                    let more: Text = cx.elicit("q2", "And?").await?;
                    Ok::<_, Error>(answer.text + &more.text)
                }
            });
            let (version, min) = if n == 0 { old } else { new };
            let tool = tool.version(version).min_compatible_version(min);
            builder.tool(tool.task(TaskPolicy::immediately()))
        });
        let id = id_of(&fleet.call(0, json!({})).await);
        fleet.wait_for(0, &id, "input_required").await;
        fleet.connections[0].cut();
        fleet.answer(1, &id, json!({ "q": accept("a") })).await;
        if restarts {
            // The call keeps its identity, and loses its answers.
            let task = fleet.wait_for(1, &id, "input_required").await;
            let key = task["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
            assert_eq!(key, "q~2", "a key is not used again");
            fleet.answer(1, &id, json!({ "q~2": accept("b") })).await;
            loop {
                let task = fleet.wait_for(1, &id, "input_required").await;
                if task["inputRequests"].get("q2").is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // The older version cannot continue it now.
            fleet.connections[0].restore();
            fleet.connections[1].cut();
            fleet.answer(0, &id, json!({ "q2": accept("c") })).await;
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!(fleet.get(0, &id).await["status"], "working");
            fleet.connections[1].restore();
            assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "bc");
            assert_eq!(runs.get(), 2);
            let keys = keys.lock().unwrap();
            assert_eq!(keys[0], keys[1], "the key of a step depends on the answers of its own run");
        } else {
            let task = fleet.wait_for(1, &id, "input_required").await;
            assert!(task["inputRequests"].get("q").is_none() || runs.get() == 1);
            fleet.wait_for(1, &id, "input_required").await;
            while fleet.get(1, &id).await["inputRequests"].get("q2").is_none() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            fleet.answer(1, &id, json!({ "q2": accept("c") })).await;
            assert_eq!(text(&fleet.wait_for(1, &id, "completed").await), "ac");
            assert_eq!(runs.get(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_said_and_loses_nothing() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(1, || order(TaskPolicy::immediately(), &held, &placed));
    let unavailable = json!({ "error": {
        "code": -32603,
        "message": "The task store is unavailable; try again",
        "data": { "reason": "task_store_unavailable" },
    } });
    fleet.connections[0].cut();
    assert_eq!(fleet.call(0, json!({})).await, unavailable);
    assert_eq!(held.get(), 0);
    fleet.connections[0].restore();
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.wait_for(0, &id, "input_required").await;
    fleet.connections[0].cut();
    assert_eq!(fleet.get(0, &id).await, unavailable);
    assert_eq!(fleet.answer(0, &id, json!({ "one": accept("a") })).await, unavailable);
    fleet.connections[0].restore();
    fleet.answer(0, &id, json!({ "one": accept("a"), "other": accept("b") })).await;
    fleet.wait_for(0, &id, "completed").await;
    assert_eq!((held.get(), placed.get()), (1, 1));
}
