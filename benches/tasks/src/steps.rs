//! The steps of tasks in this process.

use std::path::PathBuf;
use std::time::Instant;

use mrtr::tasks::{PostgresTaskStore, SqliteTaskStore, TaskPolicy};
use mrtr::{Context, KeyRing, Secret, Server, ServerBuilder, State, Tool};
use mrtr_transport::InProcess;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

use crate::bare::clear;
use crate::calls;
use crate::recorder::Recorder;
use crate::{Args, Result, connect};

/// The length of a step's result.
const RESULT: usize = 100;

/// More than there is time for. A journal has at most 4 MiB.
const MAX_STEPS: usize = 20_000;

/// Runs steps of a number of tasks at the same time.
pub async fn run(args: &Args) -> Result<Value> {
    let recorder = Recorder::default();
    let builder = builder("bench").state(recorder.clone());
    let file: Result<PathBuf> = args.get("file");
    let client = match &file {
        Ok(_) => None,
        Err(_) => Some(connect(&args.database()?).await?),
    };
    let builder = match (&file, &client) {
        (Ok(file), _) => builder.task_store(SqliteTaskStore::open(file)?),
        (_, Some(client)) => {
            clear(client).await?;
            builder.task_store(PostgresTaskStore::connect(args.database()?, NoTls).await?)
        }
        (Err(why), None) => return Err(why.to_string().into()),
    };
    let tool = Tool::new("steps", "Runs steps", steps).task(TaskPolicy::immediately());
    let server = builder.tool(tool).build()?;
    let transport = InProcess::new(server.clone());
    for _ in 0..args.get("tasks")? {
        let created = calls::in_process(&transport, "tools/call", calls::call("steps", json!({})));
        calls::task_id(&created.await?)?;
    }
    let mut measured = recorder.measure(args.seconds("seconds")?).await;
    if let Some(client) = client {
        // The tables still have rows: the handlers have not returned yet, or are about to.
        let length = "SELECT max(octet_length(body)) FROM mrtr_entry";
        measured["body"] = json!(client.query_one(length, &[]).await?.get::<_, Option<i32>>(0));
    }
    Ok(measured)
}

async fn steps(cx: Context, State(recorder): State<Recorder>) -> mrtr::Result<String> {
    for n in 0..MAX_STEPS {
        let started = Instant::now();
        cx.step(format!("step-{n}"), async |_| Ok("x".repeat(RESULT))).await?;
        if !recorder.add(started) {
            // The process is about to end.
            std::future::pending::<()>().await;
        }
    }
    Err(std::io::Error::other("the journal is full").into())
}

/// Begins a server whose tasks other processes can open.
pub fn builder(name: &str) -> ServerBuilder {
    let secret = Secret::from_bytes(b"a key for benchmarks, not a secret").ok();
    let ring = secret.and_then(|secret| {
        KeyRing::builder("https://bench.example/mcp").active(secret).build().ok()
    });
    let builder = Server::builder(name, "1.0.0").allow_anonymous();
    ring.into_iter().fold(builder, ServerBuilder::key_ring)
}
