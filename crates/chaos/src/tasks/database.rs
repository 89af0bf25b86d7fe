//! The PostgreSQL server: durable, killed and restarted, and replaced by an old copy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mrtr::tasks::PostgresTaskStore;
use mrtr_testkit::servers::Postgres;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{Client, Config, NoTls};

use super::faults::{Faults, Kind};
use super::history::Outage;
use super::link::SOCKET;
use super::record::now;
use crate::Result;

/// A commit that takes longer than this counts as a disturbance.
const SLOW: Duration = Duration::from_millis(250);

pub(crate) struct Database {
    server: Postgres,
    copy: PathBuf,
}

impl Database {
    pub(crate) async fn start() -> Result<Self> {
        let server = block_in_place(Postgres::start_durable);
        let copy = server.folder().join("copy");
        let config: Config = server.config().parse()?;
        PostgresTaskStore::migrate(&config, NoTls).await?;
        Ok(Self { server, copy })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.server.folder().join(SOCKET)
    }

    pub(crate) fn config(&self) -> String {
        self.server.config()
    }

    /// Kills the postmaster with SIGKILL, and starts it again, with crash recovery.
    pub(crate) async fn crash(&mut self, away: Duration) {
        block_in_place(|| self.server.kill());
        sleep(away).await;
        block_in_place(|| self.server.restart());
    }

    /// Copies the data directory while the server is stopped.
    pub(crate) fn back_up(&mut self) -> Result<Outage> {
        self.stop_for(copy)
    }

    /// Replaces the data directory with its copy while the server is stopped.
    pub(crate) fn restore(&mut self) -> Result<Outage> {
        self.stop_for(|data, copied| {
            std::fs::remove_dir_all(data)?;
            copy(copied, data)
        })
    }

    /// Stops the server, works on the data directory and its copy, and starts the server again.
    fn stop_for(&mut self, work: impl FnOnce(&Path, &Path) -> Result) -> Result<Outage> {
        block_in_place(|| {
            let from = now();
            self.server.stop();
            work(&self.server.data(), &self.copy)
                .map_err(|error| format!("the copy of the data directory: {error}"))?;
            let at = now();
            self.server.restart();
            Ok(Outage { from, at, to: now() })
        })
    }
}

/// Copies a folder, with owners and permissions.
fn copy(from: &Path, to: &Path) -> Result {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(format!("cp ended with {status}").into()) }
}

/// Records the times in which the server commits slowly, or not at all.
pub(crate) async fn watch(config: String, faults: &Faults) {
    let mut client = None;
    let mut since = now();
    loop {
        sleep(Duration::from_millis(150)).await;
        let before = Instant::now();
        if client.is_none() {
            client = connect(&config).await;
        }
        let committed = match &client {
            Some(client) => commit(client).await,
            None => false,
        };
        if !committed || before.elapsed() > SLOW {
            faults.add(Kind::Slow, None, since, now());
        }
        if !committed {
            client = None;
        }
        since = now();
    }
}

async fn connect(config: &str) -> Option<Client> {
    let config: Config = config.parse().ok()?;
    let connecting = timeout(Duration::from_secs(1), config.connect(NoTls)).await;
    let (client, connection) = connecting.ok()?.ok()?;
    tokio::spawn(async move { drop(connection.await) });
    Some(client)
}

async fn commit(client: &Client) -> bool {
    const SQL: &str = "CREATE TABLE IF NOT EXISTS chaos_probe (n int);
        INSERT INTO chaos_probe VALUES (1); DELETE FROM chaos_probe";
    timeout(Duration::from_secs(2), client.batch_execute(SQL)).await.is_ok_and(|done| done.is_ok())
}
