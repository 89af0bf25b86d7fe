//! Bare loops on PostgreSQL: the inserts of steps, and nothing else.

use std::sync::Arc;
use std::time::Instant;

use mrtr::tasks::PostgresTaskStore;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::{Client, NoTls, Statement};

use crate::recorder::Recorder;
use crate::{Args, Result, connect};

/// What the store allows itself: statements at the same time, and rows in each.
const WRITERS: usize = 2;
const MAX_ROWS: usize = 128;

const INSERT: &str = "INSERT INTO bare_entry VALUES ($1, $2, $3, $4, $5)";

const INSERT_MANY: &str = "INSERT INTO bare_entry
    SELECT * FROM unnest($1::bytea[], $2::int4[], $3::bytea[], $4::int8[], $5::bytea[])";

/// A row of the same size as an entry of a journal.
pub struct Row {
    pub key: [u8; 32],
    pub position: i32,
    pub lease: [u8; 16],
    pub body: Vec<u8>,
}

impl Row {
    /// Creates the first row of a task.
    pub fn first(body: usize) -> Result<Self> {
        let mut row = Self { key: [0; 32], position: 0, lease: [0; 16], body: vec![0; body] };
        getrandom::fill(&mut row.key)?;
        getrandom::fill(&mut row.lease)?;
        // Sealed values cannot be compressed.
        getrandom::fill(&mut row.body)?;
        Ok(row)
    }
}

/// Creates a database with the tables of tasks and the table of the bare loop.
pub async fn create(args: &Args) -> Result<Value> {
    let mut config = args.database()?;
    let name: String = args.get("name")?;
    connect(&config).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    config.dbname(&name);
    PostgresTaskStore::migrate(&config, NoTls).await?;
    let table = "CREATE TABLE bare_entry (LIKE mrtr_entry INCLUDING ALL)";
    connect(&config).await?.batch_execute(table).await?;
    Ok(json!({}))
}

/// Empties the tables of steps, so that each measurement begins with the same.
pub async fn clear(client: &Client) -> Result {
    let clear = "TRUNCATE mrtr_task, mrtr_entry, mrtr_answer, bare_entry; CHECKPOINT";
    for statement in clear.split("; ") {
        client.batch_execute(statement).await?;
    }
    Ok(())
}

/// Inserts rows for a number of tasks at the same time.
pub async fn run(args: &Args) -> Result<Value> {
    let config = args.database()?;
    clear(&connect(&config).await?).await?;
    let (tasks, body): (usize, usize) = (args.get("tasks")?, args.get("body")?);
    let recorder = Recorder::default();
    if tasks == 1 {
        let client = connect(&config).await?;
        tokio::spawn(insert(client, Row::first(body)?, recorder.clone()));
    } else {
        let (send, receive) = mpsc::channel(tasks);
        let receive = Arc::new(Mutex::new(receive));
        for _ in 0..WRITERS {
            let client = connect(&config).await?;
            let statement = client.prepare(INSERT_MANY).await?;
            tokio::spawn(write(client, statement, Arc::clone(&receive)));
        }
        for _ in 0..tasks {
            tokio::spawn(append(send.clone(), Row::first(body)?, recorder.clone()));
        }
    }
    Ok(recorder.measure(args.seconds("seconds")?).await)
}

/// Inserts and commits one row after the other.
async fn insert(client: Client, mut row: Row, recorder: Recorder) -> Result {
    let insert = client.prepare(INSERT).await?;
    loop {
        let started = Instant::now();
        let Row { key, position, lease, body } = &row;
        client.execute(&insert, &[&&key[..], position, &&lease[..], &1_i64, body]).await?;
        if !recorder.add(started) {
            return Ok(());
        }
        row.position += 1;
    }
}

/// A row, and the channel that tells that it is committed. The row is returned.
type Job = (Row, oneshot::Sender<Row>);

/// Hands one row after the other to the writers.
async fn append(writers: mpsc::Sender<Job>, mut row: Row, recorder: Recorder) -> Result {
    loop {
        let started = Instant::now();
        let (reply, committed) = oneshot::channel();
        writers.send((row, reply)).await?;
        row = committed.await?;
        if !recorder.add(started) {
            return Ok(());
        }
        row.position += 1;
    }
}

/// Inserts and commits what has gathered.
async fn write(
    client: Client,
    statement: Statement,
    jobs: Arc<Mutex<mpsc::Receiver<Job>>>,
) -> Result {
    let mut gathered = Vec::with_capacity(MAX_ROWS);
    while jobs.lock().await.recv_many(&mut gathered, MAX_ROWS).await > 0 {
        let column =
            |of: fn(&Row) -> &[u8]| gathered.iter().map(|(row, _)| of(row)).collect::<Vec<_>>();
        let (keys, leases) = (column(|row| &row.key), column(|row| &row.lease));
        let bodies = column(|row| &row.body);
        let positions: Vec<_> = gathered.iter().map(|(row, _)| row.position).collect();
        let numbers = vec![1_i64; gathered.len()];
        client.execute(&statement, &[&keys, &positions, &leases, &numbers, &bodies]).await?;
        for (row, reply) in gathered.drain(..) {
            // The loop may be over.
            drop(reply.send(row));
        }
    }
    Ok(())
}
