//! Tasks whose clients do not know that they were created.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mrtr_server::tasks::TaskPolicy;
use serde_json::json;

use crate::support::Counter;
use crate::support::tasks::{TaskFleet, order};

/// Calls the tool, whose task is not created, as far as its client knows.
async fn fail_to_create(fleet: &TaskFleet) {
    let refused = fleet.call(0, json!({})).await;
    assert_eq!(refused["error"]["data"]["reason"], "task_store_unavailable");
}

/// The client is told to try again, so the task that it does not know of never runs.
#[tokio::test(start_paused = true)]
async fn a_task_whose_creation_was_not_confirmed_does_not_run() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(2, || order(TaskPolicy::immediately(), &held, &placed));
    fleet.connections[0].loses_replies.store(true, Ordering::SeqCst);
    fail_to_create(&fleet).await;
    fleet.connections[0].loses_replies.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(held.get(), 0);
}

/// A commit that hangs succeeds long after the lease of the task.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_created_after_its_request_has_failed_does_not_run() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(2, || order(TaskPolicy::immediately(), &held, &placed));
    *fleet.connections[0].delays_creation.lock().unwrap() = Some(Duration::from_mins(2));
    fail_to_create(&fleet).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(held.get(), 0);
}

/// The creation may have reached the store before the replica was cut off.
#[tokio::test(start_paused = true)]
async fn an_unconfirmed_creation_is_cancelled_after_an_outage_of_minutes() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(2, || order(TaskPolicy::immediately(), &held, &placed));
    *fleet.connections[0].delays_creation.lock().unwrap() = Some(Duration::from_mins(4));
    fail_to_create(&fleet).await;
    fleet.connections[0].cut();
    tokio::time::sleep(Duration::from_mins(3)).await;
    fleet.connections[0].restore();
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(held.get(), 0);
}

/// A server that shuts down does not try again and again.
#[tokio::test(start_paused = true)]
async fn an_unconfirmed_creation_does_not_hold_up_a_shutdown() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(1, || order(TaskPolicy::immediately(), &held, &placed));
    let connection = &fleet.connections[0];
    connection.cut();
    fail_to_create(&fleet).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = connection.operations.load(Ordering::SeqCst);
    fleet.servers[0].begin_shutdown();
    fleet.servers[0].drained().await;
    let attempts = connection.operations.load(Ordering::SeqCst) - before;
    assert!((1..10).contains(&attempts), "{attempts}");
}

/// The client disconnects before it gets the id of its task.
#[tokio::test(start_paused = true)]
async fn a_task_whose_client_disconnects_during_its_creation_does_not_run() {
    let (held, placed) = (Counter::default(), Counter::default());
    let fleet = TaskFleet::start(2, || order(TaskPolicy::immediately(), &held, &placed));
    fleet.connections[0].hangs_in_creations.store(true, Ordering::SeqCst);
    let called = tokio::time::timeout(Duration::from_secs(1), fleet.call(0, json!({}))).await;
    assert!(called.is_err(), "{called:?}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(held.get(), 0);
}
