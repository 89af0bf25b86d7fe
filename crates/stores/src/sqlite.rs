//! A task store in a SQLite file.

mod claim;
mod operations;
mod schema;
mod worker;
mod write;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr_server::tasks::{
    Claim, Created, HeldTask, Lease, NewTask, TaskKey, TaskRecord, TaskStore, TaskStoreError,
    TaskWrite, Verdict,
};
use tokio::time::{Instant, sleep_until};

use self::operations::Source;
use self::worker::{Worker, failed};
use crate::changes::Changes;

/// The interval at which changes of other processes are looked for.
const POLL: Duration = Duration::from_millis(100);

/// A [`TaskStore`] in a SQLite file, for the replicas on one machine.
///
/// ```
/// use mrtr_stores::SqliteTaskStore;
///
/// # let file = std::env::temp_dir().join(format!("mrtr-doc-{}.db", std::process::id()));
/// let store = SqliteTaskStore::open(&file)?;
/// # drop(store);
/// # for end in ["", "-wal", "-shm"] {
/// #     let _ = std::fs::remove_file(format!("{}{end}", file.display()));
/// # }
/// # Ok::<(), mrtr_server::tasks::TaskStoreError>(())
/// ```
///
/// # Durability
///
/// A commit is on the disk when it returns: the file is in WAL mode, with `synchronous` at `FULL`.
/// One thread commits what has gathered since the last commit, so concurrent tasks share one.
///
/// # Several processes
///
/// Processes on one machine can share the file, but those on several machines cannot: the locks of
/// SQLite do not work on network file systems. A process that has the file locked for longer than
/// 5 s makes operations of others fail. Changes are noticed after up to 100 ms.
///
/// Leases are compared with the clock of the machine. If it is set back, tasks of replicas that
/// have died wait for that time longer; if it is set forward, a running task may be given to
/// another replica too early. Its first holder then writes nothing any more.
pub struct SqliteTaskStore {
    writer: Worker,
    reader: Worker,
    changes: Arc<Changes>,
    source: Source,
    /// The last change that was read.
    last_change: AtomicI64,
    /// When changes are read again.
    next_poll: Mutex<Instant>,
}

impl SqliteTaskStore {
    /// Opens a file, and creates it and its tables if they do not exist. Blocks the thread for some
    /// milliseconds, or while another process has locked the file, for up to 5 s.
    ///
    /// # Errors
    ///
    /// [`TaskStoreError::Unavailable`], if the file cannot be opened, belongs to a newer version,
    /// or is on a file system without shared memory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TaskStoreError> {
        let path = path.as_ref();
        let connection = schema::open(path)?;
        let last_change = operations::last_change(&connection).map_err(failed)?;
        let source = getrandom::u64().map_err(|error| TaskStoreError::Unavailable(error.into()))?;
        Ok(Self {
            writer: Worker::start("mrtr-sqlite-writer", connection, "BEGIN IMMEDIATE")?,
            reader: Worker::start("mrtr-sqlite-reader", schema::open(path)?, "BEGIN")?,
            changes: Arc::default(),
            source: Source(i64::from_le_bytes(source.to_le_bytes())),
            last_change: AtomicI64::new(last_change),
            next_poll: Mutex::new(Instant::now()),
        })
    }

    /// Reads the changes of other processes. A failure is one of the reads that follow, too.
    async fn poll(&self) {
        let (last, source) = (self.last_change.load(Ordering::Relaxed), self.source);
        let read = move |db: &_, _| operations::changes_since(db, last, source);
        if let Ok((last, keys)) = self.reader.run(read).await {
            self.last_change.store(last, Ordering::Relaxed);
            for key in keys {
                self.changes.add(key);
            }
        }
    }
}

impl TaskStore for SqliteTaskStore {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        self.writer.run(move |db, now| operations::create(db, now, &task, lease)).await
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        let read = self.reader.run(move |db, now| operations::read(db, now, key)).await?;
        Ok(read.map(|(record, _)| record))
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        let source = self.source;
        let answer = move |db: &_, now| operations::answer(db, now, key, &answers, source);
        if self.writer.run(answer).await? {
            self.changes.add(key);
        }
        Ok(())
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        let source = self.source;
        if self.writer.run(move |db, now| operations::cancel(db, now, key, source)).await? {
            self.changes.add(key);
        }
        Ok(())
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        let source = self.source;
        let claim = move |db: &_, now| claim::claim(db, now, &claim, source);
        let (held, cancelled) = self.writer.run(claim).await?;
        for key in cancelled {
            self.changes.add(key);
        }
        Ok(held)
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        let (key, source) = (write.key, self.source);
        let is_visible = write.view.is_some() || write.end.is_some();
        let write = move |db: &_, now| write::write(db, now, &write, source);
        let verdict = self.writer.run(write).await?;
        if is_visible && verdict != Verdict::Lost {
            self.changes.add(key);
        }
        Ok(verdict)
    }

    async fn next_change(&self) -> TaskKey {
        loop {
            let next_poll = *self.next_poll.lock().unwrap_or_else(PoisonError::into_inner);
            tokio::select! {
                biased;
                // First: this process may have changes without end.
                () = sleep_until(next_poll) => {
                    self.poll().await;
                    let next = Instant::now() + POLL;
                    *self.next_poll.lock().unwrap_or_else(PoisonError::into_inner) = next;
                }
                key = self.changes.next() => return key,
            }
        }
    }
}

impl fmt::Debug for SqliteTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTaskStore").finish_non_exhaustive()
    }
}
