//! Claims.

use std::collections::HashMap;

use mrtr_server::tasks::{Claim, HeldTask, StoredAnswer, TaskKey, TaskStoreError};
use tokio_postgres::Row;

use super::connect::failed;
use super::pool::{Params, Pool};
use super::rows::{DELETE_ANSWERS, DELETE_ENTRIES, exists, handler, key, now, number, question};
use crate::millis::millis;

/// Locks due tasks. What was committed before is seen by the next statements, and nothing is
/// committed for these tasks in between.
const LOCK: &str = concat!(
    "SELECT t.key, t.cancel FROM mrtr_task t
    WHERE t.service = $1 AND t.wake <= ",
    now!(),
    " AND ",
    exists!(),
    " AND EXISTS (
        SELECT FROM unnest($2::text[], $3::int8[]) AS handler(tool, version)
        WHERE handler.tool = t.tool AND handler.version >= t.min_version)
    ORDER BY t.wake LIMIT $4 FOR UPDATE SKIP LOCKED"
);

/// Takes in the answers, if an epoch begins.
const TAKE_IN: &str = "UPDATE mrtr_answer a SET epoch = t.epoch + 1 FROM mrtr_task t
    WHERE a.key = ANY($1::bytea[]) AND a.epoch IS NULL AND t.key = a.key AND NOT t.is_mid_epoch";

const HOLD: &str = concat!(
    "UPDATE mrtr_task t SET lease = $2, seq = 0, wake = ",
    now!(),
    " + $3,
        posts_seen = CASE WHEN t.is_mid_epoch THEN t.posts_seen ELSE t.posts END,
        epoch = t.epoch + CASE WHEN t.is_mid_epoch THEN 0 ELSE 1 END, is_mid_epoch = true,
        attempts = CASE WHEN journal.length = t.entries_at_claim THEN t.attempts ELSE 0 END + 1,
        entries_at_claim = journal.length
    FROM (SELECT taken.key,
            (SELECT count(*) FROM mrtr_entry e WHERE e.key = taken.key) AS length
        FROM unnest($1::bytea[]) AS taken(key)) AS journal
    WHERE t.key = journal.key
    RETURNING t.key, t.tool, t.version, t.min_version, t.epoch, t.attempts, t.call, t.view"
);

const ENTRIES: &str = "SELECT key, body FROM mrtr_entry WHERE key = ANY($1::bytea[])
    ORDER BY key, position";

const ANSWERS: &str = "SELECT key, question, epoch, body FROM mrtr_answer
    WHERE key = ANY($1::bytea[]) AND epoch IS NOT NULL ORDER BY key, epoch, question";

/// Ends tasks that are to be cancelled.
const END: &str = concat!(
    "UPDATE mrtr_task t SET status = 3, lease = NULL, wake = NULL, updated = ",
    now!(),
    ",
        expires = CASE WHEN t.expires IS NOT NULL
            THEN greatest(t.expires, ",
    now!(),
    " + t.retention) END
    WHERE t.key = ANY($1::bytea[])"
);

/// Returns the tasks that were taken, and those that ended because they were cancelled.
pub(super) async fn claim(
    pool: &Pool,
    claim: Claim,
) -> Result<(Vec<HeldTask>, Vec<TaskKey>), TaskStoreError> {
    let Claim { service, handlers, lease, limit } = claim;
    let tools: Vec<_> = handlers.iter().map(|handler| handler.tool.as_str()).collect();
    let versions: Vec<_> = handlers.iter().map(|handler| i64::from(handler.version)).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);

    let mut lent = pool.get().await?;
    let lock = lent.prepare(LOCK).await.map_err(failed)?;
    let client = lent.client();
    let params: &Params<'_> = &[&service, &tools, &versions, &limit];
    let (begun, locked) = tokio::join!(biased;
        client.batch_execute("BEGIN"),
        client.query(&lock, params),
    );
    begun.map_err(failed)?;
    let locked = locked.map_err(failed)?;
    let keys = |cancelled: bool| -> Vec<&[u8]> {
        let locked = locked.iter().filter(|row| row.get::<_, bool>(1) == cancelled);
        locked.map(|row| row.get(0)).collect()
    };
    let (taken, cancelled) = (keys(false), keys(true));
    if !cancelled.is_empty() {
        for sql in [END, DELETE_ENTRIES, DELETE_ANSWERS] {
            lent.query(sql, &[&cancelled]).await.map_err(failed)?;
        }
    }
    let cancelled = cancelled.into_iter().map(key).collect();
    if taken.is_empty() {
        lent.client().batch_execute("COMMIT").await.map_err(failed)?;
        lent.give_back();
        return Ok((Vec::new(), cancelled));
    }
    let taking_in = lent.prepare(TAKE_IN).await.map_err(failed)?;
    let holding = lent.prepare(HOLD).await.map_err(failed)?;
    let entries = lent.prepare(ENTRIES).await.map_err(failed)?;
    let answers = lent.prepare(ANSWERS).await.map_err(failed)?;
    let client = lent.client();
    let (id, time) = (&lease.id.0[..], millis(lease.time));
    let (keys, with_lease): (&Params<'_>, &Params<'_>) = (&[&taken], &[&taken, &id, &time]);
    let (answered, taken, entries, answers, committed) = tokio::join!(biased;
        client.execute(&taking_in, keys),
        client.query(&holding, with_lease),
        client.query(&entries, keys),
        client.query(&answers, keys),
        client.batch_execute("COMMIT"),
    );
    answered.map_err(failed)?;
    let (taken, entries) = (taken.map_err(failed)?, entries.map_err(failed)?);
    let answers = answers.map_err(failed)?;
    committed.map_err(failed)?;
    lent.give_back();
    Ok((tasks(&taken, &entries, &answers), cancelled))
}

/// Puts tasks together.
fn tasks(held: &[Row], entries: &[Row], answers: &[Row]) -> Vec<HeldTask> {
    let mut entries_of: HashMap<&[u8], Vec<Vec<u8>>> = HashMap::new();
    for row in entries {
        entries_of.entry(row.get(0)).or_default().push(row.get(1));
    }
    let mut answers_of: HashMap<&[u8], Vec<StoredAnswer>> = HashMap::new();
    for row in answers {
        let (question, epoch) = (question(row.get(1)), number(row.get(2)));
        let answer = StoredAnswer { question, epoch, answer: row.get(3) };
        answers_of.entry(row.get(0)).or_default().push(answer);
    }
    let task = |row: &Row| {
        let id: &[u8] = row.get("key");
        HeldTask {
            key: key(id),
            handler: handler(row),
            epoch: number(row.get("epoch")),
            attempts: number(row.get("attempts")),
            call: row.get("call"),
            view: row.get("view"),
            entries: entries_of.remove(id).unwrap_or_default(),
            answers: answers_of.remove(id).unwrap_or_default(),
        }
    };
    held.iter().map(task).collect()
}
