//! Tasks of tools whose request states can be used once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mrtr_server::single_use::MemoryStore;
use mrtr_server::tasks::TaskPolicy;
use mrtr_server::{Context, Error, Tool};
use serde_json::{Value, json};

use crate::support::tasks::{TaskFleet, accept, id_of, text};
use crate::support::{Counter, Text};
use crate::task_edges::ask;

/// Starts a replica whose tool asks one question, and accepts each state once.
fn start() -> TaskFleet {
    TaskFleet::start_with(1, |_, builder| {
        let tool = ask(TaskPolicy::on_detach()).single_use();
        builder.tool(tool).single_use_store(MemoryStore::new(1_000_000))
    })
}

/// Answers the question of a call while the store fails. Returns the request, for a retry.
async fn answer_while_the_store_is_away(fleet: &TaskFleet) -> Value {
    let asked = fleet.call(0, json!({})).await;
    let retry = json!({
        "requestState": asked["requestState"],
        "inputResponses": { "q": accept("a") },
    });
    fleet.connections[0].cut();
    let refused = fleet.call(0, retry.clone()).await;
    assert_eq!(refused["error"]["data"]["reason"], "task_store_unavailable");
    fleet.connections[0].restore();
    tokio::time::sleep(Duration::from_secs(1)).await;
    retry
}

#[tokio::test(start_paused = true)]
async fn a_single_use_state_survives_a_store_of_tasks_that_fails() {
    let fleet = start();
    let retry = answer_while_the_store_is_away(&fleet).await;
    let id = id_of(&fleet.call(0, retry).await);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "a");
}

/// Each failure allows another attempt, and a full store gives the state back.
#[tokio::test(start_paused = true)]
async fn a_single_use_state_survives_a_store_of_tasks_that_fails_in_different_ways() {
    let fleet = start();
    let retry = answer_while_the_store_is_away(&fleet).await;
    let connection = &fleet.connections[0];
    for is_full in [true, false, true, false] {
        connection.is_full.store(is_full, Ordering::SeqCst);
        if !is_full {
            connection.cut();
        }
        let refused = fleet.call(0, retry.clone()).await;
        let reason = if is_full { "task_store_full" } else { "task_store_unavailable" };
        assert_eq!(refused["error"]["data"]["reason"], reason, "{refused}");
        connection.restore();
        // The entry of a state that was given back expires.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let id = id_of(&fleet.call(0, retry).await);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "a");
}

/// The step may have had its effect.
#[tokio::test(start_paused = true)]
async fn a_step_of_a_single_use_state_does_not_begin_again() {
    let runs = Counter::default();
    let fleet = TaskFleet::start_with(1, |_, builder| {
        let runs = runs.clone();
        let tool = Tool::new("t", "", move |cx: Context| {
            let runs = runs.clone();
            async move {
                cx.elicit::<Text>("q", "What?").await?;
                let charge = async |_| {
                    runs.increment();
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    Ok(())
                };
                cx.step("charge", charge).await?;
                Ok::<_, Error>("charged")
            }
        });
        let tool = tool.task(TaskPolicy::after(Duration::from_secs(5))).single_use();
        builder.tool(tool).single_use_store(MemoryStore::new(1_000_000))
    });
    let retry = answer_while_the_store_is_away(&fleet).await;
    let again = fleet.call(0, retry).await;
    assert_eq!((again["error"]["code"].as_i64(), runs.get()), (Some(-32603), 1), "{again}");
}

/// The store creates the task of a single-use state, but its reply is lost. Only the same answers
/// may try again, and they get the same task.
#[tokio::test(start_paused = true)]
async fn other_answers_get_no_second_task_of_a_single_use_state() {
    let fleet = start();
    let asked = fleet.call(0, json!({})).await;
    let retry = |answer: &str| {
        json!({
            "requestState": asked["requestState"],
            "inputResponses": { "q": accept(answer) },
        })
    };
    let lost = &fleet.connections[0].loses_replies;
    for _ in 0..2 {
        lost.store(true, Ordering::SeqCst);
        let refused = fleet.call(0, retry("a")).await;
        assert_eq!(refused["error"]["data"]["reason"], "task_store_unavailable");
        lost.store(false, Ordering::SeqCst);
        let refused = fleet.call(0, retry("b")).await;
        assert_eq!(refused["error"]["data"]["reason"], "request_state_used", "{refused}");
    }
    let id = id_of(&fleet.call(0, retry("a")).await);
    assert_eq!(text(&fleet.wait_for(0, &id, "completed").await), "a");
    assert_eq!(id_of(&fleet.call(0, retry("a")).await), id);
}
