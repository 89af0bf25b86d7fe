//! Creation, reads, answers, cancellation, and the log of changes.

use mrtr_server::tasks::{
    Created, Lease, LeaseId, NewTask, StoredStatus, TaskHandler, TaskKey, TaskRecord,
};
use rusqlite::{Connection, OptionalExtension as _, Result, Row, params};

use crate::millis::{millis, unix_millis};

/// Identifies a process in the log of changes.
#[derive(Clone, Copy)]
pub(super) struct Source(pub(super) i64);

/// Maximum number of expired tasks that one creation deletes. There may be no claims while all
/// permits for runs are taken.
const MAX_DELETED: u32 = 4;

/// The number of changes in the log.
const MAX_CHANGES: i64 = 1_024;

pub(super) fn create(db: &Connection, now: i64, task: &NewTask, lease: Lease) -> Result<Created> {
    if let Some((record, holder)) = read(db, now, task.key)? {
        let is_ours = holder == Some(lease.id);
        return Ok(if is_ours { Created::New(record) } else { Created::Exists(record) });
    }
    // It may have expired.
    delete(db, task.key)?;
    delete_expired(db, now, MAX_DELETED)?;
    db.prepare_cached(
        "INSERT INTO mrtr_task (key, service, tool, version, min_version, lease, wake,
            entries_at_claim, created, updated, expires, retention, call, view)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13)",
    )?
    .execute(params![
        task.key.0,
        task.service,
        task.handler.tool,
        task.handler.version,
        task.handler.min_version,
        lease.id.0,
        now + millis(lease.time),
        task.entries.len(),
        now,
        task.ttl.map(|ttl| now + millis(ttl)),
        millis(task.retention),
        task.call,
        task.view,
    ])?;
    append(db, task.key, 0, &task.entries)?;
    let created = read(db, now, task.key)?.map(|(record, _)| Created::New(record));
    created.map_or_else(
        // It lives for less than a millisecond.
        || {
            let at = unix_millis(now);
            Ok(Created::New(TaskRecord {
                handler: task.handler.clone(),
                status: StoredStatus::Open,
                created: at,
                updated: at,
                expires: Some(at),
                view: task.view.clone(),
                answered: Vec::new(),
                answer_bytes: 0,
            }))
        },
        Ok,
    )
}

/// Adds entries to a journal.
pub(super) fn append(
    db: &Connection,
    key: TaskKey,
    position: usize,
    entries: &[Vec<u8>],
) -> Result<()> {
    let mut insert = db.prepare_cached("INSERT INTO mrtr_entry VALUES (?1, ?2, ?3)")?;
    for (position, entry) in (position..).zip(entries) {
        insert.execute(params![key.0, position, entry])?;
    }
    Ok(())
}

/// Reads a record, and the lease of the holder.
pub(super) fn read(
    db: &Connection,
    now: i64,
    key: TaskKey,
) -> Result<Option<(TaskRecord, Option<LeaseId>)>> {
    let mut select = db.prepare_cached(
        "SELECT tool, version, min_version, status, created, updated, expires, view, lease
        FROM mrtr_task WHERE key = ?1 AND (expires IS NULL OR expires > ?2)",
    )?;
    let read = select.query_row(params![key.0, now], |row| {
        let record = TaskRecord {
            handler: handler(row)?,
            status: status(row.get(3)?),
            created: unix_millis(row.get(4)?),
            updated: unix_millis(row.get(5)?),
            expires: row.get::<_, Option<i64>>(6)?.map(unix_millis),
            view: row.get(7)?,
            answered: Vec::new(),
            answer_bytes: 0,
        };
        Ok((record, row.get::<_, Option<[u8; 16]>>(8)?.map(LeaseId)))
    });
    let Some((mut record, lease)) = read.optional()? else { return Ok(None) };
    let mut answers = db.prepare_cached(
        "SELECT question, length(body) FROM mrtr_answer WHERE key = ?1 ORDER BY question",
    )?;
    let mut answers = answers.query([key.0])?;
    while let Some(answer) = answers.next()? {
        record.answered.push(question(answer.get(0)?));
        record.answer_bytes += answer.get::<_, u64>(1)?;
    }
    Ok(Some((record, lease)))
}

/// Reads a handler from the first columns.
pub(super) fn handler(row: &Row<'_>) -> Result<TaskHandler> {
    Ok(TaskHandler { tool: row.get(0)?, version: row.get(1)?, min_version: row.get(2)? })
}

/// Questions are bytes in the file: text there cannot be compared byte by byte.
pub(super) fn question(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn status(value: u8) -> StoredStatus {
    match value {
        0 => StoredStatus::Open,
        1 => StoredStatus::Completed,
        2 => StoredStatus::Failed,
        _ => StoredStatus::Cancelled,
    }
}

/// Returns true if the task is open.
pub(super) fn answer(
    db: &Connection,
    now: i64,
    key: TaskKey,
    answers: &[(String, Vec<u8>)],
    source: Source,
) -> Result<bool> {
    let changed = db
        .prepare_cached(
            "UPDATE mrtr_task SET posts = posts + 1, updated = ?2, wake =
                CASE WHEN lease IS NULL THEN min(coalesce(wake, ?2), ?2) ELSE wake END
            WHERE key = ?1 AND status = 0 AND (expires IS NULL OR expires > ?2)",
        )?
        .execute(params![key.0, now])?;
    if changed == 0 {
        return Ok(false);
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO mrtr_answer (key, question, body) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?;
    for (question, answer) in answers {
        insert.execute(params![key.0, question.as_bytes(), answer])?;
    }
    announce(db, key, source)?;
    Ok(true)
}

/// Returns true if the task is open.
pub(super) fn cancel(db: &Connection, now: i64, key: TaskKey, source: Source) -> Result<bool> {
    let is_held = db
        .prepare_cached(
            "UPDATE mrtr_task SET cancel = 1
            WHERE key = ?1 AND status = 0 AND (expires IS NULL OR expires > ?2)
            RETURNING lease IS NOT NULL AND wake > ?2",
        )?
        .query_row(params![key.0, now], |row| row.get::<_, bool>(0))
        .optional()?;
    match is_held {
        None => return Ok(false),
        Some(true) => {}
        Some(false) => end(db, now, key, StoredStatus::Cancelled)?,
    }
    announce(db, key, source)?;
    Ok(true)
}

/// Ends a task.
pub(super) fn end(db: &Connection, now: i64, key: TaskKey, status: StoredStatus) -> Result<()> {
    // A comparison with NULL is NULL: a task that does not expire stays so.
    db.prepare_cached(
        "UPDATE mrtr_task SET status = ?2, updated = ?3, lease = NULL, wake = NULL,
            expires = max(expires, ?3 + retention) WHERE key = ?1",
    )?
    .execute(params![key.0, status as u8, now])?;
    delete_parts(db, key)
}

fn delete_parts(db: &Connection, key: TaskKey) -> Result<()> {
    db.prepare_cached("DELETE FROM mrtr_entry WHERE key = ?1")?.execute([key.0])?;
    db.prepare_cached("DELETE FROM mrtr_answer WHERE key = ?1")?.execute([key.0])?;
    Ok(())
}

/// Deletes a task.
pub(super) fn delete(db: &Connection, key: TaskKey) -> Result<()> {
    db.prepare_cached("DELETE FROM mrtr_task WHERE key = ?1")?.execute([key.0])?;
    delete_parts(db, key)
}

pub(super) fn delete_expired(db: &Connection, now: i64, limit: u32) -> Result<()> {
    let mut select = db.prepare_cached(
        "SELECT key FROM mrtr_task WHERE expires <= ?1 ORDER BY expires LIMIT ?2",
    )?;
    let expired = select.query_map(params![now, limit], |row| row.get(0).map(TaskKey))?;
    for key in expired.collect::<Result<Vec<_>>>()? {
        delete(db, key)?;
    }
    Ok(())
}

/// Adds a change to the log.
pub(super) fn announce(db: &Connection, key: TaskKey, source: Source) -> Result<()> {
    db.prepare_cached("INSERT INTO mrtr_change (source, key) VALUES (?1, ?2)")?
        .execute(params![source.0, key.0])?;
    db.prepare_cached("DELETE FROM mrtr_change WHERE id <= ?1")?
        .execute([db.last_insert_rowid() - MAX_CHANGES])?;
    Ok(())
}

/// Returns the number of the last change.
pub(super) fn last_change(db: &Connection) -> Result<i64> {
    db.query_row("SELECT coalesce(max(id), 0) FROM mrtr_change", [], |row| row.get(0))
}

/// Returns the changes by other processes after the change `last`, and the number of the last one.
pub(super) fn changes_since(
    db: &Connection,
    last: i64,
    source: Source,
) -> Result<(i64, Vec<TaskKey>)> {
    let mut select =
        db.prepare_cached("SELECT id, source, key FROM mrtr_change WHERE id > ?1 ORDER BY id")?;
    let mut rows = select.query([last])?;
    let (mut last, mut keys) = (last, Vec::new());
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        if row.get::<_, i64>(1)? != source.0 {
            keys.push(TaskKey(row.get(2)?));
        }
    }
    Ok((last, keys))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mrtr_testkit::TempFolder;

    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn creations_delete_more_expired_tasks_than_they_add() {
        let folder = TempFolder::new("sqlite-expired");
        let db = schema::open(&folder.join("tasks.db")).unwrap();
        let create = |number: u8, now: i64| {
            let task = NewTask {
                key: TaskKey([number; 32]),
                service: "service".to_owned(),
                handler: TaskHandler { tool: "tool".to_owned(), version: 1, min_version: 1 },
                ttl: Some(Duration::from_secs(1)),
                retention: Duration::from_secs(1),
                call: Vec::new(),
                view: Vec::new(),
                entries: Vec::new(),
            };
            let lease = Lease { id: LeaseId([number; 16]), time: Duration::from_secs(1) };
            create(&db, now, &task, lease).unwrap();
            let count = "SELECT count(*) FROM mrtr_task";
            db.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
        };
        let counts = [(1, 0), (2, 0), (3, 0), (4, 1_000), (5, 1_000)];
        assert_eq!(counts.map(|(number, now)| create(number, now)), [1, 2, 3, 1, 2]);
    }
}
