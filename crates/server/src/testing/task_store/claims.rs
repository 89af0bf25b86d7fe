//! Claims: which tasks are due, to whom, and in which order.

use std::time::Duration;

use super::bench::{Bench, HOUR, SHORT, appending, handler, journal, pause};
use crate::tasks::{Claim, RunEnd, TaskHandler, TaskStore, TaskWrite, Verdict};

pub(super) async fn due_tasks_come_in_order<S: TaskStore>(bench: &Bench<S>) {
    let mut keys = Vec::new();
    for _ in 0..5 {
        keys.push(bench.waiting().await);
    }
    // In another order than that of their creation, or of their keys.
    keys.sort();
    keys.rotate_left(2);
    for key in &keys {
        bench.answer(*key, &[("q", "a")]).await;
        bench.pass(bench.read(*key).await.updated).await;
    }
    let (first, _) = bench.claim(2).await;
    let (rest, _) = bench.claim(9).await;
    let mut claimed: Vec<_> = first.into_iter().chain(rest).map(|task| task.key).collect();
    // Within one claim, tasks have no order.
    claimed.get_mut(..2).unwrap().sort();
    claimed.get_mut(2..).unwrap().sort();
    keys.get_mut(..2).unwrap().sort();
    keys.get_mut(2..).unwrap().sort();
    assert_eq!(claimed, keys, "those that wait longest come first");
}

pub(super) async fn a_claim_has_a_limit<S: TaskStore>(bench: &Bench<S>) {
    for _ in 0..5 {
        bench.due().await;
    }
    for (limit, expected) in [(0, 0), (1, 1), (3, 3), (3, 1), (3, 0)] {
        assert_eq!(bench.claim(limit).await.0.len(), expected);
    }
}

pub(super) async fn a_claim_needs_the_handler<S: TaskStore>(bench: &Bench<S>) {
    let mut task = bench.new_task();
    task.handler = handler(5, 3);
    let lease = bench.lease(HOUR);
    let key = bench.create(task, lease).await;
    bench.end(key, lease.id, RunEnd::Released(Duration::ZERO)).await;
    let claim = async |handlers: Vec<TaskHandler>| {
        let lease = bench.lease(HOUR);
        let claim = Claim { handlers: handlers.into(), ..bench.claim_with(lease, 9) };
        (bench.one.claim(claim).await.unwrap(), lease.id)
    };
    let another = TaskHandler { tool: "another".to_owned(), ..handler(9, 1) };
    let older = handler(2, 1);
    for handlers in [vec![], vec![another.clone()], vec![older.clone()], vec![another, older]] {
        assert!(claim(handlers).await.0.is_empty());
    }
    let (held, lease) = claim(vec![handler(2, 1), handler(3, 1)]).await;
    assert_eq!(held.len(), 1, "version 3 can continue the task");
    bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
    let newer = handler(u32::MAX, u32::MAX);
    let (held, lease) = claim(vec![newer.clone()]).await;
    assert_eq!(held.len(), 1, "a newer one decides for itself");
    let write = TaskWrite { handler: Some(newer.clone()), ..TaskWrite::new(key, lease) };
    bench.write(write).await;
    bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
    assert!(claim(vec![handler(5, 3)]).await.0.is_empty());
    let (held, _) = claim(vec![newer.clone()]).await;
    assert_eq!(held.first().map(|task| &task.handler), Some(&newer));
}

pub(super) async fn a_claim_needs_the_service<S: TaskStore>(bench: &Bench<S>) {
    let key = bench.due().await;
    let claim = bench.claim_with(bench.lease(HOUR), 9);
    let service = format!("{}!", claim.service);
    let foreign = Claim { service, ..claim };
    assert!(bench.one.claim(foreign).await.unwrap().is_empty());
    bench.claim_only(key).await;
}

/// A replica that dies keeps its tasks for the time of the lease.
pub(super) async fn a_lease_runs_out<S: TaskStore>(bench: &Bench<S>) {
    let lease = bench.lease(SHORT);
    let key = bench.create(bench.new_task(), lease).await;
    bench.append(key, lease.id, 0, &["a"]).await;
    let (task, next) = bench.claim_soon().await;
    assert_eq!((task.key, task.epoch, journal(&task)), (key, 0, vec!["a".to_owned()]));
    assert_eq!(bench.write(appending(key, lease.id, 1, &["x"])).await, Verdict::Lost);
    bench.append(key, next, 1, &["b"]).await;
    bench.claim_nothing().await;
}

pub(super) async fn a_lease_is_renewed<S: TaskStore>(bench: &Bench<S>) {
    let lease = bench.lease(Duration::from_secs(2));
    let key = bench.create(bench.new_task(), lease).await;
    let renew = TaskWrite { renew: Some(HOUR), ..TaskWrite::new(key, lease.id) };
    assert_eq!(bench.write(renew).await, Verdict::Kept { cancel: false });
    // A task with the first lease, without the renewal.
    let other = bench.create(bench.new_task(), bench.lease(lease.time)).await;
    let (task, _) = bench.claim_soon().await;
    assert_eq!(task.key, other, "the renewal did not count");
    bench.claim_nothing().await;
    // It can be shortened, too.
    let renew = TaskWrite { renew: Some(SHORT), ..TaskWrite::new(key, lease.id) };
    assert_eq!(bench.write(renew).await, Verdict::Kept { cancel: false });
    assert_eq!(bench.claim_soon().await.0.key, key);
}

pub(super) async fn attempts_count_without_progress<S: TaskStore>(bench: &Bench<S>) {
    let lease = bench.lease(SHORT);
    let key = bench.create(bench.new_task(), lease).await;
    let crash = async |expected: u32, time: Duration| {
        let lease = bench.lease(time);
        loop {
            let claim = bench.claim_with(lease, 1);
            if let Some(task) = bench.other.claim(claim).await.unwrap().pop() {
                assert_eq!((task.key, task.attempts), (key, expected));
                return lease.id;
            }
            pause().await;
        }
    };
    // The creation was the first.
    crash(2, SHORT).await;
    let lease = crash(3, Duration::from_secs(2)).await;
    bench.append(key, lease, 0, &["a"]).await;
    crash(1, SHORT).await;
    crash(2, SHORT).await;
    let (task, lease) = bench.claim_soon().await;
    assert_eq!(task.attempts, 3);
    bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
    let (task, lease) = bench.claim_only(key).await;
    assert_eq!(task.attempts, 1, "a run that ends is no crash");
    bench.answer(key, &[("q", "a")]).await;
    bench.end(key, lease, RunEnd::Waits).await;
    assert_eq!(bench.claim_only(key).await.0.attempts, 1);
}

pub(super) async fn a_release_takes_its_time<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    let released = bench.read(key).await.created;
    bench.end(key, lease, RunEnd::Released(SHORT)).await;
    let (task, lease) = bench.claim_soon().await;
    assert_eq!((task.key, task.epoch), (key, 0));
    let write = TaskWrite { view: Some(b"then".to_vec()), ..TaskWrite::new(key, lease) };
    bench.write(write).await;
    let claimed = bench.read(key).await.updated;
    assert!(claimed.0 - released.0 >= 60, "claimed after {} ms", claimed.0 - released.0);
    bench.end(key, lease, RunEnd::Released(Duration::MAX)).await;
    bench.claim_nothing().await;
}
