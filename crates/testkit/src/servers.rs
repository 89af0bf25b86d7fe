//! Servers of other projects, each a process in a folder of its own, on a Unix socket.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails if its server does not start"
)]

mod failover;
mod postgres;
mod redis;

use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use failover::RedisFailover;
pub use postgres::Postgres;
pub use redis::Redis;

/// Creates a folder that no other server has.
fn new_folder(name: &str) -> PathBuf {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let number = STARTED.fetch_add(1, Ordering::SeqCst);
    let folder = std::env::temp_dir().join(format!("mrtr-{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Waits for a line of the output that contains `text`, and then reads the output to its end, so
/// that the pipe never fills. Returns false if the output ends before.
fn wait_for(text: &str, output: impl Read + Send + 'static) -> bool {
    let mut lines = BufReader::new(output).lines();
    let is_ready = lines.any(|line| line.is_ok_and(|line| line.contains(text)));
    std::thread::spawn(move || lines.for_each(drop));
    is_ready
}
