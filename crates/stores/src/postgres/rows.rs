//! SQL that statements share, and rows as values.

use mrtr_server::tasks::{StoredStatus, TaskHandler, TaskKey, TaskRecord};
use tokio_postgres::Row;

use crate::millis::unix_millis;

/// The time of the transaction, in milliseconds. A subquery is evaluated once per statement, not
/// once per row.
macro_rules! now {
    () => {
        "(SELECT floor(extract(epoch FROM now()) * 1000)::int8)"
    };
}
pub(super) use now;

/// The condition that a task has not expired. It is computed for each row: a statement has few, and
/// a subquery takes long to prepare.
macro_rules! exists {
    () => {
        "(t.expires IS NULL OR t.expires > date_part('epoch', now()) * 1000)"
    };
}
pub(super) use exists;

/// Deletes the journals of tasks.
pub(super) const DELETE_ENTRIES: &str = "DELETE FROM mrtr_entry WHERE key = ANY($1::bytea[])";

/// Deletes the answers of tasks.
pub(super) const DELETE_ANSWERS: &str = "DELETE FROM mrtr_answer WHERE key = ANY($1::bytea[])";

/// Reads a record from the columns tool, version, `min_version`, status, created, updated, expires,
/// view, answered, and `answer_bytes`.
pub(super) fn record(row: &Row) -> TaskRecord {
    let answered: Vec<Vec<u8>> = row.get("answered");
    TaskRecord {
        handler: handler(row),
        status: status(row.get("status")),
        created: unix_millis(row.get("created")),
        updated: unix_millis(row.get("updated")),
        expires: row.get::<_, Option<i64>>("expires").map(unix_millis),
        view: row.get("view"),
        answered: answered.into_iter().map(question).collect(),
        answer_bytes: row.get::<_, i64>("answer_bytes").try_into().unwrap_or_default(),
    }
}

/// Reads a handler from the columns tool, version, and `min_version`.
pub(super) fn handler(row: &Row) -> TaskHandler {
    TaskHandler {
        tool: row.get("tool"),
        version: number(row.get("version")),
        min_version: number(row.get("min_version")),
    }
}

/// Questions are bytes in the database: text there cannot contain NUL.
pub(super) fn question(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

pub(super) fn key(bytes: &[u8]) -> TaskKey {
    TaskKey(bytes.try_into().unwrap_or_default())
}

pub(super) fn number(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn status(value: i16) -> StoredStatus {
    match value {
        0 => StoredStatus::Open,
        1 => StoredStatus::Completed,
        2 => StoredStatus::Failed,
        _ => StoredStatus::Cancelled,
    }
}

pub(super) fn status_code(status: StoredStatus) -> i16 {
    match status {
        StoredStatus::Open => 0,
        StoredStatus::Completed => 1,
        StoredStatus::Failed => 2,
        StoredStatus::Cancelled => 3,
    }
}
