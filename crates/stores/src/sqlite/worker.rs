//! A thread that owns a connection, and executes what has gathered in one transaction.

use std::sync::Arc;
use std::time::SystemTime;

use mrtr_server::tasks::TaskStoreError;
use rusqlite::{Connection, Error, ErrorCode};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::millis::millis;

/// Maximum number of operations in one transaction.
const MAX_GROUP: usize = 256;

/// Maximum number of operations that wait. Further callers wait for a place.
const MAX_WAITING: usize = 256;

/// Executes an operation within a transaction, at a time, or reports why there is none. Returns
/// what is to be done when the transaction has ended. `None`: its caller has gone, or was replied
/// to.
type Job = Box<dyn FnOnce(Result<(&Connection, i64), &Error>) -> Option<Done> + Send>;

/// Reports the result of an operation: its own error, or that of the transaction.
type Done = Box<dyn FnOnce(Result<(), Arc<Error>>) + Send>;

/// A thread with a connection. It ends when this is dropped.
pub(super) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    pub(super) fn start(
        name: &str,
        connection: Connection,
        begin: &'static str,
    ) -> Result<Self, TaskStoreError> {
        let (jobs, receiver) = channel(MAX_WAITING);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let started = thread.spawn(move || work(&connection, begin, receiver));
        started.map_err(|error| TaskStoreError::Unavailable(error.into()))?;
        Ok(Self { jobs })
    }

    /// Executes an operation, and waits until it is committed. Dropping the future withdraws it,
    /// unless it has begun.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Connection, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, TaskStoreError> {
        let (reply, result) = oneshot::channel();
        let job = move |transaction: Result<(&Connection, i64), &Error>| {
            if reply.is_closed() {
                return None;
            }
            let (connection, now) = match transaction {
                Ok(begun) => begun,
                Err(error) => {
                    let _ = reply.send(Err(failed_together(error)));
                    return None;
                }
            };
            let done = execute(connection, |connection| operation(connection, now));
            Some(Box::new(move |committed: Result<(), Arc<Error>>| {
                let done = match (done, committed) {
                    (Ok(value), Ok(())) => Ok(value),
                    (Err(error), _) => Err(failed(error)),
                    (_, Err(error)) => Err(failed_together(&error)),
                };
                // Sending fails if nobody waits any more.
                let _ = reply.send(done);
            }) as Done)
        };
        let ended = || TaskStoreError::Unavailable("the thread of SQLite has ended".into());
        self.jobs.send(Box::new(job)).await.map_err(|_| ended())?;
        result.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// Executes an operation. If it fails, nothing is left of it, and the transaction goes on.
fn execute<T>(
    connection: &Connection,
    operation: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    if connection.is_autocommit() {
        // Outside the transaction, the operation would take effect although its commit fails.
        let aborted = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_ABORT);
        let why = "another operation has ended the transaction".to_owned();
        return Err(Error::SqliteFailure(aborted, Some(why)));
    }
    connection.execute_batch("SAVEPOINT operation")?;
    let done = operation(connection);
    // Some failures end the transaction, such as a full disk. Its commit then fails.
    if done.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK TO operation")?;
    }
    if !connection.is_autocommit() {
        connection.execute_batch("RELEASE operation")?;
    }
    done
}

fn work(connection: &Connection, begin: &str, mut jobs: Receiver<Job>) {
    while let Some(first) = jobs.blocking_recv() {
        // Jobs that come from here on see a later time than those that were replied to.
        let mut group = vec![first];
        while group.len() < MAX_GROUP
            && let Ok(next) = jobs.try_recv()
        {
            group.push(next);
        }
        if let Err(error) = connection.execute_batch(begin) {
            for job in group {
                job(Err(&error));
            }
            continue;
        }
        let now = now();
        let done: Vec<_> = group.into_iter().filter_map(|job| job(Ok((connection, now)))).collect();
        let ended = connection.execute_batch("COMMIT");
        if ended.is_err() && !connection.is_autocommit() {
            // If this fails, the next transaction does not begin.
            let _ = connection.execute_batch("ROLLBACK");
        }
        let ended = ended.map_err(Arc::new);
        for done in done {
            done(ended.clone());
        }
    }
}

/// Returns the time of the machine in milliseconds.
fn now() -> i64 {
    millis(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// Converts an error of the database.
pub(super) fn failed(error: Error) -> TaskStoreError {
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return TaskStoreError::Full;
    }
    TaskStoreError::Unavailable(Box::new(error))
}

fn failed_together(error: &Error) -> TaskStoreError {
    if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
        return TaskStoreError::Full;
    }
    TaskStoreError::Unavailable(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use mrtr_testkit::TempFolder;

    use super::*;
    use crate::sqlite::schema;

    fn count(connection: &Connection) -> i64 {
        let count = "SELECT count(*) FROM mrtr_change";
        connection.query_row(count, [], |row| row.get(0)).unwrap()
    }

    fn insert(connection: &Connection) -> rusqlite::Result<usize> {
        connection.execute("INSERT INTO mrtr_change (source, key) VALUES (1, x'00')", [])
    }

    /// An operation that fails does not fail the others.
    #[tokio::test]
    async fn operations_that_gather_are_committed_together() {
        let folder = TempFolder::new("sqlite-group");
        let file = folder.join("tasks.db");
        let connection = schema::open(&file).unwrap();
        for (pragma, expected) in [("synchronous", 2), ("fullfsync", 1), ("busy_timeout", 5_000)] {
            let value = connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
            assert_eq!(value.unwrap(), expected, "{pragma}");
        }
        let worker = Worker::start("writer", connection, "BEGIN IMMEDIATE").unwrap();
        let observer = schema::open(&file).unwrap();

        let (release, released) = std::sync::mpsc::channel::<()>();
        let (start, started) = oneshot::channel();
        let first = worker.run(move |db, _| {
            start.send(()).unwrap();
            released.recv().unwrap();
            insert(db)
        });
        let good = worker.run(|db, _| insert(db));
        let bad = worker.run(|db, _| {
            insert(db)?;
            db.execute("INSERT INTO mrtr_change (source) VALUES (2)", [])
        });
        let last = worker.run(move |db, _| Ok((count(&observer), insert(db)?)));
        let gathered = async {
            started.await.unwrap();
            let release = async { release.send(()).unwrap() };
            // Polled in this order: the first operation ends after the others were sent.
            tokio::join!(biased; good, bad, last, release)
        };
        let (first, (good, bad, last, ())) = tokio::join!(first, gathered);
        assert!(first.is_ok() && good.is_ok());
        assert!(matches!(bad, Err(TaskStoreError::Unavailable(_))), "{bad:?}");
        // Only the first was committed when the last ran.
        assert_eq!(last.unwrap(), (1, 1));
        let seen = worker.run(|db, _| Ok(count(db))).await.unwrap();
        assert_eq!(seen, 3);
    }

    #[tokio::test]
    async fn transaction_that_cannot_begin_fails_with_its_reason() {
        let folder = TempFolder::new("sqlite-busy");
        let file = folder.join("tasks.db");
        let connection = schema::open(&file).unwrap();
        connection.pragma_update(None, "busy_timeout", 0).unwrap();
        let worker = Worker::start("writer", connection, "BEGIN IMMEDIATE").unwrap();
        let other = schema::open(&file).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = worker.run(|db, _| insert(db)).await.unwrap_err();
        assert!(refused.to_string().contains("database is locked"), "{refused}");
        other.execute_batch("ROLLBACK").unwrap();
        worker.run(|db, _| insert(db)).await.unwrap();
    }

    /// SQLite ends a transaction by itself if the disk is full.
    #[tokio::test]
    async fn operations_after_the_end_of_their_transaction_have_no_effect() {
        let folder = TempFolder::new("sqlite-ended");
        let connection = schema::open(&folder.join("tasks.db")).unwrap();
        let worker = Worker::start("writer", connection, "BEGIN IMMEDIATE").unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (start, started) = oneshot::channel();
        let first = worker.run(move |_, _| {
            start.send(()).unwrap();
            released.recv().unwrap();
            Ok(())
        });
        let before = worker.run(|db, _| insert(db));
        let ending = worker.run(|db, _| db.execute_batch("ROLLBACK; SELECT nothing"));
        let after = worker.run(|db, _| insert(db));
        let gathered = async {
            started.await.unwrap();
            let release = async { release.send(()).unwrap() };
            tokio::join!(biased; before, ending, after, release)
        };
        let (first, (before, ending, after, ())) = tokio::join!(first, gathered);
        assert!(first.is_ok());
        assert!(before.is_err() && ending.is_err() && after.is_err());
        assert_eq!(worker.run(|db, _| Ok(count(db))).await.unwrap(), 0);
        assert!(worker.run(|db, _| insert(db)).await.is_ok(), "the next transaction works");
    }
}
