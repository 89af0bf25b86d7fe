//! The file, and its tables.

use std::path::Path;
use std::time::{Duration, Instant};

use mrtr_server::tasks::TaskStoreError;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::worker::failed;

/// The version of the tables, in `user_version` of the file.
const VERSION: i64 = 1;

/// The time for which another process may lock the file.
const BUSY: Duration = Duration::from_secs(5);

/// The number of statements that stay prepared: more than there are.
const STATEMENTS: usize = 64;

/// `fullfsync` makes macOS write to the disk itself.
const SETTINGS: &str = "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON;
    PRAGMA checkpoint_fullfsync = ON";

/// Times are milliseconds since 1970.
const SCHEMA: &str = "
CREATE TABLE mrtr_task (
    key              BLOB PRIMARY KEY,
    service          TEXT NOT NULL,
    tool             TEXT NOT NULL,
    version          INTEGER NOT NULL,
    min_version      INTEGER NOT NULL,
    status           INTEGER NOT NULL DEFAULT 0,
    lease            BLOB,
    wake             INTEGER,
    posts            INTEGER NOT NULL DEFAULT 0,
    posts_seen       INTEGER NOT NULL DEFAULT 0,
    cancel           INTEGER NOT NULL DEFAULT 0,
    epoch            INTEGER NOT NULL DEFAULT 0,
    is_mid_epoch     INTEGER NOT NULL DEFAULT 1,
    attempts         INTEGER NOT NULL DEFAULT 1,
    entries_at_claim INTEGER NOT NULL,
    created          INTEGER NOT NULL,
    updated          INTEGER NOT NULL,
    expires          INTEGER,
    retention        INTEGER NOT NULL,
    call             BLOB NOT NULL,
    view             BLOB NOT NULL
) STRICT;
CREATE INDEX mrtr_task_due ON mrtr_task (service, wake) WHERE wake IS NOT NULL;
CREATE INDEX mrtr_task_expires ON mrtr_task (expires) WHERE expires IS NOT NULL;
CREATE TABLE mrtr_entry (
    key      BLOB NOT NULL,
    position INTEGER NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (key, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE mrtr_answer (
    key      BLOB NOT NULL,
    question BLOB NOT NULL,
    epoch    INTEGER,
    body     BLOB NOT NULL,
    PRIMARY KEY (key, question)
) STRICT, WITHOUT ROWID;
-- The last changes, for other processes.
CREATE TABLE mrtr_change (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    source INTEGER NOT NULL,
    key    BLOB NOT NULL
) STRICT;
";

/// Opens a file, and creates the tables unless they are there.
pub(super) fn open(path: &Path) -> Result<Connection, TaskStoreError> {
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    let mode = set_wal(&connection)?;
    if mode != "wal" {
        let why = format!("{} cannot be in WAL mode", path.display());
        return Err(TaskStoreError::Unavailable(why.into()));
    }
    connection.execute_batch(SETTINGS).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    migrate(&mut connection)?;
    Ok(connection)
}

/// Sets the journal mode, and returns the one that the file has now.
///
/// While another process sets the mode of a new file, `SQLite` fails at once: it does not wait for
/// the busy timeout here.
fn set_wal(connection: &Connection) -> Result<String, TaskStoreError> {
    let end = Instant::now() + BUSY;
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < end =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            mode => return mode.map_err(failed),
        }
    }
}

fn migrate(connection: &mut Connection) -> Result<(), TaskStoreError> {
    let behavior = TransactionBehavior::Immediate;
    let transaction = connection.transaction_with_behavior(behavior).map_err(failed)?;
    let version = transaction.query_row("PRAGMA user_version", [], |row| row.get(0));
    match version.map_err(failed)? {
        0 => {
            transaction.execute_batch(SCHEMA).map_err(failed)?;
            transaction.pragma_update(None, "user_version", VERSION).map_err(failed)?;
        }
        VERSION => {}
        other => {
            let why = format!(
                "the file has version {other}; this release knows versions up to {VERSION}"
            );
            return Err(TaskStoreError::Unavailable(why.into()));
        }
    }
    transaction.commit().map_err(failed)
}
