//! The entries of journals: statements that add and replace them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mrtr_server::tasks::TaskWrite;
use tokio_postgres::{Client, Error, Row, Statement};

use super::pool::{Lent, Params};
use super::rows::exists;

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
/// The row lock of the task is the fence. A claim skips a task that is locked here. If a claim or
/// [`FENCE`] has locked it first, this statement waits, and then compares the lease and `seq` with
/// the committed values. Concurrent appends share the lock. If two insert the same position, the
/// second one fails, for all of its writes.
pub(super) const APPEND: &str = concat!(
    "WITH held AS MATERIALIZED (
        SELECT w.number, w.key, w.lease, w.position, w.body, t.cancel
        FROM unnest($1::int8[], $2::bytea[], $3::bytea[], $4::int4[], $5::int4[], $6::bytea[])
                AS w(number, key, lease, first, position, body)
            JOIN mrtr_task t ON t.key = w.key AND t.lease = w.lease
        WHERE t.seq < $7 AND ",
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

/// Locks the tasks whose journals are about to be replaced, until the transaction ends. Waits for
/// statements that are adding entries, so that [`REPLACE`] sees them.
///
/// `seq` grows with each [`APPEND`], and each [`FENCE`] with its [`REPLACE`], of a process. A
/// statement that arrives late, from a connection that its sender has abandoned, does nothing if
/// the same lease has replaced the journal since. It keeps entries that the same lease has added
/// since.
const FENCE: &str = "UPDATE mrtr_task t SET seq = $3
    FROM unnest($1::bytea[], $2::bytea[]) AS w(key, lease)
    WHERE t.key = w.key AND t.lease = w.lease AND t.seq < $3";

/// Locks the tasks of all writes whose lease is current, replaces their entries from the position
/// of the write on, and returns the numbers of these writes. A journal that is shorter comes from a
/// backup, or from a replica of the database that was behind: its write is not performed.
const REPLACE: &str = concat!(
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
    " AND (w.position IS NULL OR (t.seq = $5 AND w.position <= w.length))
        FOR NO KEY UPDATE OF t
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
);

/// Returns the number of the next statement of this process.
pub(super) fn next_seq() -> i64 {
    static SEQ: AtomicI64 = AtomicI64::new(1);
    SEQ.fetch_add(1, Ordering::Relaxed)
}

/// Executes [`APPEND`].
pub(super) async fn add(
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

/// The statements that replace entries, which belong into one transaction.
pub(super) struct Replacing {
    fence: Statement,
    replace: Statement,
}

impl Replacing {
    pub(super) async fn prepare(lent: &mut Lent<'_>) -> Result<Self, Error> {
        Ok(Self { fence: lent.prepare(FENCE).await?, replace: lent.prepare(REPLACE).await? })
    }

    /// Executes [`FENCE`], if it is needed, and [`REPLACE`].
    pub(super) async fn execute(
        &self,
        client: &Client,
        writes: &[Arc<TaskWrite>],
        seq: i64,
    ) -> Result<Vec<Row>, Error> {
        let (mut keys, mut leases) = (Vec::new(), Vec::new());
        let (mut firsts, mut ends) = (Vec::new(), Vec::new());
        let (mut numbers, mut positions, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        let (mut fenced_keys, mut fenced_leases) = (Vec::new(), Vec::new());
        for (number, write) in (1_i64..).zip(writes) {
            let first = position(write);
            keys.push(&write.key.0[..]);
            leases.push(&write.lease.0[..]);
            firsts.push(first);
            if first.is_some() {
                fenced_keys.push(&write.key.0[..]);
                fenced_leases.push(&write.lease.0[..]);
            }
            let mut end = first;
            for (position, entry) in first.into_iter().flat_map(|first| first..).zip(&write.entries)
            {
                numbers.push(number);
                positions.push(position);
                bodies.push(entry.as_slice());
                end = Some(position.saturating_add(1));
            }
            ends.push(end);
        }
        let fence = async {
            if fenced_keys.is_empty() {
                return Ok(());
            }
            client.execute(&self.fence, &[&fenced_keys, &fenced_leases, &seq]).await.map(drop)
        };
        let params: &Params<'_> =
            &[&keys, &leases, &firsts, &ends, &seq, &numbers, &positions, &bodies];
        let (fenced, rows) = tokio::join!(biased; fence, client.query(&self.replace, params));
        fenced.and(rows)
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use mrtr_server::tasks::{LeaseId, TaskKey};
    use mrtr_testkit::servers::Postgres;
    use tokio_postgres::{NoTls, SimpleQueryMessage};

    use super::*;
    use crate::postgres::connect::Connector;
    use crate::postgres::pool::Pool;
    use crate::postgres::schema;

    const LEASE: LeaseId = LeaseId([1; 16]);

    fn write(position: usize, entries: &[&str]) -> [Arc<TaskWrite>; 1] {
        let entries = entries.iter().map(|entry| entry.as_bytes().to_vec()).collect();
        let write = TaskWrite::new(TaskKey([1; 32]), LEASE);
        [Arc::new(TaskWrite { position: Some(position), entries, ..write })]
    }

    async fn insert_task(client: &Client) {
        let insert = "INSERT INTO mrtr_task (key, service, tool, version, min_version, lease,
                entries_at_claim, created, updated, retention, call, view)
            VALUES ($1, '', '', 1, 1, $2, 0, 0, 0, 0, '', '')";
        client.query(insert, &[&&[1_u8; 32][..], &&LEASE.0[..]]).await.unwrap();
    }

    async fn journal(client: &Client) -> String {
        let select = "SELECT string_agg(encode(body, 'escape'), ' ' ORDER BY position)
            FROM mrtr_entry";
        client.query_one(select, &[]).await.unwrap().get(0)
    }

    async fn replace(lent: &mut Lent<'_>, writes: &[Arc<TaskWrite>], seq: i64) {
        let replacing = Replacing::prepare(lent).await.unwrap();
        let client = lent.client();
        client.batch_execute("BEGIN").await.unwrap();
        replacing.execute(client, writes, seq).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }

    /// A statement that arrives after later ones of the same lease, because its connection was slow
    /// and given up.
    #[tokio::test]
    async fn postgres_ignores_a_late_write_of_the_same_lease() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let mut lent = pool.get().await.unwrap();
        insert_task(lent.client()).await;
        for (seq, position, entries, expected) in [
            (1, 0, &["a", "b"][..], "a b"),
            (3, 1, &["b", "c", "d"], "a b c d"),
            // It was sent before, and its sender has repeated it.
            (2, 1, &["late"], "a b c d"),
            (2, 1, &[], "a b c d"),
            (4, 1, &["e"], "a e"),
        ] {
            replace(&mut lent, &write(position, entries), seq).await;
            assert_eq!(journal(lent.client()).await, expected, "after {entries:?} at {position}");
        }
        let append = lent.prepare(APPEND).await.unwrap();
        // The journal was replaced since, and ends where the late statement begins.
        for (seq, entry, expected) in [(3, "late", "a e"), (6, "f", "a e f")] {
            let writes = write(2, &[entry]);
            add(lent.client(), &append, &writes, seq).await.unwrap();
            assert_eq!(journal(lent.client()).await, expected, "after {entry}");
        }
        // Entries were added since.
        for entries in [&["late"][..], &[]] {
            replace(&mut lent, &write(2, entries), 5).await;
            assert_eq!(journal(lent.client()).await, "a e f");
        }
    }

    /// Statements of the same lease that are under way at the same time: the later one wins.
    #[tokio::test]
    async fn postgres_replaces_entries_that_are_being_added() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let (mut given_up, mut lent) = (pool.get().await.unwrap(), pool.get().await.unwrap());
        insert_task(lent.client()).await;
        replace(&mut lent, &write(0, &["a"]), 1).await;

        let append = given_up.prepare(APPEND).await.unwrap();
        given_up.client().batch_execute("BEGIN").await.unwrap();
        add(given_up.client(), &append, &write(1, &["b", "late"]), 2).await.unwrap();
        let writes = write(1, &["c"]);
        let replaced = replace(&mut lent, &writes, 3);
        let committed = async {
            waits_for_a_lock(&pool).await;
            given_up.client().batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(replaced, committed);
        assert_eq!(journal(lent.client()).await, "a c");

        // Now the other way round.
        let replacing = Replacing::prepare(&mut lent).await.unwrap();
        lent.client().batch_execute("BEGIN").await.unwrap();
        replacing.execute(lent.client(), &write(1, &["d"]), 5).await.unwrap();
        let writes = write(2, &["late"]);
        let added = add(given_up.client(), &append, &writes, 4);
        let committed = async {
            waits_for_a_lock(&pool).await;
            lent.client().batch_execute("COMMIT").await.unwrap();
        };
        assert!(tokio::join!(added, committed).0.unwrap().is_empty());
        assert_eq!(journal(lent.client()).await, "a d");
    }

    /// Returns once a statement waits for a lock.
    async fn waits_for_a_lock(pool: &Pool) {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let lent = pool.get().await.unwrap();
        while lent.client().query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
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
        let fence = "bytea[], bytea[], int8";
        for (sql, types) in [(APPEND, append), (FENCE, fence), (REPLACE, replace)] {
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
