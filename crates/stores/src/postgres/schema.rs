//! The tables, their version, and a look at the settings of the server.

use mrtr_server::tasks::TaskStoreError;
use tokio_postgres::error::SqlState;

use super::connect::failed;
use super::pool::Pool;

/// The version of the tables.
const VERSION: i32 = 1;

/// The lock of migrations: "mrtr" in ASCII.
const LOCK: &str = "SELECT pg_advisory_xact_lock(1836217458)";

/// Times are milliseconds since 1970. Values are sealed, so they cannot be compressed.
pub(super) const SCHEMA: &str = "\
CREATE TABLE mrtr_task (
    key              bytea PRIMARY KEY,
    service          text NOT NULL,
    tool             text NOT NULL,
    version          int8 NOT NULL,
    min_version      int8 NOT NULL,
    status           int2 NOT NULL DEFAULT 0,
    lease            bytea,
    seq              int8 NOT NULL DEFAULT 0,
    wake             int8,
    posts            int8 NOT NULL DEFAULT 0,
    posts_seen       int8 NOT NULL DEFAULT 0,
    cancel           boolean NOT NULL DEFAULT false,
    epoch            int8 NOT NULL DEFAULT 0,
    is_mid_epoch     boolean NOT NULL DEFAULT true,
    attempts         int8 NOT NULL DEFAULT 1,
    entries_at_claim int8 NOT NULL,
    created          int8 NOT NULL,
    updated          int8 NOT NULL,
    expires          int8,
    retention        int8 NOT NULL,
    call             bytea NOT NULL,
    view             bytea NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE mrtr_task ALTER call SET STORAGE EXTERNAL, ALTER view SET STORAGE EXTERNAL;
CREATE INDEX mrtr_task_due ON mrtr_task (service, wake) WHERE wake IS NOT NULL;
CREATE INDEX mrtr_task_expires ON mrtr_task (expires) WHERE expires IS NOT NULL;
CREATE TABLE mrtr_entry (
    key      bytea NOT NULL,
    position int4 NOT NULL,
    lease    bytea NOT NULL,
    seq      int8 NOT NULL,
    body     bytea NOT NULL,
    PRIMARY KEY (key, position)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE mrtr_entry ALTER body SET STORAGE EXTERNAL;
CREATE TABLE mrtr_answer (
    key      bytea NOT NULL,
    question bytea NOT NULL,
    epoch    int8,
    body     bytea NOT NULL,
    PRIMARY KEY (key, question)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE mrtr_answer ALTER body SET STORAGE EXTERNAL;
CREATE TABLE mrtr_schema (version int4 NOT NULL);
INSERT INTO mrtr_schema VALUES (1);
";

const EXISTS: &str = "SELECT to_regclass('mrtr_schema') IS NOT NULL";

const READ: &str = "SELECT max(version) FROM mrtr_schema";

/// Creates the tables, unless they are there.
pub(super) async fn migrate(pool: &Pool) -> Result<(), TaskStoreError> {
    let lent = pool.get().await?;
    let client = lent.client();
    // Another replica may take longer to create them than a statement waits for a lock.
    client.batch_execute("BEGIN; SET LOCAL lock_timeout = 0").await.map_err(failed)?;
    client.batch_execute(LOCK).await.map_err(failed)?;
    let exists: bool = client.query_one(EXISTS, &[]).await.map_err(failed)?.get(0);
    if exists {
        let version = client.query_one(READ, &[]).await.map_err(failed)?.get(0);
        check_version(version)?;
    } else {
        client.batch_execute(SCHEMA).await.map_err(failed)?;
    }
    client.batch_execute("COMMIT").await.map_err(failed)?;
    lent.give_back();
    Ok(())
}

fn check_version(version: Option<i32>) -> Result<(), TaskStoreError> {
    let why = match version {
        Some(VERSION) => return Ok(()),
        Some(newer) if newer > VERSION => {
            format!("the tables have version {newer}; this release knows versions up to {VERSION}")
        }
        _ => "the table mrtr_schema names no known version".to_owned(),
    };
    Err(TaskStoreError::Unavailable(why.into()))
}

/// Checks the version of the tables, and warns of settings that lose commits.
pub(super) async fn check(pool: &Pool) -> Result<(), TaskStoreError> {
    let mut lent = pool.get().await?;
    let version = match lent.query(READ, &[]).await {
        Ok(rows) => rows.first().and_then(|row| row.get(0)),
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            let why = "the tables are missing; `PostgresTaskStore::migrate` creates them";
            return Err(TaskStoreError::Unavailable(why.into()));
        }
        Err(error) => return Err(failed(error)),
    };
    check_version(version)?;
    for (setting, loss) in [
        ("SHOW fsync", "a crash of the machine can destroy the database"),
        ("SHOW full_page_writes", "a crash of the machine can destroy pages of the database"),
    ] {
        let rows = lent.query(setting, &[]).await.map_err(failed)?;
        if rows.first().is_some_and(|row| row.get::<_, &str>(0) == "off") {
            tracing::warn!(target: "mrtr::tasks", setting, loss, "PostgreSQL may lose tasks");
        }
    }
    lent.give_back();
    Ok(())
}

/// Inserts a task whose key repeats a byte, and that the lease of ones holds.
#[cfg(all(test, unix))]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) async fn insert_task(client: &tokio_postgres::Client, key: u8) {
    let insert = "INSERT INTO mrtr_task (key, service, tool, version, min_version, lease,
            entries_at_claim, created, updated, retention, call, view)
        VALUES ($1, '', '', 1, 1, $2, 0, 0, 0, 0, '', '')";
    client.execute(insert, &[&&[key; 32][..], &&[1_u8; 16][..]]).await.unwrap();
}
