//! Two handles to the store under test, and short forms of its operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::tasks::{
    Claim, Created, HeldTask, Lease, LeaseId, NewTask, RunEnd, StoredAnswer, TaskHandler, TaskKey,
    TaskRecord, TaskStore, TaskWrite, UnixMillis, Verdict,
};

/// A time that does not pass within a test.
pub(super) const HOUR: Duration = Duration::from_hours(1);

/// A time that does.
pub(super) const SHORT: Duration = Duration::from_millis(60);

/// The store under test, as two replicas see it, with the tasks of one check.
pub(super) struct Bench<S> {
    pub(super) one: Arc<S>,
    pub(super) other: Arc<S>,
    /// Differs from the services of other checks, and of other runs on the same store.
    pub(super) service: String,
    next: AtomicU64,
}

impl<S: TaskStore> Bench<S> {
    pub(super) fn new(name: &str, run: [u8; 8], one: Arc<S>, other: Arc<S>) -> Self {
        let service = format!("{name} {:016x}", u64::from_le_bytes(run));
        Self { one, other, service, next: AtomicU64::new(0) }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn key(&self) -> TaskKey {
        TaskKey::of(&format!("{} {}", self.service, self.number()))
    }

    pub(super) fn lease(&self, time: Duration) -> Lease {
        let TaskKey(bytes) = self.key();
        let mut id = [0; 16];
        id.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Lease { id: LeaseId(id), time }
    }

    pub(super) fn new_task(&self) -> NewTask {
        NewTask {
            key: self.key(),
            service: self.service.clone(),
            handler: handler(1, 1),
            ttl: Some(2 * HOUR),
            retention: HOUR,
            call: b"call".to_vec(),
            view: b"view".to_vec(),
            entries: Vec::new(),
        }
    }

    /// Creates a task that is held for an hour.
    pub(super) async fn held(&self) -> (TaskKey, LeaseId) {
        let lease = self.lease(HOUR);
        (self.create(self.new_task(), lease).await, lease.id)
    }

    /// Creates a task that waits for an answer.
    pub(super) async fn waiting(&self) -> TaskKey {
        let (key, lease) = self.held().await;
        self.end(key, lease, RunEnd::Waits).await;
        key
    }

    /// Creates a task that is due.
    pub(super) async fn due(&self) -> TaskKey {
        let (key, lease) = self.held().await;
        self.end(key, lease, RunEnd::Released(Duration::ZERO)).await;
        key
    }

    /// Creates a task that was not there.
    pub(super) async fn create(&self, task: NewTask, lease: Lease) -> TaskKey {
        let key = task.key;
        let created = self.one.create(task, lease).await.unwrap();
        assert!(matches!(created, Created::New(_)), "the key existed");
        key
    }

    pub(super) async fn read(&self, key: TaskKey) -> TaskRecord {
        self.other.read(key).await.unwrap().expect("the task exists")
    }

    pub(super) async fn answer(&self, key: TaskKey, answers: &[(&str, &str)]) {
        self.other.answer(key, owned(answers)).await.unwrap();
    }

    pub(super) async fn cancel(&self, key: TaskKey) {
        self.other.cancel(key).await.unwrap();
    }

    /// Claims due tasks for an hour.
    pub(super) async fn claim(&self, limit: usize) -> (Vec<HeldTask>, LeaseId) {
        let lease = self.lease(HOUR);
        let claim = self.claim_with(lease, limit);
        (self.other.claim(claim).await.unwrap(), lease.id)
    }

    pub(super) fn claim_with(&self, lease: Lease, limit: usize) -> Claim {
        let handlers = [handler(1, 1)].into();
        Claim { service: self.service.clone(), handlers, lease, limit }
    }

    /// Claims the only due task.
    pub(super) async fn claim_only(&self, key: TaskKey) -> (HeldTask, LeaseId) {
        let (mut held, lease) = self.claim(10).await;
        let task = held.pop().expect("a task is due");
        assert_eq!((task.key, held.len()), (key, 0), "another task is due");
        (task, lease)
    }

    /// Checks that no task is due.
    pub(super) async fn claim_nothing(&self) {
        let (held, _) = self.claim(10).await;
        assert!(held.is_empty(), "a task was claimed: {held:?}");
    }

    /// Claims until a task is due.
    pub(super) async fn claim_soon(&self) -> (HeldTask, LeaseId) {
        loop {
            let (mut held, lease) = self.claim(1).await;
            if let Some(task) = held.pop() {
                return (task, lease);
            }
            pause().await;
        }
    }

    pub(super) async fn write(&self, write: TaskWrite) -> Verdict {
        self.one.write(write).await.unwrap()
    }

    /// Writes entries, and checks that they were kept.
    pub(super) async fn append(
        &self,
        key: TaskKey,
        lease: LeaseId,
        position: usize,
        entries: &[&str],
    ) {
        let verdict = self.write(appending(key, lease, position, entries)).await;
        assert_eq!(verdict, Verdict::Kept { cancel: false });
    }

    /// Ends a run, and checks that this was kept.
    pub(super) async fn end(&self, key: TaskKey, lease: LeaseId, end: RunEnd) {
        let verdict = self.write(ending(key, lease, end)).await;
        assert!(matches!(verdict, Verdict::Kept { .. }), "{end:?}: the lease was lost");
    }

    /// Waits until the clock of the store has advanced beyond a time.
    pub(super) async fn pass(&self, time: UnixMillis) {
        let mut task = self.new_task();
        task.service.push_str(" clock");
        let key = self.create(task, self.lease(HOUR)).await;
        loop {
            self.one.answer(key, owned(&[("time", "?")])).await.unwrap();
            if self.read(key).await.updated > time {
                return;
            }
            pause().await;
        }
    }
}

/// Lets a little time pass before a condition is looked at again.
pub(super) async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

pub(super) fn handler(version: u32, min_version: u32) -> TaskHandler {
    TaskHandler { tool: "tool".to_owned(), version, min_version }
}

pub(super) fn owned(answers: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
    let own = |(question, answer): &(&str, &str)| ((*question).to_owned(), bytes(answer));
    answers.iter().map(own).collect()
}

pub(super) fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

pub(super) fn appending(
    key: TaskKey,
    lease: LeaseId,
    position: usize,
    entries: &[&str],
) -> TaskWrite {
    let entries = entries.iter().map(|entry| bytes(entry)).collect();
    TaskWrite { position: Some(position), entries, ..TaskWrite::new(key, lease) }
}

pub(super) fn ending(key: TaskKey, lease: LeaseId, end: RunEnd) -> TaskWrite {
    TaskWrite { end: Some(end), ..TaskWrite::new(key, lease) }
}

pub(super) fn stored(question: &str, epoch: u32, answer: &str) -> StoredAnswer {
    StoredAnswer { question: question.to_owned(), epoch, answer: bytes(answer) }
}

/// The entries of a task as text.
pub(super) fn journal(task: &HeldTask) -> Vec<String> {
    task.entries.iter().map(|entry| String::from_utf8(entry.clone()).unwrap()).collect()
}
