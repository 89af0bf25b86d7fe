//! Writes, grouped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mrtr_server::tasks::{RunEnd, StoredStatus, TaskKey, TaskStoreError, TaskWrite, Verdict};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use super::connect::failed;
use super::group::{Group, Job};
use super::notify::{Announcer, NOTIFY_AT_COMMIT};
use super::pool::{Params, Pool};
use super::rows::{DELETE_ANSWERS, DELETE_ENTRIES, exists, now, status_code};
use crate::millis::millis;

/// The number of groups of each kind that are under way at a time.
const RUNNING: usize = 2;

/// The length of the journal that a write begins at `$first`, or 0 if the journal is shorter. The
/// lower bound is for speed: without it, PostgreSQL collects all entries of an index page.
macro_rules! length {
    ($first:literal) => {
        concat!(
            "coalesce((SELECT e.position + 1 FROM mrtr_entry e
                WHERE e.key = w.key AND e.position >= ",
            $first,
            " - 1 ORDER BY e.position DESC LIMIT 1), 0)"
        )
    };
}

/// Adds entries at the ends of journals, and returns the numbers of the writes for which this was
/// possible.
///
/// The lock of the task is the fence: a claim either waits for it (or passes over the task), or
/// comes first. Then this statement waits, and compares the lease again with the one that the claim
/// has committed. Other writes of entries alone may hold the lock, too.
///
/// If another statement with the same lease adds these entries at the same time, this one fails.
const APPEND: &str = concat!(
    "WITH held AS MATERIALIZED (
        SELECT w.number, w.key, w.lease, w.position, w.body, t.cancel
        FROM unnest($1::int8[], $2::bytea[], $3::bytea[], $4::int4[], $5::int4[], $6::bytea[])
                AS w(number, key, lease, first, position, body)
            JOIN mrtr_task t ON t.key = w.key AND t.lease = w.lease
        WHERE ",
    exists!(),
    " AND w.first = ",
    length!("w.first"),
    " FOR SHARE OF t
    ), added AS (
        INSERT INTO mrtr_entry (key, position, lease, seq, body)
        SELECT key, position, lease, $7, body FROM held
    )
    SELECT number, cancel FROM held"
);

/// Replaces the entries from a position on in the journals of all tasks that are held with the
/// lease of their write, and returns the numbers of these writes. A journal that is too short was
/// restored: its writer has lost.
///
/// `seq` grows with every statement of a process. A statement that arrives late, from a connection
/// that its sender has given up, changes nothing that was written with the same lease since.
macro_rules! replace {
    ($lock:literal) => {
        concat!(
            "WITH write AS MATERIALIZED (
                SELECT w.*, ",
            length!("w.position"),
            " AS length
                FROM unnest($1::bytea[], $2::bytea[], $3::int4[], $4::int4[])
                    WITH ORDINALITY AS w(key, lease, position, upto, number)
            ), held AS MATERIALIZED (
                SELECT w.number, w.key, w.lease, w.upto, w.length, t.cancel
                FROM write w JOIN mrtr_task t ON t.key = w.key AND t.lease = w.lease
                WHERE ",
            exists!(),
            " AND (w.position IS NULL OR w.position <= w.length)
                FOR ",
            $lock,
            " OF t
            ), removed AS (
                DELETE FROM mrtr_entry e USING held
                WHERE held.upto < held.length AND e.key = held.key AND e.position >= held.upto
                    AND NOT (e.lease = held.lease AND e.seq > $5)
            ), added AS (
                INSERT INTO mrtr_entry AS e (key, position, lease, seq, body)
                SELECT held.key, n.position, held.lease, $5, n.body
                FROM unnest($6::int8[], $7::int4[], $8::bytea[]) AS n(number, position, body)
                    JOIN held ON held.number = n.number
                ON CONFLICT (key, position) DO UPDATE
                    SET lease = excluded.lease, seq = excluded.seq, body = excluded.body
                    WHERE NOT (e.lease = excluded.lease AND e.seq > excluded.seq)
            )
            SELECT number, cancel FROM held"
        )
    };
}

/// For writes of entries alone.
const REPLACE: &str = replace!("SHARE");

/// For writes that also change the task.
const REPLACE_AND_LOCK: &str = replace!("NO KEY UPDATE");

/// Changes tasks that are locked. `ends`: 0 the run goes on, 1 it waits, 2 it was released, 3 the
/// task has ended.
const CHANGE: &str = concat!(
    "UPDATE mrtr_task t SET
        tool = coalesce(w.tool, t.tool), version = coalesce(w.version, t.version),
        min_version = coalesce(w.min_version, t.min_version), view = coalesce(w.view, t.view),
        updated = CASE WHEN w.view IS NOT NULL OR w.ends = 3 THEN ",
    now!(),
    " ELSE t.updated END,
        status = w.status, lease = CASE WHEN w.ends = 0 THEN t.lease END,
        wake = CASE w.ends
            WHEN 0 THEN coalesce(",
    now!(),
    " + w.time, t.wake)
            WHEN 1 THEN CASE WHEN t.posts <> t.posts_seen THEN ",
    now!(),
    " END
            WHEN 2 THEN ",
    now!(),
    " + w.time
        END,
        is_mid_epoch = t.is_mid_epoch AND w.ends <> 1,
        attempts = CASE WHEN w.ends IN (1, 2) THEN 0 ELSE t.attempts END,
        expires = CASE WHEN w.ends = 3 AND t.expires IS NOT NULL
            THEN greatest(t.expires, ",
    now!(),
    " + t.retention) ELSE t.expires END
    FROM unnest($1::bytea[], $2::text[], $3::int8[], $4::int8[], $5::bytea[], $6::int2[],
        $7::int8[], $8::int2[]) AS w(key, tool, version, min_version, view, ends, time, status)
    WHERE t.key = w.key"
);

/// Commits the writes of concurrent tasks together.
pub(super) struct Writer {
    appends: Group<Arc<TaskWrite>>,
    changes: Group<Arc<TaskWrite>>,
}

impl Job for Arc<TaskWrite> {
    type Output = Verdict;

    fn key(&self) -> TaskKey {
        self.key
    }

    fn size(&self) -> usize {
        self.entries.iter().map(Vec::len).sum::<usize>() + self.view.as_ref().map_or(0, Vec::len)
    }
}

impl Writer {
    pub(super) fn new(pool: &Arc<Pool>, announcer: Announcer) -> Self {
        let appends = {
            let pool = Arc::clone(pool);
            Group::new(RUNNING, move |writes| {
                let pool = Arc::clone(&pool);
                Box::pin(async move { append(&pool, &writes).await })
            })
        };
        let pool = Arc::clone(pool);
        let changes = Group::new(RUNNING, move |writes: Vec<Arc<TaskWrite>>| {
            let (pool, announcer) = (Arc::clone(&pool), announcer.clone());
            Box::pin(async move {
                let verdicts = change(&pool, &writes, &announcer).await?;
                for (write, verdict) in writes.iter().zip(&verdicts) {
                    let is_visible = write.view.is_some() || write.end.is_some();
                    if is_visible && *verdict != Verdict::Lost {
                        announcer.announce(write.key);
                    }
                }
                Ok(verdicts)
            })
        });
        Self { appends, changes }
    }

    pub(super) async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        let TaskWrite { renew, handler, view, end, .. } = &write;
        let is_change = renew.is_some() || handler.is_some() || view.is_some() || end.is_some();
        let group = if is_change { &self.changes } else { &self.appends };
        group.add(Arc::new(write)).await
    }
}

/// Writes entries, in one statement if all of them are added to journals.
async fn append(pool: &Pool, writes: &[Arc<TaskWrite>]) -> Result<Vec<Verdict>, TaskStoreError> {
    let mut lent = pool.get().await?;
    let statement = lent.prepare(APPEND).await.map_err(failed)?;
    let rows = add(lent.client(), &statement, writes, next_seq()).await.map_err(failed)?;
    let mut verdicts = verdicts(writes, &rows);
    let is_other = |verdict: &Verdict| *verdict == Verdict::Lost;
    if verdicts.iter().any(is_other) {
        let others = writes.iter().zip(&verdicts).filter(|(_, verdict)| is_other(verdict));
        let others: Vec<_> = others.map(|(write, _)| Arc::clone(write)).collect();
        let statement = lent.prepare(REPLACE).await.map_err(failed)?;
        let rows = replace(lent.client(), &statement, &others, next_seq()).await;
        let replaced = self::verdicts(&others, &rows.map_err(failed)?);
        for (verdict, replaced) in verdicts.iter_mut().filter(|v| is_other(v)).zip(replaced) {
            *verdict = replaced;
        }
    }
    lent.give_back();
    Ok(verdicts)
}

/// Returns the number of the next statement of this process.
fn next_seq() -> i64 {
    static SEQ: AtomicI64 = AtomicI64::new(1);
    SEQ.fetch_add(1, Ordering::Relaxed)
}

/// Executes [`APPEND`].
async fn add(
    client: &Client,
    statement: &Statement,
    writes: &[Arc<TaskWrite>],
    seq: i64,
) -> Result<Vec<Row>, Error> {
    let (mut numbers, mut keys, mut leases) = (Vec::new(), Vec::new(), Vec::new());
    let (mut firsts, mut positions, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for (number, write) in (1_i64..).zip(writes) {
        let Some(first) = position(write) else { continue };
        for (position, entry) in (first..).zip(&write.entries) {
            numbers.push(number);
            keys.push(&write.key.0[..]);
            leases.push(&write.lease.0[..]);
            firsts.push(first);
            positions.push(position);
            bodies.push(entry.as_slice());
        }
    }
    let params: &Params<'_> = &[&numbers, &keys, &leases, &firsts, &positions, &bodies, &seq];
    client.query(statement, params).await
}

fn position(write: &TaskWrite) -> Option<i32> {
    write.position.map(|first| i32::try_from(first).unwrap_or(i32::MAX))
}

/// Executes [`REPLACE`] or [`REPLACE_AND_LOCK`].
async fn replace(
    client: &Client,
    statement: &Statement,
    writes: &[Arc<TaskWrite>],
    seq: i64,
) -> Result<Vec<Row>, Error> {
    let (mut keys, mut leases) = (Vec::new(), Vec::new());
    let (mut firsts, mut ends) = (Vec::new(), Vec::new());
    let (mut numbers, mut positions, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
    for (number, write) in (1_i64..).zip(writes) {
        let first = position(write);
        keys.push(&write.key.0[..]);
        leases.push(&write.lease.0[..]);
        firsts.push(first);
        let mut end = first;
        for (position, entry) in first.into_iter().flat_map(|first| first..).zip(&write.entries) {
            numbers.push(number);
            positions.push(position);
            bodies.push(entry.as_slice());
            end = Some(position.saturating_add(1));
        }
        ends.push(end);
    }
    let params: &Params<'_> =
        &[&keys, &leases, &firsts, &ends, &seq, &numbers, &positions, &bodies];
    client.query(statement, params).await
}

fn verdicts(writes: &[Arc<TaskWrite>], rows: &[Row]) -> Vec<Verdict> {
    let kept: HashMap<i64, bool> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let verdict = |number| match kept.get(&number) {
        Some(cancel) => Verdict::Kept { cancel: *cancel },
        None => Verdict::Lost,
    };
    (1..).zip(writes).map(|(number, _)| verdict(number)).collect()
}

/// Writes entries and changes tasks, in one transaction.
async fn change(
    pool: &Pool,
    writes: &[Arc<TaskWrite>],
    announcer: &Announcer,
) -> Result<Vec<Verdict>, TaskStoreError> {
    let mut lent = pool.get().await?;
    let lock = lent.prepare(REPLACE_AND_LOCK).await.map_err(failed)?;
    let (begun, rows) = tokio::join!(biased;
        lent.client().batch_execute("BEGIN"),
        replace(lent.client(), &lock, writes, next_seq()),
    );
    let rows = begun.and(rows).map_err(failed)?;
    let verdicts = verdicts(writes, &rows);
    let changes = Changes::new(writes, &verdicts);
    let change = lent.prepare(CHANGE).await.map_err(failed)?;
    let entries = lent.prepare(DELETE_ENTRIES).await.map_err(failed)?;
    let answers = lent.prepare(DELETE_ANSWERS).await.map_err(failed)?;
    let notify = lent.prepare(NOTIFY_AT_COMMIT).await.map_err(failed)?;
    let client = lent.client();
    let ended = &changes.ended;
    let delete = async {
        if ended.is_empty() {
            return Ok(());
        }
        let params: &Params<'_> = &[ended];
        let (entries, answers) = tokio::join!(biased;
            client.execute(&entries, params),
            client.execute(&answers, params),
        );
        entries.and(answers).map(drop)
    };
    // This process may end before it can announce what it has released.
    let payloads = announcer.payloads(&changes.released);
    let announce = async {
        if payloads.is_empty() {
            return Ok(());
        }
        client.execute(&notify, &[&payloads]).await.map(drop)
    };
    let params = changes.params();
    let (updated, deleted, notified, committed) = tokio::join!(biased;
        client.execute(&change, &params),
        delete,
        announce,
        client.batch_execute("COMMIT"),
    );
    updated.map(drop).and(deleted).and(notified).and(committed).map_err(failed)?;
    lent.give_back();
    Ok(verdicts)
}

/// The changes of tasks that are held, by column.
#[derive(Default)]
struct Changes<'a> {
    keys: Vec<&'a [u8]>,
    tools: Vec<Option<&'a str>>,
    versions: Vec<Option<i64>>,
    min_versions: Vec<Option<i64>>,
    views: Vec<Option<&'a [u8]>>,
    ends: Vec<i16>,
    times: Vec<Option<i64>>,
    statuses: Vec<i16>,
    /// The keys of tasks that have ended.
    ended: Vec<&'a [u8]>,
    /// The keys of tasks that another replica can take at once.
    released: Vec<TaskKey>,
}

impl<'a> Changes<'a> {
    fn new(writes: &'a [Arc<TaskWrite>], verdicts: &[Verdict]) -> Self {
        let mut changes = Self::default();
        for (write, verdict) in writes.iter().zip(verdicts) {
            let Verdict::Kept { cancel } = *verdict else { continue };
            let (ends, time, status) = match write.end {
                None => (0, write.renew, StoredStatus::Open),
                Some(RunEnd::Ended(status)) => (3, None, status),
                // Nobody holds it any more, so it ends.
                Some(_) if cancel => (3, None, StoredStatus::Cancelled),
                Some(RunEnd::Waits) => (1, None, StoredStatus::Open),
                Some(RunEnd::Released(time)) => (2, Some(time), StoredStatus::Open),
            };
            let (key, handler) = (&write.key.0[..], write.handler.as_ref());
            changes.keys.push(key);
            changes.tools.push(handler.map(|handler| handler.tool.as_str()));
            changes.versions.push(handler.map(|handler| handler.version.into()));
            changes.min_versions.push(handler.map(|handler| handler.min_version.into()));
            changes.views.push(write.view.as_deref());
            changes.ends.push(ends);
            changes.times.push(time.map(millis));
            changes.statuses.push(status_code(status));
            if ends == 3 {
                changes.ended.push(key);
            }
            if ends == 2 && time == Some(Duration::ZERO) {
                changes.released.push(write.key);
            }
        }
        changes
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 8] {
        [
            &self.keys,
            &self.tools,
            &self.versions,
            &self.min_versions,
            &self.views,
            &self.ends,
            &self.times,
            &self.statuses,
        ]
    }
}

#[cfg(all(test, unix))]
mod tests {
    use mrtr_testkit::servers::Postgres;
    use tokio_postgres::{NoTls, SimpleQueryMessage};

    use super::*;
    use crate::postgres::connect::Connector;
    use crate::postgres::schema;

    /// A statement that arrives after later ones of the same lease, because its connection was slow
    /// and given up.
    #[tokio::test]
    async fn postgres_ignores_a_late_write_of_the_same_lease() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let mut lent = pool.get().await.unwrap();
        let lease = mrtr_server::tasks::LeaseId([1; 16]);
        let write = |position, entries: &[&str]| {
            let entries = entries.iter().map(|entry| entry.as_bytes().to_vec()).collect();
            let write = TaskWrite::new(TaskKey([1; 32]), lease);
            [Arc::new(TaskWrite { position: Some(position), entries, ..write })]
        };
        let insert = "INSERT INTO mrtr_task (key, service, tool, version, min_version, lease,
                entries_at_claim, created, updated, retention, call, view)
            VALUES ($1, '', '', 1, 1, $2, 0, 0, 0, 0, '', '')";
        lent.query(insert, &[&&[1_u8; 32][..], &&lease.0[..]]).await.unwrap();
        let statement = lent.prepare(REPLACE).await.unwrap();
        let journal = async || {
            let select = "SELECT string_agg(encode(body, 'escape'), ' ' ORDER BY position)
                FROM mrtr_entry";
            lent.client().query_one(select, &[]).await.unwrap().get::<_, String>(0)
        };
        for (seq, position, entries, expected) in [
            (1, 0, &["a", "b"][..], "a b"),
            (3, 1, &["b", "c", "d"], "a b c d"),
            // It was sent before, and its sender has repeated it.
            (2, 1, &["late"], "a b c d"),
            (2, 1, &[], "a b c d"),
            (4, 1, &["e"], "a e"),
        ] {
            let writes = write(position, entries);
            replace(lent.client(), &statement, &writes, seq).await.unwrap();
            assert_eq!(journal().await, expected, "after {entries:?} at {position}");
        }
    }

    /// A plan is made once per connection, perhaps on empty tables, and serves when they are full.
    #[tokio::test]
    async fn postgres_plans_of_empty_tables_look_up_entries_by_key() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let lent = pool.get().await.unwrap();
        let append = "int8[], bytea[], bytea[], int4[], int4[], bytea[], int8";
        let replace = "bytea[], bytea[], int4[], int4[], int8, int8[], int4[], bytea[]";
        for (sql, types) in [(APPEND, append), (REPLACE, replace), (REPLACE_AND_LOCK, replace)] {
            let prepare = format!("DEALLOCATE ALL; PREPARE write ({types}) AS {sql}");
            lent.client().batch_execute(&prepare).await.unwrap();
            let values = types.split(", ").map(|of| if of.ends_with("[]") { "'{}'" } else { "1" });
            let values = values.collect::<Vec<_>>().join(", ");
            let explain = format!("EXPLAIN EXECUTE write ({values})");
            let plan = lent.client().simple_query(&explain).await.unwrap();
            let lines: Vec<_> = plan.iter().filter_map(line).collect();
            // Each access to the two tables has its condition on a key.
            let of_tables =
                lines.iter().filter(|line| line.contains("Index") && line.contains("Scan"));
            let by_key = lines.iter().filter(|line| line.contains("(key = "));
            assert_eq!(of_tables.count(), by_key.count(), "{lines:#?}");
            assert!(!lines.concat().contains("hashed"), "{lines:#?}");
            assert!(lines.iter().all(|line| !line.contains("Seq Scan")), "{lines:#?}");
        }
    }

    /// Returns a line of a plan.
    fn line(message: &SimpleQueryMessage) -> Option<&str> {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.get(0)
    }
}
