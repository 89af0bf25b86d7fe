//! Deletes tasks that have expired.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_server::tasks::{TaskKey, TaskStoreError};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;

use super::connect::failed;
use super::pool::{Pool, lock};
use super::rows::{DELETE_ANSWERS, DELETE_ENTRIES, now};

/// The shortest time between the beginnings of two sweeps of one replica.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest time for one transaction. A pooler may keep a connection whose server hangs.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum number of tasks that are deleted in one transaction.
const BATCH: i64 = 500;

/// Locks tasks that have expired, except those that others lock.
const LOCK: &str = concat!(
    "SELECT t.key FROM mrtr_task t WHERE t.expires <= ",
    now!(),
    "
    ORDER BY t.expires LIMIT $1 FOR UPDATE SKIP LOCKED"
);

const LOCK_ONE: &str = concat!(
    "SELECT t.key FROM mrtr_task t WHERE t.key = $1 AND t.expires <= ",
    now!(),
    " FOR UPDATE"
);

const DELETE: &str = "DELETE FROM mrtr_task WHERE key = ANY($1::bytea[])";

/// Begins a sweep now and then, in the background.
#[derive(Default)]
pub(super) struct Sweeper {
    last: Mutex<Option<Instant>>,
    is_running: Arc<AtomicBool>,
}

impl Sweeper {
    pub(super) fn begin(&self, pool: &Arc<Pool>) {
        let mut last = lock(&self.last);
        if last.is_some_and(|last| last.elapsed() < INTERVAL)
            || self.is_running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        *last = Some(Instant::now());
        let (pool, is_running) = (Arc::clone(pool), Arc::clone(&self.is_running));
        tokio::spawn(async move {
            while let Ok(Ok(BATCH)) = timeout(TIMEOUT, delete(&pool, LOCK, &BATCH)).await {}
            is_running.store(false, Ordering::Release);
        });
    }
}

/// Deletes a task, if it has expired.
pub(super) async fn delete_if_expired(pool: &Pool, key: TaskKey) -> Result<(), TaskStoreError> {
    delete(pool, LOCK_ONE, &&key.0[..]).await.map(drop)
}

/// Deletes the tasks that a statement locks. The entries and answers that are deleted are those
/// that were committed before the tasks were locked.
async fn delete(
    pool: &Pool,
    lock: &'static str,
    param: &(dyn ToSql + Sync),
) -> Result<i64, TaskStoreError> {
    let mut lent = pool.get().await?;
    lent.client().batch_execute("BEGIN").await.map_err(failed)?;
    let locked = lent.query(lock, &[param]).await.map_err(failed)?;
    let keys: Vec<&[u8]> = locked.iter().map(|row| row.get(0)).collect();
    if !keys.is_empty() {
        for sql in [DELETE_ENTRIES, DELETE_ANSWERS, DELETE] {
            lent.query(sql, &[&keys]).await.map_err(failed)?;
        }
    }
    lent.client().batch_execute("COMMIT").await.map_err(failed)?;
    lent.give_back();
    Ok(i64::try_from(keys.len()).unwrap_or(i64::MAX))
}
