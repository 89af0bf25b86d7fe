//! The entries of journals: statements that add and replace them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mrtr_server::tasks::{TaskKey, TaskWrite, Verdict};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row, Statement};

use super::ends::Ends;
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

/// A statement that adds the entries `w` at the ends of journals, and returns the keys of those to
/// which it has added entries. A task that is to be cancelled is left to [`REPLACE`], which tells
/// so.
///
/// The row lock of the task is the fence. A claim skips a task that is locked here. If a claim or
/// [`FENCE`] has locked it first, this statement waits, and then compares the lease and `seq` with
/// the committed values. Concurrent statements share the lock. If two insert the same position, the
/// second one fails, for all of its writes.
macro_rules! append {
    ($entries:literal, $condition:expr) => {
        concat!(
            "INSERT INTO mrtr_entry (key, position, lease, seq, body)
            SELECT w.key, w.position, w.lease, $5, w.body FROM ",
            $entries,
            " JOIN mrtr_task t ON t.key = w.key AND t.lease = w.lease
            WHERE t.seq < $5 AND NOT t.cancel AND ",
            exists!(),
            $condition,
            " FOR SHARE OF t RETURNING key"
        )
    };
}

/// Adds entries to journals that are [known](super::ends::Ends) to end there.
const APPEND: &str = append!(
    "unnest($1::bytea[], $2::bytea[], $3::int4[], $4::bytea[]) AS w(key, lease, position, body)",
    ""
);

/// [`APPEND`], which looks up where a journal ends unless `first` is null.
const APPEND_CHECKED: &str = append!(
    "unnest($1::bytea[], $2::bytea[], $3::int4[], $4::bytea[], $6::int4[])
        AS w(key, lease, position, body, first)",
    concat!(" AND (w.first IS NULL OR w.first = ", length!("w.first"), ")")
);

/// [`APPEND`] for one entry: without arrays, PostgreSQL prepares the execution in half of the time.
const APPEND_ONE: &str = concat!(
    "INSERT INTO mrtr_entry (key, position, lease, seq, body)
    SELECT $1, $3, $2, $5, $4 FROM mrtr_task t
    WHERE t.key = $1 AND t.lease = $2 AND t.seq < $5 AND NOT t.cancel AND ",
    exists!(),
    " FOR SHARE"
);

/// Locks the tasks whose journals are about to be replaced, until the transaction ends. Waits for
/// statements that are adding entries, so that [`REPLACE`] sees them.
///
/// `seq` grows with each [`APPEND`], and each [`FENCE`] with its [`REPLACE`], of a process. A
/// statement that arrives late, from a connection that its sender has abandoned, does nothing if
/// the same lease has replaced the journal, or changed the task, since. It keeps entries that the
/// same lease has added since.
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
    " AND CASE WHEN w.position IS NULL THEN t.seq < $5
            ELSE t.seq = $5 AND w.position <= w.length END
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

/// Adds entries at the ends of journals. Other writes, and those of tasks that are to be cancelled,
/// count as lost.
pub(super) async fn append(
    lent: &mut Lent<'_>,
    writes: &[Arc<TaskWrite>],
    seq: i64,
) -> Result<Vec<Verdict>, Error> {
    let kept = match add(lent, writes, seq).await {
        // A statement of the same lease came before, from a connection that was given up.
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            lent.use_ends(Ends::clear);
            add(lent, writes, seq).await?
        }
        kept => kept?,
    };
    let mut verdicts = vec![Verdict::Lost; writes.len()];
    lent.use_ends(|ends| {
        for (write, verdict) in writes.iter().zip(&mut verdicts) {
            let Some(first) = position(write).filter(|_| kept.contains(&write.key)) else {
                continue;
            };
            let length = i32::try_from(write.entries.len()).unwrap_or(i32::MAX);
            ends.set(write, first.saturating_add(length));
            *verdict = Verdict::Kept { cancel: false };
        }
    });
    Ok(verdicts)
}

/// Returns the keys of the journals to which entries were added.
async fn add(
    lent: &mut Lent<'_>,
    writes: &[Arc<TaskWrite>],
    seq: i64,
) -> Result<HashSet<TaskKey>, Error> {
    let (mut keys, mut leases) = (Vec::new(), Vec::new());
    let (mut positions, mut bodies, mut checked) = (Vec::new(), Vec::new(), Vec::new());
    lent.use_ends(|ends| {
        for write in writes {
            let Some(first) = position(write) else { continue };
            let looked_up = (!ends.is_known(write, first)).then_some(first);
            for (position, entry) in (first..).zip(&write.entries) {
                keys.push(&write.key.0[..]);
                leases.push(&write.lease.0[..]);
                positions.push(position);
                bodies.push(entry.as_slice());
                checked.push(looked_up);
            }
        }
    });
    let rows = if checked.iter().any(Option::is_some) {
        let params: &Params<'_> = &[&keys, &leases, &positions, &bodies, &seq, &checked];
        lent.query(APPEND_CHECKED, params).await?
    } else if let ([write], [position], [body]) = (writes, &*positions, &*bodies) {
        let params: &Params<'_> = &[&&write.key.0[..], &&write.lease.0[..], position, body, &seq];
        let is_added = lent.execute(APPEND_ONE, params).await? == 1;
        return Ok(is_added.then_some(write.key).into_iter().collect());
    } else {
        lent.query(APPEND, &[&keys, &leases, &positions, &bodies, &seq]).await?
    };
    let key = |row: &Row| row.get::<_, &[u8]>(0).try_into().ok().map(TaskKey);
    Ok(rows.iter().filter_map(key).collect())
}

/// Returns the verdicts on writes, of the rows of those that were performed.
pub(super) fn verdicts(writes: &[Arc<TaskWrite>], rows: &[Row]) -> Vec<Verdict> {
    let kept: HashMap<i64, bool> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let verdict = |number| match kept.get(&number) {
        Some(cancel) => Verdict::Kept { cancel: *cancel },
        None => Verdict::Lost,
    };
    (1..).zip(writes).map(|(number, _)| verdict(number)).collect()
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
    /// Prepares them for these writes.
    pub(super) async fn prepare(
        lent: &mut Lent<'_>,
        writes: &[Arc<TaskWrite>],
    ) -> Result<Self, Error> {
        lent.use_ends(|ends| {
            let replaced = writes.iter().filter(|write| write.position.is_some());
            replaced.for_each(|write| ends.forget(write.key));
        });
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
    use mrtr_server::tasks::LeaseId;
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

    async fn journal(client: &Client) -> String {
        let select = "SELECT string_agg(encode(body, 'escape'), ' ' ORDER BY position)
            FROM mrtr_entry";
        client.query_one(select, &[]).await.unwrap().get(0)
    }

    async fn replace(lent: &mut Lent<'_>, writes: &[Arc<TaskWrite>], seq: i64) {
        let replacing = Replacing::prepare(lent, writes).await.unwrap();
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
        schema::insert_task(lent.client(), 1).await;
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
        // The journal was replaced since, and ends where the late statement begins.
        for (seq, entry, expected) in [(3, "late", "a e"), (6, "f", "a e f")] {
            let writes = write(2, &[entry]);
            add(&mut lent, &writes, seq).await.unwrap();
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
        schema::insert_task(lent.client(), 1).await;
        replace(&mut lent, &write(0, &["a"]), 1).await;

        given_up.client().batch_execute("BEGIN").await.unwrap();
        add(&mut given_up, &write(1, &["b", "late"]), 2).await.unwrap();
        let writes = write(1, &["c"]);
        let replaced = replace(&mut lent, &writes, 3);
        let committed = async {
            pool.wait_for_lock().await;
            given_up.client().batch_execute("COMMIT").await.unwrap();
        };
        tokio::join!(replaced, committed);
        assert_eq!(journal(lent.client()).await, "a c");

        // Now the other way round.
        let writes = write(1, &["d"]);
        let replacing = Replacing::prepare(&mut lent, &writes).await.unwrap();
        lent.client().batch_execute("BEGIN").await.unwrap();
        replacing.execute(lent.client(), &writes, 5).await.unwrap();
        let writes = write(2, &["late"]);
        let added = add(&mut given_up, &writes, 4);
        let committed = async {
            pool.wait_for_lock().await;
            lent.client().batch_execute("COMMIT").await.unwrap();
        };
        assert!(tokio::join!(added, committed).0.unwrap().is_empty());
        assert_eq!(journal(lent.client()).await, "a d");
    }

    #[tokio::test]
    async fn postgres_looks_up_the_end_of_a_journal_once_per_server() {
        const KEPT: Verdict = Verdict::Kept { cancel: false };
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let mut lents = [pool.get().await.unwrap(), pool.get().await.unwrap()];
        schema::insert_task(lents[0].client(), 1).await;
        for (n, position, entry, verdict, expected) in [
            (0, 0, "a", KEPT, "a"),
            (0, 1, "b", KEPT, "a b"),
            (1, 3, "gap", Verdict::Lost, "a b"),
            (1, 2, "c", KEPT, "a b c"),
            (0, 2, "late", Verdict::Lost, "a b c"),
            (0, 3, "d", KEPT, "a b c d"),
        ] {
            let write = write(position, &[entry]);
            let appended = append(&mut lents[n], &write, next_seq()).await.unwrap();
            assert_eq!(appended, [verdict], "{entry}");
            assert_eq!(journal(lents[n].client()).await, expected, "after {entry}");
        }
        // A server does not lose entries. This shows who looks.
        let mut position = 3;
        let mut appends = async |lent: &mut Lent<'_>| {
            let delete = format!("DELETE FROM mrtr_entry WHERE position = {position}");
            lent.client().batch_execute(&delete).await.unwrap();
            position += 1;
            append(lent, &write(position, &["x"]), next_seq()).await.unwrap() == [KEPT]
        };
        for lent in &mut lents {
            assert!(appends(lent).await);
        }
        let [mut lent, given_up] = lents;
        drop(given_up);
        assert!(!appends(&mut lent).await, "after the loss of a connection");
    }

    /// A plan is made once per connection, perhaps on empty tables, and serves when they are full.
    #[tokio::test]
    async fn postgres_plans_of_empty_tables_look_up_entries_by_key() {
        let server = Postgres::start();
        let pool = Pool::new(Connector::new(server.config().parse().unwrap(), NoTls));
        schema::migrate(&pool).await.unwrap();
        let lent = pool.get().await.unwrap();
        let append = "bytea[], bytea[], int4[], bytea[], int8";
        let checked = "bytea[], bytea[], int4[], bytea[], int8, int4[]";
        let replace = "bytea[], bytea[], int4[], int4[], int8, int8[], int4[], bytea[]";
        let fence = "bytea[], bytea[], int8";
        let one = "bytea, bytea, int4, bytea, int8";
        for (sql, types) in [
            (APPEND, append),
            (APPEND_CHECKED, checked),
            (APPEND_ONE, one),
            (FENCE, fence),
            (REPLACE, replace),
        ] {
            let prepare = format!("DEALLOCATE ALL; PREPARE write ({types}) AS {sql}");
            lent.client().batch_execute(&prepare).await.unwrap();
            let value = |of: &str| match of {
                "bytea" => "''",
                of if of.ends_with("[]") => "'{}'",
                _ => "1",
            };
            let values = types.split(", ").map(value);
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
