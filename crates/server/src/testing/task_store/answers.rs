//! Answers: which of them count, and when.

use std::time::Duration;

use super::bench::{Bench, HOUR, SHORT, ending, stored};
use crate::tasks::{RunEnd, StoredStatus, TaskStore};

pub(super) async fn the_first_answer_stands<S: TaskStore>(bench: &Bench<S>) {
    let key = bench.waiting().await;
    bench.answer(key, &[("b", "first"), ("b", "second")]).await;
    bench.answer(key, &[("a", "first"), ("b", "third")]).await;
    bench.answer(key, &[]).await;
    let record = bench.read(key).await;
    assert_eq!(record.answered, ["a", "b"]);
    let first_answers = 2 * "first".len() as u64;
    assert!((first_answers..first_answers + 16).contains(&record.answer_bytes), "{record:?}");
    let (task, lease) = bench.claim_only(key).await;
    assert!(bench.read(key).await.answer_bytes >= first_answers, "answers that were taken in");
    assert_eq!(task.answers, [stored("a", 1, "first"), stored("b", 1, "first")]);
    // Also in a later epoch.
    bench.answer(key, &[("a", "late"), ("0", "new")]).await;
    bench.end(key, lease, RunEnd::Waits).await;
    let (task, _) = bench.claim_only(key).await;
    let expected = [stored("a", 1, "first"), stored("b", 1, "first"), stored("0", 2, "new")];
    assert_eq!((task.epoch, &*task.answers), (2, &expected[..]));
}

pub(super) async fn an_answer_wakes_a_waiting_task<S: TaskStore>(bench: &Bench<S>) {
    let (key, before) = (bench.waiting().await, bench.waiting().await);
    let updated = bench.read(key).await.updated;
    bench.claim_nothing().await;
    bench.pass(updated).await;
    bench.answer(key, &[("q", "a")]).await;
    assert!(bench.read(key).await.updated > updated, "an answer has no time");
    bench.claim_only(key).await;
    bench.claim_nothing().await;
    // An answer that was given before is one again: its task may not have been woken.
    bench.answer(before, &[("q", "a")]).await;
    let (_, lease) = bench.claim_only(before).await;
    bench.end(before, lease, RunEnd::Waits).await;
    bench.answer(before, &[("q", "a")]).await;
    bench.claim_only(before).await;
}

pub(super) async fn an_answer_does_not_take_a_held_task<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    bench.answer(key, &[("q", "a")]).await;
    bench.claim_nothing().await;
    bench.end(key, lease, RunEnd::Waits).await;
    let (task, lease) = bench.claim_only(key).await;
    assert_eq!(task.answers, [stored("q", 1, "a")]);
    // Without another answer, the next wait is one.
    bench.end(key, lease, RunEnd::Waits).await;
    bench.claim_nothing().await;
}

/// A task that is due keeps its place, whatever answers come.
pub(super) async fn an_answer_never_delays<S: TaskStore>(bench: &Bench<S>) {
    let (first, second) = (bench.waiting().await, bench.waiting().await);
    for key in [first, second, first] {
        bench.answer(key, &[("q", "a")]).await;
        bench.pass(bench.read(key).await.updated).await;
    }
    let (held, _) = bench.claim(1).await;
    assert_eq!(held.iter().map(|task| task.key).collect::<Vec<_>>(), [first]);
    bench.claim_only(second).await;

    // It may come sooner.
    let (key, lease) = bench.held().await;
    bench.end(key, lease, RunEnd::Released(HOUR)).await;
    bench.claim_nothing().await;
    bench.answer(key, &[("q", "a")]).await;
    bench.claim_only(key).await;
}

/// Runs of one epoch see the same answers.
pub(super) async fn answers_wait_for_an_epoch<S: TaskStore>(bench: &Bench<S>) {
    let key = bench.waiting().await;
    bench.answer(key, &[("q", "a")]).await;
    let (task, lease) = bench.claim_only(key).await;
    assert_eq!((task.epoch, &*task.answers), (1, &[stored("q", 1, "a")][..]));
    // Released in the middle: the same epoch.
    bench.answer(key, &[("r", "b")]).await;
    bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
    let lease = bench.lease(SHORT);
    let held = bench.one.claim(bench.claim_with(lease, 9)).await.unwrap();
    let task = held.first().expect("a released task is due");
    assert_eq!((task.epoch, &*task.answers), (1, &[stored("q", 1, "a")][..]));
    // Crashed: the same epoch.
    bench.answer(key, &[("s", "c")]).await;
    let (task, lease) = bench.claim_soon().await;
    assert_eq!((task.key, task.epoch), (key, 1));
    assert_eq!(task.answers, [stored("q", 1, "a")]);
    assert_eq!(bench.read(key).await.answered, ["q", "r", "s"]);
    // The claim after the crash has not taken them in, so the end of the epoch makes it due.
    bench.end(key, lease, RunEnd::Waits).await;
    let (task, lease) = bench.claim_only(key).await;
    let expected = [stored("q", 1, "a"), stored("r", 2, "b"), stored("s", 2, "c")];
    assert_eq!((task.epoch, &*task.answers), (2, &expected[..]));
    bench.end(key, lease, RunEnd::Waits).await;
    bench.claim_nothing().await;
}

pub(super) async fn answers_of_ended_tasks_are_ignored<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    bench.write(ending(key, lease, RunEnd::Ended(StoredStatus::Completed))).await;
    let ended = bench.read(key).await;
    bench.pass(ended.updated).await;
    bench.answer(key, &[("q", "a")]).await;
    let record = bench.read(key).await;
    assert_eq!((record.updated, record.answered), (ended.updated, Vec::new()));
    assert_eq!(record.answer_bytes, 0);
    bench.claim_nothing().await;
}
