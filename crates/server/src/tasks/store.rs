//! The store of tasks: the trait, and the values that it keeps.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mrtr_codec::Digest;

use crate::rounds::Version;

/// A store of tasks, shared by all replicas of a server.
///
/// The server decides what is stored, and seals it: the values are opaque bytes. The store decides
/// which replica may run a task, with *leases*, and it alone reads a clock for that: the clocks of
/// replicas are never compared. [`row::TaskRow`](super::row::TaskRow) defines each operation in
/// memory, and `testing::task_store_contract` (feature `testing`) tests a store against it.
///
/// # Promises
///
/// - Each operation is atomic, and durable when it returns. Operations on one task are
///   linearizable.
/// - Every operation may be repeated: after an error, it may or may not have been performed.
/// - A [`write`](Self::write) that failed is not performed after a later one with the same lease: a
///   request that was delayed on an abandoned connection must not take entries back.
/// - [`write`](Self::write) changes nothing unless the task is held with that lease. A lease is a
///   random number, not a counter: after the restoration of a backup, a counter would repeat.
/// - [`claim`](Self::claim) returns a task to one caller only.
pub trait TaskStore: Send + Sync + 'static {
    /// Creates a task that is held with `lease`. If the key exists, changes nothing, and returns
    /// the task that is there.
    fn create(
        &self,
        task: NewTask,
        lease: Lease,
    ) -> impl Future<Output = Result<Created, TaskStoreError>> + Send;

    /// Reads what clients may see of a task. `None` if it does not exist.
    fn read(
        &self,
        key: TaskKey,
    ) -> impl Future<Output = Result<Option<TaskRecord>, TaskStoreError>> + Send;

    /// Adds answers to an open task, which then is due. The first answer to a question stands.
    /// Does nothing if the task has ended or does not exist.
    fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), TaskStoreError>> + Send;

    /// Cancels an open task: at once if it is not held, or if its lease has expired. Otherwise its
    /// holder learns of it with its next [`write`](Self::write). Does nothing if the task has ended
    /// or does not exist.
    fn cancel(&self, key: TaskKey) -> impl Future<Output = Result<(), TaskStoreError>> + Send;

    /// Takes up to `claim.limit` due tasks, those that have waited longest first. A task is due if
    /// it was answered or released and is not held, or if the lease of its holder has run out. A
    /// due task that is to be cancelled ends instead. Also deletes tasks that have expired.
    fn claim(
        &self,
        claim: Claim,
    ) -> impl Future<Output = Result<Vec<HeldTask>, TaskStoreError>> + Send;

    /// Writes the progress of a task that is held with `write.lease`, and renews the lease if asked
    /// to. Writes of several tasks that come together may be committed together.
    fn write(
        &self,
        write: TaskWrite,
    ) -> impl Future<Output = Result<Verdict, TaskStoreError>> + Send;

    /// Waits for the next task that has changed at any replica. One caller waits at a time. Changes
    /// may be missed: the server also looks on its own, about once a second. Default: never.
    fn next_change(&self) -> impl Future<Output = TaskKey> + Send {
        std::future::pending()
    }
}

/// The key of a task in the store: a digest of its id. Who reads the store does not learn the ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskKey(pub [u8; 32]);

impl TaskKey {
    /// Returns the key of the task with this id.
    pub fn of(task_id: &str) -> Self {
        Self(*Digest::from_parts(&[b"mrtr task key", task_id.as_bytes()]).as_bytes())
    }
}

impl fmt::Debug for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::rounds::hex(&self.0))
    }
}

/// A random number that identifies one holder of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(pub [u8; 16]);

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::rounds::hex(&self.0))
    }
}

/// The right to run a task for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Identifies the holder.
    pub id: LeaseId,
    /// The time from now until the store may give the task to another replica.
    pub time: Duration,
}

/// The handler that a task needs: a tool, and its version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskHandler {
    /// The name of the tool.
    pub tool: String,
    /// The version of the handler.
    pub version: u32,
    /// The oldest version of the handler that can continue the task.
    pub min_version: u32,
}

/// Returns the handler that a task of this version needs.
pub(crate) fn task_handler(tool: &str, version: Version) -> TaskHandler {
    let Version { number, since } = version;
    TaskHandler { tool: tool.to_owned(), version: number, min_version: since }
}

/// A task to create.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// The key.
    pub key: TaskKey,
    /// The server. Several servers can share a store, and each claims only its own tasks.
    pub service: String,
    /// The handler.
    pub handler: TaskHandler,
    /// The time from its creation after which the task is deleted. `None`: never.
    pub ttl: Option<Duration>,
    /// The time for which the task is kept after its end, even if `ttl` is over earlier.
    pub retention: Duration,
    /// The call, sealed. It does not change.
    pub call: Vec<u8>,
    /// What clients may see, sealed.
    pub view: Vec<u8>,
    /// The journal, sealed entry by entry.
    pub entries: Vec<Vec<u8>>,
}

/// The result of creating a task.
#[derive(Debug, Clone)]
pub enum Created {
    /// The task is held with the given lease. Also returned if the same creation was repeated.
    New(TaskRecord),
    /// The key existed.
    Exists(TaskRecord),
}

/// A point in time, in milliseconds since 1970-01-01T00:00:00Z, by the clock of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Returns the time `duration` later.
    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The status of a task in the store. If an open task waits for input is part of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StoredStatus {
    /// It has not ended.
    Open = 0,
    /// It ended with a result.
    Completed = 1,
    /// It ended with a JSON-RPC error.
    Failed = 2,
    /// It was cancelled.
    Cancelled = 3,
}

/// What clients may see of a task.
#[derive(Debug, Clone)]
pub struct TaskRecord {
    /// The handler.
    pub handler: TaskHandler,
    /// The status.
    pub status: StoredStatus,
    /// The time of its creation.
    pub created: UnixMillis,
    /// The time at which its status or its view last changed.
    pub updated: UnixMillis,
    /// The time at which it is deleted. `None`: never.
    pub expires: Option<UnixMillis>,
    /// The view, sealed.
    pub view: Vec<u8>,
    /// The questions that have an answer.
    pub answered: Vec<String>,
    /// The length of their answers in bytes, sealed. A store may count a few bytes more per answer.
    pub answer_bytes: u64,
}

/// A request for due tasks.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The server.
    pub service: String,
    /// The handlers that this replica has. It can continue a task if the tool is the same, and
    /// [`version`](TaskHandler::version) here is at least
    /// [`min_version`](TaskHandler::min_version) of the task.
    pub handlers: Arc<[TaskHandler]>,
    /// The lease of all tasks that are taken.
    pub lease: Lease,
    /// Maximum number of tasks to take.
    pub limit: usize,
}

/// A task that the caller holds.
#[derive(Debug, Clone)]
pub struct HeldTask {
    /// The key.
    pub key: TaskKey,
    /// The handler that the task needs.
    pub handler: TaskHandler,
    /// The number of the epoch. Answers are taken in at the beginning of an epoch only. A run
    /// after a crash continues the epoch, with the same answers.
    pub epoch: u32,
    /// The number of claims, including this one, since an entry was last written or a run ended.
    pub attempts: u32,
    /// The call, sealed.
    pub call: Vec<u8>,
    /// The view, sealed.
    pub view: Vec<u8>,
    /// The journal, sealed entry by entry.
    pub entries: Vec<Vec<u8>>,
    /// The answers of this epoch and of earlier ones, ordered by epoch and question.
    pub answers: Vec<StoredAnswer>,
}

/// An answer in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The question.
    pub question: String,
    /// The epoch that took it in.
    pub epoch: u32,
    /// The answer, sealed.
    pub answer: Vec<u8>,
}

/// The progress of a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskWrite {
    /// The key.
    pub key: TaskKey,
    /// The lease with which the writer holds the task.
    pub lease: LeaseId,
    /// Renews the lease for this time from now.
    pub renew: Option<Duration>,
    /// Replaces all entries of the journal from this position on with `entries`. If the journal is
    /// shorter, entries were lost, and so the lease is. `None`: the journal stays as it is.
    pub position: Option<usize>,
    /// The new entries.
    pub entries: Vec<Vec<u8>>,
    /// Replaces the handler that the task needs.
    pub handler: Option<TaskHandler>,
    /// Replaces the view.
    pub view: Option<Vec<u8>>,
    /// Ends the run, and with it the lease.
    pub end: Option<RunEnd>,
}

impl TaskWrite {
    /// Creates a write that changes nothing.
    pub fn new(key: TaskKey, lease: LeaseId) -> Self {
        Self {
            key,
            lease,
            renew: None,
            position: None,
            entries: Vec::new(),
            handler: None,
            view: None,
            end: None,
        }
    }
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunEnd {
    /// The handler waits for answers. The task is due at once if an answer has come that no epoch
    /// has taken in.
    Waits,
    /// The run is to be continued, by any replica, after this time. The epoch goes on.
    Released(Duration),
    /// The task has ended. Its journal and its answers are deleted.
    Ended(StoredStatus),
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The write was performed.
    Kept {
        /// True if the task is to be cancelled.
        cancel: bool,
    },
    /// The lease was lost, or the run has ended, or the store has lost entries. Nothing was
    /// written.
    Lost,
}

/// The error of a [`TaskStore`]. It is logged, and not shown to clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskStoreError {
    /// The store has no room for another task.
    #[error("the task store is full")]
    Full,
    /// The store was not reached, or it failed. The operation may or may not have been performed.
    #[error("the task store is unavailable: {0}")]
    Unavailable(#[source] Box<dyn StdError + Send + Sync>),
}

type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, TaskStoreError>> + Send + 'a>>;

/// A [`TaskStore`] that can be a trait object.
pub(crate) trait ErasedTaskStore: Send + Sync {
    fn create(&self, task: NewTask, lease: Lease) -> StoreFuture<'_, Created>;
    fn read(&self, key: TaskKey) -> StoreFuture<'_, Option<TaskRecord>>;
    fn answer(&self, key: TaskKey, answers: Vec<(String, Vec<u8>)>) -> StoreFuture<'_, ()>;
    fn cancel(&self, key: TaskKey) -> StoreFuture<'_, ()>;
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<HeldTask>>;
    fn write(&self, write: TaskWrite) -> StoreFuture<'_, Verdict>;
    fn next_change(&self) -> Pin<Box<dyn Future<Output = TaskKey> + Send + '_>>;
}

impl<S: TaskStore> ErasedTaskStore for S {
    fn create(&self, task: NewTask, lease: Lease) -> StoreFuture<'_, Created> {
        Box::pin(TaskStore::create(self, task, lease))
    }

    fn read(&self, key: TaskKey) -> StoreFuture<'_, Option<TaskRecord>> {
        Box::pin(TaskStore::read(self, key))
    }

    fn answer(&self, key: TaskKey, answers: Vec<(String, Vec<u8>)>) -> StoreFuture<'_, ()> {
        Box::pin(TaskStore::answer(self, key, answers))
    }

    fn cancel(&self, key: TaskKey) -> StoreFuture<'_, ()> {
        Box::pin(TaskStore::cancel(self, key))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Vec<HeldTask>> {
        Box::pin(TaskStore::claim(self, claim))
    }

    fn write(&self, write: TaskWrite) -> StoreFuture<'_, Verdict> {
        Box::pin(TaskStore::write(self, write))
    }

    fn next_change(&self) -> Pin<Box<dyn Future<Output = TaskKey> + Send + '_>> {
        Box::pin(TaskStore::next_change(self))
    }
}

/// Several servers in one process can share a store. [`next_change`](TaskStore::next_change) tells
/// each change to one of them only, so the others notice theirs with a delay: a due task after a
/// second, and a change for subscriptions after 5 s. Where that is too late, connect each server on
/// its own.
impl<S: TaskStore> TaskStore for Arc<S> {
    fn create(
        &self,
        task: NewTask,
        lease: Lease,
    ) -> impl Future<Output = Result<Created, TaskStoreError>> + Send {
        (**self).create(task, lease)
    }

    fn read(
        &self,
        key: TaskKey,
    ) -> impl Future<Output = Result<Option<TaskRecord>, TaskStoreError>> + Send {
        (**self).read(key)
    }

    fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> impl Future<Output = Result<(), TaskStoreError>> + Send {
        (**self).answer(key, answers)
    }

    fn cancel(&self, key: TaskKey) -> impl Future<Output = Result<(), TaskStoreError>> + Send {
        (**self).cancel(key)
    }

    fn claim(
        &self,
        claim: Claim,
    ) -> impl Future<Output = Result<Vec<HeldTask>, TaskStoreError>> + Send {
        (**self).claim(claim)
    }

    fn write(
        &self,
        write: TaskWrite,
    ) -> impl Future<Output = Result<Verdict, TaskStoreError>> + Send {
        (**self).write(write)
    }

    fn next_change(&self) -> impl Future<Output = TaskKey> + Send {
        (**self).next_change()
    }
}
