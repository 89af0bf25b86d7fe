//! Claims.

use mrtr_server::tasks::{Claim, HeldTask, StoredAnswer, StoredStatus, TaskKey};
use rusqlite::{Connection, Result, params};

use super::operations::{Source, announce, delete_expired, end, handler, question};
use crate::millis::millis;

/// Maximum number of expired tasks that one claim deletes.
const MAX_DELETED: u32 = 500;

/// Returns the tasks that were taken, and those that ended because they were cancelled.
pub(super) fn claim(
    db: &Connection,
    now: i64,
    claim: &Claim,
    source: Source,
) -> Result<(Vec<HeldTask>, Vec<TaskKey>)> {
    delete_expired(db, now, MAX_DELETED)?;
    let (mut held, mut cancelled) = (Vec::new(), Vec::new());
    for (key, is_cancelled) in due(db, now, claim)? {
        if is_cancelled {
            end(db, now, key, StoredStatus::Cancelled)?;
            announce(db, key, source)?;
            cancelled.push(key);
        } else {
            held.push(hold(db, now, key, claim)?);
        }
    }
    Ok((held, cancelled))
}

/// Returns due tasks for the handlers of a claim, each with whether it is to be cancelled.
fn due(db: &Connection, now: i64, claim: &Claim) -> Result<Vec<(TaskKey, bool)>> {
    let mut select = db.prepare_cached(
        "SELECT tool, version, min_version, key, cancel FROM mrtr_task
        WHERE service = ?1 AND wake <= ?2 AND (expires IS NULL OR expires > ?2) ORDER BY wake",
    )?;
    let mut rows = select.query(params![claim.service, now])?;
    let mut due = Vec::new();
    while due.len() < claim.limit
        && let Some(row) = rows.next()?
    {
        let needed = handler(row)?;
        let fits = claim
            .handlers
            .iter()
            .any(|handler| handler.tool == needed.tool && handler.version >= needed.min_version);
        if fits {
            due.push((TaskKey(row.get(3)?), row.get(4)?));
        }
    }
    Ok(due)
}

fn hold(db: &Connection, now: i64, key: TaskKey, claim: &Claim) -> Result<HeldTask> {
    let mut entries =
        db.prepare_cached("SELECT body FROM mrtr_entry WHERE key = ?1 ORDER BY position")?;
    let entries = entries.query_map([key.0], |row| row.get(0))?.collect::<Result<Vec<_>>>()?;
    // Answers are taken in if an epoch begins.
    db.prepare_cached(
        "UPDATE mrtr_answer SET epoch = (SELECT epoch + 1 FROM mrtr_task WHERE key = ?1)
        WHERE key = ?1 AND epoch IS NULL
            AND (SELECT NOT is_mid_epoch FROM mrtr_task WHERE key = ?1)",
    )?
    .execute([key.0])?;
    let mut answers = db.prepare_cached(
        "SELECT question, epoch, body FROM mrtr_answer
        WHERE key = ?1 AND epoch IS NOT NULL ORDER BY epoch, question",
    )?;
    let answers = answers.query_map([key.0], |row| {
        let (question, epoch) = (question(row.get(0)?), row.get(1)?);
        Ok(StoredAnswer { question, epoch, answer: row.get(2)? })
    })?;
    let answers = answers.collect::<Result<_>>()?;
    let mut update = db.prepare_cached(
        "UPDATE mrtr_task SET lease = ?2, wake = ?3,
            posts_seen = CASE WHEN is_mid_epoch THEN posts_seen ELSE posts END,
            epoch = epoch + NOT is_mid_epoch, is_mid_epoch = 1,
            attempts = CASE WHEN entries_at_claim = ?4 THEN attempts ELSE 0 END + 1,
            entries_at_claim = ?4
        WHERE key = ?1 RETURNING tool, version, min_version, epoch, attempts, call, view",
    )?;
    let wake = now + millis(claim.lease.time);
    update.query_row(params![key.0, claim.lease.id.0, wake, entries.len()], |row| {
        Ok(HeldTask {
            key,
            handler: handler(row)?,
            epoch: row.get(3)?,
            attempts: row.get(4)?,
            call: row.get(5)?,
            view: row.get(6)?,
            entries,
            answers,
        })
    })
}
