//! Bare loops on SQLite: the inserts of steps, and nothing else.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use rusqlite::{Connection, params};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::bare::Row;
use crate::recorder::Recorder;
use crate::{Args, Result};

/// What the store allows itself: operations in a transaction.
const MAX_ROWS: usize = 256;

const INSERT: &str = "INSERT INTO bare_entry VALUES (?1, ?2, ?3)";

/// Inserts rows for a number of tasks at the same time.
pub async fn run(args: &Args) -> Result<Value> {
    let (tasks, body): (usize, usize) = (args.get("tasks")?, args.get("body")?);
    let recorder = Recorder::default();
    let connection = open(args.get("file")?)?;
    if tasks == 1 {
        let (row, recorder) = (Row::first(body)?, recorder.clone());
        std::thread::spawn(move || insert(&connection, row, &recorder));
    } else {
        let (send, receive) = channel();
        std::thread::spawn(move || write(&connection, &receive));
        for _ in 0..tasks {
            tokio::spawn(append(send.clone(), Row::first(body)?, recorder.clone()));
        }
    }
    Ok(recorder.measure(args.seconds("seconds")?).await)
}

/// Opens a file with the settings and the table of the store.
fn open(file: PathBuf) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;
        CREATE TABLE bare_entry (
            key      BLOB NOT NULL,
            position INTEGER NOT NULL,
            body     BLOB NOT NULL,
            PRIMARY KEY (key, position)
        ) STRICT, WITHOUT ROWID",
    )?;
    Ok(connection)
}

/// Inserts and commits one row after the other.
fn insert(connection: &Connection, mut row: Row, recorder: &Recorder) -> Result {
    let mut insert = connection.prepare(INSERT)?;
    loop {
        let started = Instant::now();
        insert.execute(params![row.key, row.position, row.body])?;
        if !recorder.add(started) {
            return Ok(());
        }
        row.position += 1;
    }
}

/// A row, and the channel that tells that it is committed. The row is returned.
type Job = (Row, oneshot::Sender<Row>);

/// Hands one row after the other to the thread that writes.
async fn append(writer: Sender<Job>, mut row: Row, recorder: Recorder) -> Result {
    loop {
        let started = Instant::now();
        let (reply, committed) = oneshot::channel();
        writer.send((row, reply))?;
        row = committed.await?;
        if !recorder.add(started) {
            return Ok(());
        }
        row.position += 1;
    }
}

/// Inserts and commits what has gathered.
fn write(connection: &Connection, jobs: &Receiver<Job>) -> Result {
    let mut insert = connection.prepare(INSERT)?;
    while let Ok(first) = jobs.recv() {
        let gathered: Vec<_> =
            [first].into_iter().chain(jobs.try_iter().take(MAX_ROWS - 1)).collect();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for (row, _) in &gathered {
            insert.execute(params![row.key, row.position, row.body])?;
        }
        connection.execute_batch("COMMIT")?;
        for (row, reply) in gathered {
            // The loop may be over.
            drop(reply.send(row));
        }
    }
    Ok(())
}
