//! Writes: the journal, and the other parts of a task.

use std::time::Duration;

use super::bench::{Bench, HOUR, appending, ending, handler, journal};
use crate::tasks::{Claim, RunEnd, StoredStatus, TaskStore, TaskWrite, Verdict};

pub(super) async fn a_position_replaces_the_rest<S: TaskStore>(bench: &Bench<S>) {
    let (key, mut lease) = bench.held().await;
    for (position, entries, expected) in [
        (0, &["a", "b"][..], &["a", "b"][..]),
        (2, &["c", "d", "e"], &["a", "b", "c", "d", "e"]),
        (1, &["x"], &["a", "x"]),
        // A repetition.
        (1, &["x"], &["a", "x"]),
        (0, &["y", "z"], &["y", "z"]),
        (2, &[], &["y", "z"]),
        (1, &[], &["y"]),
        (0, &[], &[]),
        (0, &["again"], &["again"]),
    ] {
        bench.append(key, lease, position, entries).await;
        bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
        let (task, claimed) = bench.claim_only(key).await;
        assert_eq!(journal(&task), expected, "after {entries:?} at {position}");
        lease = claimed;
    }
}

pub(super) async fn a_foreign_lease_writes_nothing<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    bench.append(key, lease, 0, &["a"]).await;
    for stale in [bench.lease(HOUR).id, bench.held().await.1] {
        let view = Some(b"foreign".to_vec());
        let mut write = TaskWrite { view, ..appending(key, stale, 0, &["x", "y"]) };
        assert_eq!(bench.write(write.clone()).await, Verdict::Lost);
        write.end = Some(RunEnd::Ended(StoredStatus::Failed));
        assert_eq!(bench.write(write).await, Verdict::Lost);
        assert_eq!(bench.write(appending(key, stale, 0, &[])).await, Verdict::Lost);
        let renew = TaskWrite { renew: Some(HOUR), ..TaskWrite::new(key, stale) };
        assert_eq!(bench.write(renew).await, Verdict::Lost);
        assert_eq!(bench.write(TaskWrite::new(key, stale)).await, Verdict::Lost);
    }
    let record = bench.read(key).await;
    assert_eq!((record.status, &*record.view), (StoredStatus::Open, &b"view"[..]));
    assert_eq!(bench.write(appending(bench.key(), lease, 0, &["x"])).await, Verdict::Lost);

    // A run that has ended is over, also for its holder.
    bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
    assert_eq!(bench.write(appending(key, lease, 0, &["x"])).await, Verdict::Lost);
    let (task, _) = bench.claim_only(key).await;
    assert_eq!(journal(&task), ["a"]);
    assert_eq!(bench.write(appending(key, lease, 1, &["x"])).await, Verdict::Lost);
}

/// A store that has lost entries must not get more of them.
pub(super) async fn a_gap_is_refused<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    assert_eq!(bench.write(appending(key, lease, 1, &["b"])).await, Verdict::Lost);
    bench.append(key, lease, 0, &["a"]).await;
    let view = Some(b"gap".to_vec());
    let end = Some(RunEnd::Ended(StoredStatus::Completed));
    let write = TaskWrite { view, end, ..appending(key, lease, 2, &["c"]) };
    assert_eq!(bench.write(write).await, Verdict::Lost);
    let record = bench.read(key).await;
    assert_eq!((record.status, &*record.view), (StoredStatus::Open, &b"view"[..]));
    bench.append(key, lease, 1, &["b"]).await;
    // A store may remember where a journal has ended.
    bench.append(key, lease, 0, &["c"]).await;
    assert_eq!(bench.write(appending(key, lease, 2, &["d"])).await, Verdict::Lost);
    bench.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
    let (task, _) = bench.claim_only(key).await;
    assert_eq!(journal(&task), ["c"]);
}

pub(super) async fn every_part_of_a_write_counts<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    let write = TaskWrite {
        renew: Some(HOUR),
        handler: Some(handler(7, 5)),
        view: Some(b"asks".to_vec()),
        end: Some(RunEnd::Waits),
        ..appending(key, lease, 0, &["a"])
    };
    assert_eq!(bench.write(write).await, Verdict::Kept { cancel: false });
    let record = bench.read(key).await;
    assert_eq!((record.handler, &*record.view), (handler(7, 5), &b"asks"[..]));
    bench.answer(key, &[("q", "a")]).await;
    bench.claim_nothing().await;
    let lease = bench.lease(HOUR);
    let claim = Claim { handlers: [handler(5, 5)].into(), ..bench.claim_with(lease, 1) };
    let held = bench.one.claim(claim).await.unwrap();
    let task = held.first().expect("version 5 can continue the task");
    assert_eq!((journal(task), &task.handler), (vec!["a".to_owned()], &handler(7, 5)));
    assert_eq!((&*task.call, &*task.view), (&b"call"[..], &b"asks"[..]));
}

pub(super) async fn the_journal_takes_any_bytes<S: TaskStore>(bench: &Bench<S>) {
    let mut task = bench.new_task();
    let all: Vec<u8> = (0..=255).collect();
    let large = all.repeat(1_024);
    (task.call, task.view) = (Vec::new(), all.clone());
    let lease = bench.lease(HOUR);
    let key = bench.create(task, lease).await;
    let entries = vec![Vec::new(), all.clone(), large.clone()];
    let write = TaskWrite { position: Some(0), entries, ..TaskWrite::new(key, lease.id) };
    assert_eq!(bench.write(write).await, Verdict::Kept { cancel: false });
    let question = "q\0 \u{1F600} '\"\\".to_owned();
    bench.one.answer(key, vec![(question.clone(), large.clone())]).await.unwrap();
    assert_eq!(bench.read(key).await.answered, [question.as_str()]);
    bench.write(ending(key, lease.id, RunEnd::Waits)).await;
    let (task, _) = bench.claim_only(key).await;
    assert_eq!((&task.call, &task.view), (&Vec::new(), &all));
    assert_eq!(task.entries, [Vec::new(), all, large.clone()]);
    let answer = task.answers.first().expect("the answer was taken in");
    assert_eq!((&answer.question, &answer.answer), (&question, &large));
}
