//! Creation, reads, answers, and cancellation.

use std::collections::HashSet;

use mrtr_server::tasks::{
    Created, Lease, LeaseId, NewTask, StoredStatus, TaskKey, TaskRecord, TaskStoreError,
};

use super::connect::failed;
use super::pool::{Params, Pool};
use super::rows::{exists, now, record};
use super::sweep;
use crate::millis::{millis, unix_millis};

const CREATE: &str = concat!(
    "WITH task AS (
        INSERT INTO mrtr_task (key, service, tool, version, min_version, lease, wake,
            entries_at_claim, created, updated, expires, retention, call, view)
        VALUES ($1, $2, $3, $4, $5, $6, ",
    now!(),
    " + $7, cardinality($8::bytea[]), ",
    now!(),
    ",
            ",
    now!(),
    ", ",
    now!(),
    " + $9, $10, $11, $12)
        ON CONFLICT (key) DO NOTHING
        RETURNING key, created, expires
    ), entries AS (
        INSERT INTO mrtr_entry (key, position, lease, seq, body)
        SELECT task.key, entry.number - 1, $6, 0, entry.body
        FROM task, unnest($8::bytea[]) WITH ORDINALITY AS entry(body, number)
    )
    SELECT created, expires FROM task"
);

const READ: &str = concat!(
    "SELECT t.tool, t.version, t.min_version, t.status, t.created, t.updated, t.expires, t.view,
        t.lease, ARRAY(SELECT a.question FROM mrtr_answer a WHERE a.key = t.key
            ORDER BY a.question) AS answered,
        (SELECT coalesce(sum(octet_length(a.body)), 0)::int8 FROM mrtr_answer a WHERE a.key = t.key)
            AS answer_bytes
    FROM mrtr_task t WHERE t.key = $1 AND ",
    exists!()
);

/// One statement: an answer that commits before the end of a run is counted in `posts`, and one
/// that waits for it sees that no replica holds the task.
const ANSWER: &str = concat!(
    "WITH task AS (
        UPDATE mrtr_task t SET posts = t.posts + 1, updated = ",
    now!(),
    ",
            wake = CASE WHEN t.lease IS NULL THEN least(t.wake, ",
    now!(),
    ") ELSE t.wake END
        WHERE t.key = $1 AND t.status = 0 AND ",
    exists!(),
    "
        RETURNING t.key
    ), answers AS (
        INSERT INTO mrtr_answer (key, question, body)
        SELECT task.key, a.question, a.body
        FROM task, unnest($2::bytea[], $3::bytea[]) AS a(question, body)
        ON CONFLICT (key, question) DO NOTHING
    )
    SELECT key FROM task"
);

/// Cancels a task: ends it at once if no replica holds it or its lease has expired, and otherwise
/// sets the flag for its holder.
const CANCEL: &str = concat!(
    "UPDATE mrtr_task t SET cancel = true,
        status = CASE WHEN free.is_free THEN 3 ELSE t.status END,
        lease = CASE WHEN free.is_free THEN NULL ELSE t.lease END,
        wake = CASE WHEN free.is_free THEN NULL ELSE t.wake END,
        updated = CASE WHEN free.is_free THEN ",
    now!(),
    " ELSE t.updated END,
        expires = CASE WHEN free.is_free AND t.expires IS NOT NULL
            THEN greatest(t.expires, ",
    now!(),
    " + t.retention) ELSE t.expires END
    FROM (SELECT key, lease IS NULL OR wake <= ",
    now!(),
    " AS is_free FROM mrtr_task WHERE key = $1 FOR UPDATE) AS free
    WHERE t.key = free.key AND t.status = 0 AND ",
    exists!(),
    "
    RETURNING t.key"
);

/// Deletes what an ended task does not need. A statement of its own: it sees what was committed
/// while the one before waited for the task.
const DELETE_ENTRIES_OF_ENDED: &str = "DELETE FROM mrtr_entry e USING mrtr_task t
    WHERE e.key = $1 AND t.key = $1 AND t.status <> 0";
const DELETE_ANSWERS_OF_ENDED: &str = "DELETE FROM mrtr_answer a USING mrtr_task t
    WHERE a.key = $1 AND t.key = $1 AND t.status <> 0";

pub(super) async fn create(
    pool: &Pool,
    task: NewTask,
    lease: Lease,
) -> Result<Created, TaskStoreError> {
    let NewTask { key, service, handler, ttl, retention, call, view, entries } = task;
    let params: &Params<'_> = &[
        &&key.0[..],
        &service,
        &handler.tool,
        &i64::from(handler.version),
        &i64::from(handler.min_version),
        &&lease.id.0[..],
        &millis(lease.time),
        &entries,
        &ttl.map(millis),
        &millis(retention),
        &call,
        &view,
    ];
    loop {
        if let Some(row) = pool.query(CREATE, params).await?.first() {
            let created = unix_millis(row.get(0));
            let expires = row.get::<_, Option<i64>>(1).map(unix_millis);
            let status = StoredStatus::Open;
            let (answered, answer_bytes) = (Vec::new(), 0);
            return Ok(Created::New(TaskRecord {
                handler,
                status,
                created,
                updated: created,
                expires,
                view,
                answered,
                answer_bytes,
            }));
        }
        if let Some((record, holder)) = read(pool, key).await? {
            let is_ours = holder == Some(lease.id);
            return Ok(if is_ours { Created::New(record) } else { Created::Exists(record) });
        }
        // A task that has expired is in the way.
        sweep::delete_if_expired(pool, key).await?;
    }
}

/// Reads a record, and the lease of the holder.
pub(super) async fn read(
    pool: &Pool,
    key: TaskKey,
) -> Result<Option<(TaskRecord, Option<LeaseId>)>, TaskStoreError> {
    let rows = pool.query(READ, &[&&key.0[..]]).await?;
    Ok(rows.first().map(|row| {
        let lease: Option<&[u8]> = row.get("lease");
        let lease = lease.and_then(|lease| lease.try_into().ok()).map(LeaseId);
        (record(row), lease)
    }))
}

/// Returns true if the task is open.
pub(super) async fn answer(
    pool: &Pool,
    key: TaskKey,
    mut answers: Vec<(String, Vec<u8>)>,
) -> Result<bool, TaskStoreError> {
    let mut seen = HashSet::new();
    answers.retain(|(question, _)| seen.insert(question.clone()));
    let questions: Vec<_> = answers.iter().map(|(question, _)| question.as_bytes()).collect();
    let bodies: Vec<_> = answers.iter().map(|(_, body)| body.as_slice()).collect();
    let rows = pool.query(ANSWER, &[&&key.0[..], &questions, &bodies]).await?;
    Ok(!rows.is_empty())
}

/// Returns true if the task is open.
pub(super) async fn cancel(pool: &Pool, key: TaskKey) -> Result<bool, TaskStoreError> {
    let mut lent = pool.get().await?;
    let cancel = lent.prepare(CANCEL).await.map_err(failed)?;
    let entries = lent.prepare(DELETE_ENTRIES_OF_ENDED).await.map_err(failed)?;
    let answers = lent.prepare(DELETE_ANSWERS_OF_ENDED).await.map_err(failed)?;
    let (client, key) = (lent.client(), &key.0[..]);
    let params: &Params<'_> = &[&key];
    let (begun, cancelled, entries, answers, committed) = tokio::join!(biased;
        client.batch_execute("BEGIN"),
        client.query(&cancel, params),
        client.execute(&entries, params),
        client.execute(&answers, params),
        client.batch_execute("COMMIT"),
    );
    let cancelled = begun.and(cancelled).map_err(failed)?;
    entries.and(answers).map(drop).and(committed).map_err(failed)?;
    let is_open = !cancelled.is_empty();
    lent.give_back();
    Ok(is_open)
}
