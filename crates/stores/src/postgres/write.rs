//! Writes, grouped.

use std::sync::Arc;
use std::time::Duration;

use mrtr_server::tasks::{RunEnd, StoredStatus, TaskKey, TaskStoreError, TaskWrite, Verdict};
use tokio_postgres::types::ToSql;

use super::connect::failed;
use super::group::{Group, Job};
use super::journal::{self, Replacing, next_seq};
use super::notify::{Announcer, NOTIFY_AT_COMMIT};
use super::pool::{Params, Pool};
use super::rows::{DELETE_ANSWERS, DELETE_ENTRIES, now, status_code};
use crate::millis::millis;

/// The number of groups of each kind that are under way at a time.
const RUNNING: usize = 2;

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
        seq = greatest(t.seq, $9),
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
    // One number for all statements: a caller that has given up may have written since.
    let seq = next_seq();
    let mut lent = pool.get_for_writes().await?;
    let mut verdicts = journal::append(&mut lent, writes, seq).await.map_err(failed)?;
    let is_other = |verdict: &Verdict| *verdict == Verdict::Lost;
    if verdicts.iter().any(is_other) {
        let others = writes.iter().zip(&verdicts).filter(|(_, verdict)| is_other(verdict));
        let others: Vec<_> = others.map(|(write, _)| Arc::clone(write)).collect();
        let replacing = Replacing::prepare(&mut lent, &others).await.map_err(failed)?;
        let client = lent.client();
        let (begun, rows, committed) = tokio::join!(biased;
            client.batch_execute("BEGIN"),
            replacing.execute(client, &others, seq),
            client.batch_execute("COMMIT"),
        );
        let rows = begun.and(rows).and_then(|rows| committed.map(|()| rows)).map_err(failed)?;
        let replaced = journal::verdicts(&others, &rows);
        for (verdict, replaced) in verdicts.iter_mut().filter(|v| is_other(v)).zip(replaced) {
            *verdict = replaced;
        }
    }
    lent.give_back();
    Ok(verdicts)
}

/// Writes entries and changes tasks, in one transaction.
async fn change(
    pool: &Pool,
    writes: &[Arc<TaskWrite>],
    announcer: &Announcer,
) -> Result<Vec<Verdict>, TaskStoreError> {
    let seq = next_seq();
    let mut lent = pool.get_for_writes().await?;
    let replacing = Replacing::prepare(&mut lent, writes).await.map_err(failed)?;
    let (begun, rows) = tokio::join!(biased;
        lent.client().batch_execute("BEGIN"),
        replacing.execute(lent.client(), writes, seq),
    );
    let rows = begun.and(rows).map_err(failed)?;
    let verdicts = journal::verdicts(writes, &rows);
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
    let params = changes.params(&seq);
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

    fn params<'p>(&'p self, seq: &'p i64) -> [&'p (dyn ToSql + Sync); 9] {
        [
            &self.keys,
            &self.tools,
            &self.versions,
            &self.min_versions,
            &self.views,
            &self.ends,
            &self.times,
            &self.statuses,
            seq,
        ]
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use mrtr_server::tasks::LeaseId;
    use mrtr_testkit::servers::Postgres;
    use tokio_postgres::{Client, NoTls};

    use super::*;
    use crate::postgres::connect::Connector;
    use crate::postgres::notify::Notifier;
    use crate::postgres::schema;

    fn write(key: u8, position: usize, entry: &str) -> Arc<TaskWrite> {
        let (position, entries) = (Some(position), vec![entry.as_bytes().to_vec()]);
        let write = TaskWrite::new(TaskKey([key; 32]), LeaseId([1; 16]));
        Arc::new(TaskWrite { position, entries, ..write })
    }

    /// Inserts two tasks, and locks the first until `COMMIT`.
    async fn insert_and_lock(client: &Client) {
        for key in [1, 2] {
            schema::insert_task(client, key).await;
        }
        client.batch_execute("BEGIN").await.unwrap();
        let lock = "SELECT FROM mrtr_task WHERE key = $1 FOR UPDATE";
        client.execute(lock, &[&&[1_u8; 32][..]]).await.unwrap();
    }

    /// Two writes wait in one statement for the lock of the first one's task. The caller of the
    /// second one gives up, and has written with another connection since.
    #[tokio::test]
    async fn postgres_keeps_what_was_written_since_a_write_was_given_up() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let locking = pool.get().await.unwrap();
        insert_and_lock(locking.client()).await;

        let late = [write(1, 0, "x"), write(2, 0, "late")];
        let late = append(&pool, &late);
        let since = async {
            pool.wait_for_lock().await;
            for (position, entry) in [(0, "a"), (1, "b")] {
                let written = append(&pool, &[write(2, position, entry)]).await.unwrap();
                assert_eq!(written, [Verdict::Kept { cancel: false }]);
            }
            locking.client().batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(late, since).0.unwrap();
        let select = "SELECT string_agg(encode(body, 'escape'), ' ' ORDER BY position)
            FROM mrtr_entry WHERE key = $1";
        let journal = locking.client().query_one(select, &[&&[2_u8; 32][..]]).await.unwrap();
        assert_eq!(journal.get::<_, &str>(0), "a b");
    }

    /// The same with views, which have no position in the journal.
    #[tokio::test]
    async fn postgres_keeps_the_view_that_was_written_since_a_write_was_given_up() {
        let server = Postgres::start();
        let pool = Arc::new(Pool::new(Connector::new(server.config().parse().unwrap(), NoTls)));
        schema::migrate(&pool).await.unwrap();
        let locking = pool.get().await.unwrap();
        insert_and_lock(locking.client()).await;

        let view = |key: u8, view: &str| {
            let write = TaskWrite::new(TaskKey([key; 32]), LeaseId([1; 16]));
            Arc::new(TaskWrite { view: Some(view.as_bytes().to_vec()), ..write })
        };
        let notifier = Notifier::start(Connector::new(server.config().parse().unwrap(), NoTls));
        let announcer = notifier.unwrap().announcer();
        let late = [view(1, "x"), view(2, "late")];
        let late = change(&pool, &late, &announcer);
        let since = async {
            pool.wait_for_lock().await;
            let written = change(&pool, &[view(2, "since")], &announcer).await.unwrap();
            assert_eq!(written, [Verdict::Kept { cancel: false }]);
            locking.client().batch_execute("COMMIT").await.unwrap();
        };
        let late = tokio::join!(late, since).0.unwrap();
        assert_eq!(late, [Verdict::Kept { cancel: false }, Verdict::Lost]);
        let select = "SELECT encode(view, 'escape') FROM mrtr_task WHERE key = $1";
        let row = locking.client().query_one(select, &[&&[2_u8; 32][..]]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "since");
    }
}
