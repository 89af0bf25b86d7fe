//! Creation, cancellation, ends, and expiry.

use std::time::Duration;

use super::bench::{Bench, HOUR, SHORT, appending, ending, owned, pause};
use crate::tasks::{Created, RunEnd, StoredStatus, TaskStore, TaskWrite, UnixMillis, Verdict};

pub(super) async fn a_task_is_created_once<S: TaskStore>(bench: &Bench<S>) {
    let (mut task, lease) = (bench.new_task(), bench.lease(HOUR));
    task.entries = vec![b"a".to_vec(), b"b".to_vec()];
    let key = bench.create(task.clone(), lease).await;

    // A repetition, at another replica.
    let again = bench.other.create(task.clone(), lease).await.unwrap();
    let Created::New(record) = again else { unreachable!("a repeated creation is the same") };
    assert_eq!((record.status, record.view), (StoredStatus::Open, b"view".to_vec()));

    let mut foreign = task.clone();
    foreign.view = b"another".to_vec();
    let there = bench.other.create(foreign, bench.lease(HOUR)).await.unwrap();
    let Created::Exists(record) = there else { unreachable!("the key existed") };
    assert_eq!(record.view, b"view");

    bench.end(key, lease.id, RunEnd::Released(Duration::ZERO)).await;
    let later = bench.one.create(task, lease).await.unwrap();
    assert!(matches!(later, Created::Exists(_)), "the lease is over");
    let (held, _) = bench.claim_only(key).await;
    assert_eq!((held.call, held.entries), (b"call".to_vec(), vec![b"a".to_vec(), b"b".to_vec()]));
    assert_eq!((held.epoch, held.attempts), (0, 1));
    assert!(bench.other.read(bench.key()).await.unwrap().is_none(), "an unknown key was found");
}

pub(super) async fn a_task_has_its_times<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    let created = bench.read(key).await;
    assert_eq!(created.created, created.updated);
    let UnixMillis(expires) = created.expires.unwrap();
    assert_eq!(expires - created.created.0, 7_200_000);

    bench.pass(created.updated).await;
    let view = Some(b"changed".to_vec());
    bench.write(TaskWrite { view, ..TaskWrite::new(key, lease) }).await;
    let changed = bench.read(key).await;
    assert_eq!((changed.created, changed.expires), (created.created, created.expires));
    assert!(changed.updated > created.updated, "a change of the view has no time");

    bench.pass(changed.updated).await;
    bench.append(key, lease, 0, &["a"]).await;
    assert_eq!(bench.read(key).await.updated, changed.updated, "clients do not see entries");

    let mut task = bench.new_task();
    (task.ttl, task.retention) = (None, Duration::MAX);
    let lease = bench.lease(Duration::MAX);
    let key = bench.create(task, lease).await;
    assert_eq!(bench.read(key).await.expires, None);
    bench.end(key, lease.id, RunEnd::Ended(StoredStatus::Completed)).await;
    assert_eq!(bench.read(key).await.expires, None);

    let mut task = bench.new_task();
    task.ttl = Some(Duration::MAX);
    let lease = bench.lease(HOUR);
    let key = bench.create(task, lease).await;
    assert!(bench.read(key).await.expires > created.expires);
    bench.end(key, lease.id, RunEnd::Ended(StoredStatus::Failed)).await;
}

pub(super) async fn an_end_is_final<S: TaskStore>(bench: &Bench<S>) {
    for status in [StoredStatus::Completed, StoredStatus::Failed, StoredStatus::Cancelled] {
        let (key, lease) = bench.held().await;
        bench.answer(key, &[("q", "a")]).await;
        let mut write = appending(key, lease, 0, &["a"]);
        (write.view, write.end) = (Some(b"result".to_vec()), Some(RunEnd::Ended(status)));
        assert_eq!(bench.write(write.clone()).await, Verdict::Kept { cancel: false });
        let ended = bench.read(key).await;
        assert_eq!((ended.status, &*ended.view), (status, &b"result"[..]));
        assert!(ended.answered.is_empty(), "the answers were not deleted");

        assert_eq!(bench.write(write).await, Verdict::Lost);
        bench.cancel(key).await;
        bench.answer(key, &[("q", "b")]).await;
        bench.claim_nothing().await;
        let still = bench.read(key).await;
        assert_eq!((still.status, still.updated), (status, ended.updated));
        assert_eq!((still.view, still.answered), (ended.view, ended.answered));
    }
}

pub(super) async fn an_ended_task_is_kept<S: TaskStore>(bench: &Bench<S>) {
    let mut task = bench.new_task();
    task.ttl = Some(Duration::from_mins(1));
    let lease = bench.lease(HOUR);
    let key = bench.create(task, lease).await;
    bench.end(key, lease.id, RunEnd::Ended(StoredStatus::Completed)).await;
    let ended = bench.read(key).await;
    assert_eq!(ended.expires.unwrap().0 - ended.updated.0, 3_600_000);

    let (key, lease) = bench.held().await;
    let expires = bench.read(key).await.expires;
    bench.end(key, lease, RunEnd::Ended(StoredStatus::Completed)).await;
    assert_eq!(bench.read(key).await.expires, expires, "the end does not shorten the time");
}

pub(super) async fn a_task_expires<S: TaskStore>(bench: &Bench<S>) {
    let mut task = bench.new_task();
    (task.ttl, task.entries) = (Some(SHORT), vec![b"old".to_vec()]);
    let lease = bench.lease(HOUR);
    let key = bench.create(task.clone(), lease).await;
    bench.answer(key, &[("old", "a")]).await;
    while bench.other.read(key).await.unwrap().is_some() {
        pause().await;
    }
    assert_eq!(bench.write(appending(key, lease.id, 0, &["a"])).await, Verdict::Lost);
    let view = Some(b"late".to_vec());
    let late = TaskWrite { view, ..TaskWrite::new(key, lease.id) };
    assert_eq!(bench.write(late).await, Verdict::Lost);
    bench.cancel(key).await;
    bench.answer(key, &[("old", "b")]).await;
    assert!(bench.other.read(key).await.unwrap().is_none());

    // The key is free again, and nothing is left of its first task.
    (task.ttl, task.entries) = (Some(HOUR), Vec::new());
    let lease = bench.lease(HOUR);
    bench.create(task, lease).await;
    assert!(bench.read(key).await.answered.is_empty());
    bench.append(key, lease.id, 0, &[]).await;
    bench.end(key, lease.id, RunEnd::Released(Duration::ZERO)).await;
    let (held, _) = bench.claim_only(key).await;
    assert!(held.entries.is_empty() && held.answers.is_empty());

    // A due task that has expired is not claimed.
    let mut task = bench.new_task();
    task.ttl = Some(SHORT);
    let lease = bench.lease(HOUR);
    let key = bench.create(task, lease).await;
    bench.one.write(ending(key, lease.id, RunEnd::Released(Duration::ZERO))).await.unwrap();
    while bench.other.read(key).await.unwrap().is_some() {
        pause().await;
    }
    bench.claim_nothing().await;

    // The time of a task can be over when it is created.
    let mut task = bench.new_task();
    (task.ttl, task.entries) = (Some(Duration::ZERO), vec![b"a".to_vec()]);
    let lease = bench.lease(HOUR);
    let key = bench.create(task, lease).await;
    while bench.other.read(key).await.unwrap().is_some() {
        pause().await;
    }
}

pub(super) async fn cancellation_reaches_its_holder<S: TaskStore>(bench: &Bench<S>) {
    let (key, lease) = bench.held().await;
    bench.cancel(key).await;
    assert_eq!(bench.read(key).await.status, StoredStatus::Open);
    let cancel = Verdict::Kept { cancel: true };
    assert_eq!(bench.write(appending(key, lease, 0, &["a"])).await, cancel);
    let renew = TaskWrite { renew: Some(HOUR), ..TaskWrite::new(key, lease) };
    assert_eq!(bench.write(renew).await, cancel);
    assert_eq!(bench.write(TaskWrite::new(key, lease)).await, cancel);
    // A holder may finish all the same.
    let end = RunEnd::Ended(StoredStatus::Completed);
    assert_eq!(bench.write(ending(key, lease, end)).await, cancel);
    assert_eq!(bench.read(key).await.status, StoredStatus::Completed);

    // Otherwise the task ends with the run.
    for end in [RunEnd::Waits, RunEnd::Released(HOUR)] {
        let (key, lease) = bench.held().await;
        bench.answer(key, &[("q", "a")]).await;
        bench.cancel(key).await;
        assert_eq!(bench.write(ending(key, lease, end)).await, cancel);
        let record = bench.read(key).await;
        assert_eq!(record.status, StoredStatus::Cancelled, "{end:?}");
        assert!(record.answered.is_empty());
    }
    bench.claim_nothing().await;
    bench.one.cancel(bench.key()).await.unwrap();
    bench.one.answer(bench.key(), owned(&[("q", "a")])).await.unwrap();
}

pub(super) async fn cancellation_of_a_waiting_task_is_immediate<S: TaskStore>(bench: &Bench<S>) {
    for key in [bench.waiting().await, bench.due().await] {
        let before = bench.read(key).await;
        bench.cancel(key).await;
        let record = bench.read(key).await;
        assert_eq!((record.status, &record.view), (StoredStatus::Cancelled, &before.view));
    }
    bench.claim_nothing().await;
}

pub(super) async fn cancellation_after_the_lease_needs_no_claim<S: TaskStore>(bench: &Bench<S>) {
    let lease = bench.lease(SHORT);
    let key = bench.create(bench.new_task(), lease).await;
    // No replica has a handler for it.
    while bench.read(key).await.status == StoredStatus::Open {
        pause().await;
        bench.cancel(key).await;
    }
    assert_eq!(bench.read(key).await.status, StoredStatus::Cancelled);
    assert_eq!(bench.write(TaskWrite::new(key, lease.id)).await, Verdict::Lost);
}

pub(super) async fn cancellation_outlives_a_crash<S: TaskStore>(bench: &Bench<S>) {
    let lease = bench.lease(SHORT);
    let key = bench.create(bench.new_task(), lease).await;
    bench.cancel(key).await;
    // Its holder has died. A claim ends the task in place of taking it.
    while bench.read(key).await.status == StoredStatus::Open {
        bench.claim_nothing().await;
        pause().await;
    }
    assert_eq!(bench.read(key).await.status, StoredStatus::Cancelled);
    assert_eq!(bench.write(TaskWrite::new(key, lease.id)).await, Verdict::Lost);
}
