//! Many tasks that wait for answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mrtr::tasks::{
    Claim, Lease, LeaseId, PostgresTaskStore, RunEnd, TaskHandler, TaskKey, TaskStore as _,
    TaskWrite,
};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::recorder::quantiles;
use crate::replica::Replica;
use crate::{Args, Result, calls, connect};

/// The number of tasks that are copied in one transaction.
const BATCH: i32 = 50_000;

/// Copies a task that waits, under another key.
const COPY: &str = "INSERT INTO mrtr_task (key, service, tool, version, min_version, status, lease,
        wake, posts, posts_seen, cancel, epoch, is_mid_epoch, attempts, entries_at_claim, created,
        updated, expires, retention, call, view)
    SELECT sha256(int4send(n)), service, tool, version, min_version, status, lease,
        wake, posts, posts_seen, cancel, epoch, is_mid_epoch, attempts, entries_at_claim, created + n,
        updated + n, expires + n, retention, call, view
    FROM mrtr_task, generate_series($1::int4, $2) n WHERE key = $3";

/// The number of tasks, the bytes of the values of one, and the bytes of one on the disk.
const SIZES: &str = "SELECT count(*), avg(octet_length(call) + octet_length(view))::float8,
        pg_total_relation_size('mrtr_task')::float8 / count(*)
    FROM mrtr_task";

/// Lets a replica create a task that waits, and copies it.
pub async fn fill(args: &Args) -> Result<Value> {
    let (database, count): (String, i32) = (args.get("database")?, args.get("count")?);
    let mut replica = Replica::start(&database, 10.0).await?;
    let call = calls::call("ask", json!({}));
    let id = calls::task_id(&replica.connection.send("tools/call", call).await?)?;
    let get = json!({ "taskId": id });
    while replica.connection.send("tasks/get", get.clone()).await?["status"] != "input_required" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(replica);
    let (client, key) = (connect(&args.database()?).await?, TaskKey::of(&id));
    for first in (1..count).step_by(BATCH as usize) {
        let last = (first + BATCH - 1).min(count - 1);
        client.execute(COPY, &[&first, &last, &&key.0[..]]).await?;
    }
    // As it has been for a while.
    client.batch_execute("VACUUM ANALYZE").await?;
    client.batch_execute("CHECKPOINT").await?;
    let sizes = client.query_one(SIZES, &[]).await?;
    let (tasks, values, bytes): (i64, f64, f64) = (sizes.get(0), sizes.get(1), sizes.get(2));
    Ok(json!({ "tasks": tasks, "values": values, "bytes": bytes }))
}

/// Takes tasks that have become due, one at a time, and looks for tasks when there are none.
pub async fn claims(args: &Args) -> Result<Value> {
    let client = connect(&args.database()?).await?;
    let store = PostgresTaskStore::connect(args.database()?, NoTls).await?;
    let count: i64 = args.get("count")?;
    // Keys are digests: their order is that of nothing else.
    let mut start = [0; 32];
    getrandom::fill(&mut start)?;
    let some =
        "(SELECT key, octet_length(view) FROM mrtr_task WHERE key > $1 ORDER BY key LIMIT $2)
        UNION ALL (SELECT key, octet_length(view) FROM mrtr_task ORDER BY key LIMIT $2) LIMIT $2";
    let rows = client.query(some, &[&&start[..], &count]).await?;
    let (mut taken, mut none) = (Vec::new(), Vec::new());
    for n in 0..count {
        let row = &rows[n as usize % rows.len()];
        let key = TaskKey(row.get::<_, &[u8]>(0).try_into()?);
        let started = Instant::now();
        if !store.claim(claim()?).await?.is_empty() {
            return Err("a task was due".into());
        }
        none.push(started.elapsed().as_secs_f64() * 1e3);
        store.answer(key, vec![(format!("q{n}"), vec![0; 200])]).await?;
        let claim = claim()?;
        let lease = claim.lease.id;
        let started = Instant::now();
        let held = store.claim(claim).await?;
        taken.push(started.elapsed().as_secs_f64() * 1e3);
        if held.len() != 1 {
            return Err(format!("{} tasks were taken instead of one", held.len()).into());
        }
        // It waits again.
        store.write(TaskWrite { end: Some(RunEnd::Waits), ..TaskWrite::new(key, lease) }).await?;
    }
    Ok(json!({ "taken": quantiles(&mut taken), "none": quantiles(&mut none) }))
}

fn claim() -> Result<Claim> {
    let mut id = [0; 16];
    getrandom::fill(&mut id)?;
    let handler = |tool: &str| TaskHandler { tool: tool.to_owned(), version: 1, min_version: 1 };
    let handlers: Arc<[_]> = ["walk", "ask"].map(handler).into();
    let lease = Lease { id: LeaseId(id), time: Duration::from_secs(10) };
    Ok(Claim { service: "replicas".to_owned(), handlers, lease, limit: 32 })
}
