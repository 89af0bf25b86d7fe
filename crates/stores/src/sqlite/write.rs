//! Writes.

use mrtr_server::tasks::{RunEnd, StoredStatus, TaskWrite, Verdict};
use rusqlite::{Connection, OptionalExtension as _, Result, params};

use super::operations::{Source, announce, append, end};
use crate::millis::millis;

pub(super) fn write(
    db: &Connection,
    now: i64,
    write: &TaskWrite,
    source: Source,
) -> Result<Verdict> {
    let TaskWrite { key, lease, renew, position, entries, handler, view, end: run_end } = write;
    let held = db
        .prepare_cached(
            "SELECT cancel, posts <> posts_seen FROM mrtr_task
            WHERE key = ?1 AND lease = ?2 AND (expires IS NULL OR expires > ?3)",
        )?
        .query_row(params![key.0, lease.0, now], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some::<(bool, bool)>((cancel, has_answers)) = held else { return Ok(Verdict::Lost) };
    if let Some(position) = *position {
        let mut length = db.prepare_cached(
            "SELECT coalesce(max(position) + 1, 0) FROM mrtr_entry WHERE key = ?1",
        )?;
        let length: usize = length.query_row([key.0], |row| row.get(0))?;
        if position > length {
            return Ok(Verdict::Lost);
        }
        if position < length {
            db.prepare_cached("DELETE FROM mrtr_entry WHERE key = ?1 AND position >= ?2")?
                .execute(params![key.0, position])?;
        }
        append(db, *key, position, entries)?;
    }
    if let Some(handler) = handler {
        db.prepare_cached(
            "UPDATE mrtr_task SET tool = ?2, version = ?3, min_version = ?4 WHERE key = ?1",
        )?
        .execute(params![key.0, handler.tool, handler.version, handler.min_version])?;
    }
    if let Some(view) = view {
        db.prepare_cached("UPDATE mrtr_task SET view = ?2, updated = ?3 WHERE key = ?1")?
            .execute(params![key.0, view, now])?;
    }
    if let Some(time) = renew {
        db.prepare_cached("UPDATE mrtr_task SET wake = ?2 WHERE key = ?1")?
            .execute(params![key.0, now + millis(*time)])?;
    }
    match *run_end {
        None => {}
        Some(RunEnd::Ended(status)) => end(db, now, *key, status)?,
        // Nobody holds it any more, so it ends.
        Some(_) if cancel => end(db, now, *key, StoredStatus::Cancelled)?,
        Some(RunEnd::Waits) => {
            db.prepare_cached(
                "UPDATE mrtr_task SET lease = NULL, wake = ?2, is_mid_epoch = 0, attempts = 0
                WHERE key = ?1",
            )?
            .execute(params![key.0, has_answers.then_some(now)])?;
        }
        Some(RunEnd::Released(time)) => {
            db.prepare_cached(
                "UPDATE mrtr_task SET lease = NULL, wake = ?2, attempts = 0 WHERE key = ?1",
            )?
            .execute(params![key.0, now + millis(time)])?;
        }
    }
    if view.is_some() || run_end.is_some() {
        announce(db, *key, source)?;
    }
    Ok(Verdict::Kept { cancel })
}
