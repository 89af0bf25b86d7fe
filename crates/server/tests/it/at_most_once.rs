//! Steps that run at most once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mrtr_server::single_use::MemoryStore;
use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{AtMostOnce, Context, Error, Tool};
use mrtr_testkit::{Replicas, TestClock};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::support::tasks::{TaskFleet, accept, id_of, text, wait_until};
use crate::support::{Counter, Text, alice, call_tool, fleet, replica};

/// What happens in the step.
#[derive(Clone)]
enum Act {
    /// The step waits for a permit.
    Wait(Arc<Semaphore>),
    Fail,
    Last(Duration),
}

/// A tool with one step, which counts its runs, and a question after it.
fn tool(runs: &Counter, act: &Act) -> Tool {
    let (runs, act) = (runs.clone(), act.clone());
    Tool::new("t", "", move |cx: Context| {
        let (runs, act) = (runs.clone(), act.clone());
        async move {
            let step = cx.step("fax", async move |_| {
                let run = runs.increment();
                match act {
                    Act::Wait(go) => go.acquire().await.unwrap().forget(),
                    Act::Fail => return Err(Error::new("no paper")),
                    Act::Last(time) => tokio::time::sleep(time).await,
                }
                Ok(run)
            });
            let sent = step.timeout(Duration::from_mins(5)).at_most_once().await;
            cx.elicit::<Text>("note", "A note?").await?;
            Ok::<_, Error>(match sent {
                Ok(AtMostOnce::Completed(run)) => format!("run {run}"),
                Ok(AtMostOnce::Unknown) => "unknown".to_owned(),
                Err(error) => format!("failed: {error}"),
            })
        }
    })
}

/// Answers the question of a task, and returns the result.
async fn finish(fleet: &TaskFleet, id: &str) -> String {
    fleet.wait_for(1, id, "input_required").await;
    fleet.answer(1, id, json!({ "note": accept("a") })).await;
    text(&fleet.wait_for(1, id, "completed").await).to_owned()
}

#[tokio::test(start_paused = true)]
async fn step_whose_replica_dies_is_not_run_again_and_its_outcome_is_unknown() {
    let (runs, go) = (Counter::default(), Arc::new(Semaphore::new(0)));
    let act = Act::Wait(Arc::clone(&go));
    let fleet = TaskFleet::start(2, || tool(&runs, &act).task(TaskPolicy::immediately()));
    let id = id_of(&fleet.call(0, json!({})).await);
    wait_until(|| runs.get() == 1).await;
    fleet.connections[0].cut();
    // The dead replica completes the step, and cannot write that.
    go.add_permits(5);
    assert_eq!(finish(&fleet, &id).await, "unknown");
    assert_eq!(runs.get(), 1);
}

/// A replica that cannot record that the step begins leaves it to another.
#[tokio::test(start_paused = true)]
async fn step_does_not_begin_before_that_is_recorded() {
    let (runs, gate) = (Counter::default(), Arc::new(Semaphore::new(0)));
    let fleet = TaskFleet::start(2, || {
        let (runs, gate) = (runs.clone(), Arc::clone(&gate));
        let tool = Tool::new("t", "", move |cx: Context| {
            let (runs, gate) = (runs.clone(), Arc::clone(&gate));
            async move {
                gate.acquire().await.unwrap().forget();
                let step = cx.step("fax", async move |_| Ok(runs.increment()));
                let sent = step.at_most_once().await?;
                cx.elicit::<Text>("note", "A note?").await?;
                Ok::<_, Error>(format!("{sent:?}"))
            }
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    fleet.connections[0].cut();
    gate.add_permits(5);
    assert_eq!(finish(&fleet, &id).await, "Completed(1)");
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_are_known_are_kept() {
    let runs = Counter::default();
    for (act, expected) in [
        (Act::Wait(Arc::new(Semaphore::new(1))), "run 1"),
        (Act::Fail, "failed: no paper"),
        (Act::Last(Duration::from_mins(2)), "run 3"),
        (Act::Last(Duration::from_mins(20)), "unknown"),
    ] {
        // The policy lets the call become a task where the step needs it.
        let fleet = TaskFleet::start(2, || tool(&runs, &act).task(TaskPolicy::on_detach()));
        let id = id_of(&fleet.call(0, json!({})).await);
        assert_eq!(finish(&fleet, &id).await, expected);
    }
    assert_eq!(runs.get(), 4);
}

/// The step waits for the creation of the task, which the store then refuses.
#[tokio::test(start_paused = true)]
async fn step_that_waits_for_its_task_does_not_run_without_it() {
    for is_single_use in [false, true] {
        let runs = Counter::default();
        let fleet = TaskFleet::start_with(1, |_, builder| {
            let runs = runs.clone();
            let tool = Tool::new("t", "", move |cx: Context| {
                let runs = runs.clone();
                async move {
                    if is_single_use {
                        cx.elicit::<Text>("q", "What?").await?;
                    }
                    let (side, start) = (cx.clone(), Duration::from_millis(1_002));
                    let fax = tokio::spawn(async move {
                        tokio::time::sleep(start).await;
                        let step = side.step("fax", async move |_| Ok(runs.increment()));
                        step.at_most_once().await
                    });
                    let sent = fax.await.map_err(Error::internal)??;
                    cx.elicit::<Text>("note", "A note?").await?;
                    Ok::<_, Error>(format!("{sent:?}"))
                }
            });
            let tool = tool.task(TaskPolicy::after(Duration::from_secs(1)));
            let tool = if is_single_use { tool.single_use() } else { tool };
            builder.tool(tool).single_use_store(MemoryStore::new(1_000_000))
        });
        fleet.connections[0].is_full.store(true, Ordering::SeqCst);
        fleet.connections[0].is_slow.store(true, Ordering::SeqCst);
        let mut result = fleet.call(0, json!({})).await;
        for key in ["q", "note"] {
            if result["resultType"] == "input_required" {
                let answers = json!({ key: accept("a") });
                let retry = json!({
                    "requestState": result["requestState"], "inputResponses": answers,
                });
                result = fleet.call(0, retry).await;
            }
        }
        if is_single_use {
            assert_eq!(result["content"][0]["text"], "Completed(1)", "{result}");
            assert_eq!(runs.get(), 1);
        } else {
            assert_eq!(result["error"]["code"], -32603, "{result}");
            assert_eq!(runs.get(), 0);
        }
    }
}

#[tokio::test]
async fn call_that_cannot_become_a_task_fails_before_the_step_runs() {
    let (runs, act) = (Counter::default(), Act::Fail);
    let fleet = fleet(|| tool(&runs, &act));
    let refused = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert_eq!(runs.get(), 0);
}

/// Without tasks, the state is claimed before the step runs.
#[tokio::test]
async fn step_runs_once_with_a_state_for_single_use() {
    let (runs, clock) = (Counter::default(), TestClock::default());
    let act = Act::Wait(Arc::new(Semaphore::new(5)));
    let store = Arc::new(MemoryStore::new(1 << 20));
    let server = |_| {
        let tool = tool(&runs, &act).single_use();
        replica(&clock).tool(tool).single_use_store(Arc::clone(&store)).build().unwrap()
    };
    let fleet = Replicas::new((0..3).map(server)).as_principal(alice());
    let begun = call_tool(&fleet, "t", json!({}), json!({})).await;
    assert_eq!((runs.get(), begun.get("inputRequests")), (0, None), "{begun}");
    let state = json!({ "requestState": begun["requestState"] });
    let asked = call_tool(&fleet, "t", json!({}), state.clone()).await;
    for _ in 0..3 {
        assert_eq!(call_tool(&fleet, "t", json!({}), state.clone()).await, asked);
    }
    let answered = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "note": accept("a") },
    });
    let done = call_tool(&fleet, "t", json!({}), answered).await;
    assert_eq!(done["content"][0]["text"], "run 1");
    assert_eq!(runs.get(), 1);
}

/// A step that the handler drops has begun.
#[tokio::test(start_paused = true)]
async fn dropped_step_is_not_run_again() {
    let (runs, clock) = (Counter::default(), TestClock::default());
    let tool = || {
        let runs = runs.clone();
        Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let step = cx.step("fax", async move |_| {
                    runs.increment();
                    std::future::pending::<()>().await;
                    Ok(())
                });
                let sent = step.at_most_once();
                let sent = tokio::time::timeout(Duration::from_secs(1), sent).await;
                cx.elicit::<Text>("note", "A note?").await?;
                Ok::<_, Error>(format!("{sent:?}"))
            }
        })
    };
    let store = Arc::new(MemoryStore::new(1 << 20));
    let server = |_| {
        let builder = replica(&clock).tool(tool().single_use());
        builder.single_use_store(Arc::clone(&store)).build().unwrap()
    };
    let fleet = Replicas::new((0..3).map(server)).as_principal(alice());
    let begun = call_tool(&fleet, "t", json!({}), json!({})).await;
    let state = json!({ "requestState": begun["requestState"] });
    let asked = call_tool(&fleet, "t", json!({}), state).await;
    let answered = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "note": accept("a") },
    });
    let done = call_tool(&fleet, "t", json!({}), answered).await;
    assert_eq!(done["content"][0]["text"], "Ok(Ok(Unknown))", "{done}");

    let fleet = TaskFleet::start(2, || tool().task(TaskPolicy::immediately()));
    let id = id_of(&fleet.call(0, json!({})).await);
    assert_eq!(finish(&fleet, &id).await, "Ok(Ok(Unknown))");
    assert_eq!(runs.get(), 2, "one of each call");
}

/// The journal has what the loser recorded before it ran, and no replay reaches it.
#[tokio::test(start_paused = true)]
async fn step_that_loses_a_race_does_not_fail_the_task() {
    let runs = Counter::default();
    let fleet = TaskFleet::start(2, || {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                let slow = cx.step("slow", async move |_| {
                    runs.increment();
                    std::future::pending::<()>().await;
                    Ok(())
                });
                let fast = cx.step("fast", async |_| {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(())
                });
                let slow = async { slow.at_most_once().await.map(drop) };
                cx.race("first", slow, fast).await?;
                cx.elicit::<Text>("note", "A note?").await?;
                Ok::<_, Error>("done")
            }
        });
        tool.task(TaskPolicy::immediately())
    });
    let id = id_of(&fleet.call(0, json!({})).await);
    assert_eq!(finish(&fleet, &id).await, "done");
    assert_eq!(runs.get(), 1);
}
