//! Operations that meet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::bench::{Bench, HOUR, SHORT, appending, ending, journal, owned, pause};
use crate::tasks::{RunEnd, TaskStore, Verdict};

/// The rounds of each race.
const ROUNDS: usize = 150;

/// Every task is claimed once.
pub(super) async fn claimers_share_the_tasks<S: TaskStore>(bench: &Bench<S>) {
    const TASKS: usize = 200;
    let mut expected = BTreeSet::new();
    for _ in 0..TASKS {
        expected.insert(bench.due().await);
    }
    let total = Arc::new(AtomicUsize::new(0));
    let mut claimers = JoinSet::new();
    for n in 0..16_usize {
        let store = Arc::clone(if n % 2 == 0 { &bench.one } else { &bench.other });
        let (claim, total) = (bench.claim_with(bench.lease(HOUR), 1 + n % 5), Arc::clone(&total));
        claimers.spawn(async move {
            let mut keys = Vec::new();
            while total.load(Ordering::SeqCst) < TASKS {
                let held = store.claim(claim.clone()).await.unwrap();
                total.fetch_add(held.len(), Ordering::SeqCst);
                keys.extend(held.into_iter().map(|task| task.key));
            }
            keys
        });
    }
    let keys = claimers.join_all().await.concat();
    assert_eq!(keys.len(), TASKS, "a task was claimed twice");
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), expected);
    bench.claim_nothing().await;
}

/// An answer that meets the end of the run makes the task due, before or after.
pub(super) async fn no_wake_up_is_lost<S: TaskStore>(bench: &Bench<S>) {
    let (key, mut lease) = bench.held().await;
    for round in 0..ROUNDS {
        let question = round.to_string();
        let (one, other) = (Arc::clone(&bench.one), Arc::clone(&bench.other));
        let answers = owned(&[(&question, "a")]);
        let answer = tokio::spawn(async move { other.answer(key, answers).await.unwrap() });
        let write = ending(key, lease, RunEnd::Waits);
        let wait = tokio::spawn(async move { one.write(write).await.unwrap() });
        answer.await.unwrap();
        assert_eq!(wait.await.unwrap(), Verdict::Kept { cancel: false });
        let (task, claimed) = bench.claim_only(key).await;
        let taken_in = task.answers.iter().any(|answer| answer.question == question);
        assert!(taken_in, "round {round}: the claim did not take in the answer");
        lease = claimed;
    }
}

/// An answer that meets a claim is taken in by it, or by the next one.
pub(super) async fn a_claim_takes_in_all_answers<S: TaskStore>(bench: &Bench<S>) {
    for round in 0..ROUNDS {
        let key = bench.waiting().await;
        bench.answer(key, &[("first", "a")]).await;
        let other = Arc::clone(&bench.other);
        let answers = owned(&[("late", "b")]);
        let answer = tokio::spawn(async move { other.answer(key, answers).await.unwrap() });
        let (one, lease) = (Arc::clone(&bench.one), bench.lease(HOUR));
        let claim = bench.claim_with(lease, 1);
        let claim = tokio::spawn(async move { one.claim(claim).await.unwrap() });
        answer.await.unwrap();
        let (task, lease) = match claim.await.unwrap().pop() {
            Some(task) => (task, lease.id),
            // A store may pass over a task that is being answered.
            None => bench.claim_only(key).await,
        };
        bench.end(key, lease, RunEnd::Waits).await;
        let (next, _) = bench.claim(1).await;
        let taken_in = next.first().unwrap_or(&task).answers.iter();
        let questions: Vec<_> = taken_in.map(|answer| &*answer.question).collect();
        assert_eq!(questions, ["first", "late"], "round {round}");
    }
}

/// Entries that meet the claim after a crash are there for the next run, or are not kept.
pub(super) async fn a_late_holder_writes_nothing<S: TaskStore>(bench: &Bench<S>) {
    let mut late = JoinSet::new();
    for _ in 0..20 {
        let lease = bench.lease(SHORT);
        let key = bench.create(bench.new_task(), lease).await;
        let store = Arc::clone(&bench.one);
        late.spawn(async move {
            let mut kept = 0;
            loop {
                let write = appending(key, lease.id, kept, &["x"]);
                if store.write(write).await.unwrap() == Verdict::Lost {
                    return (key, kept);
                }
                kept += 1;
                pause().await;
            }
        });
    }
    let mut held = Vec::new();
    while held.len() < 20 {
        held.push(bench.claim_soon().await);
    }
    for (key, kept) in late.join_all().await {
        let (task, lease) = held.iter().find(|(task, _)| task.key == key).unwrap();
        assert_eq!(journal(task), vec!["x"; kept], "the next run misses entries");
        bench.append(key, *lease, kept, &["y"]).await;
    }
}
