//! The replicas, and what is done to them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::Result;

/// How long a process may take to do what it is told.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a replica is unready before it ends; the load balancer asks more often.
const NOTICE: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub(crate) struct Fleet {
    replicas: Vec<Mutex<Replica>>,
    pub(crate) ports: Vec<u16>,
    dir: PathBuf,
    lifetime: Duration,
    ignore_drain: bool,
}

/// Whoever holds the lock knows that the replica listens, or is about to do something about it.
#[derive(Debug)]
pub(crate) struct Replica {
    port: u16,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Fleet {
    pub(crate) fn new(ports: &[u16], dir: &Path, lifetime: Duration, ignore_drain: bool) -> Self {
        let replicas =
            ports.iter().map(|port| Mutex::new(Replica { port: *port, running: None })).collect();
        Self { replicas, ports: ports.to_vec(), dir: dir.to_owned(), lifetime, ignore_drain }
    }

    pub(crate) fn ledger(dir: &Path) -> PathBuf {
        dir.join("ledger")
    }

    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    /// The `at`th replica, for as long as nothing else may be done to it.
    pub(crate) async fn hold(&self, at: usize) -> Result<MutexGuard<'_, Replica>> {
        Ok(self.replicas.get(at).ok_or("there is no such replica")?.lock().await)
    }

    /// Starts a replica, and waits until it listens.
    pub(crate) async fn start(&self, replica: &mut Replica, version: u32) -> Result {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("replica").args(["--port", &replica.port.to_string()]);
        command.args(["--version", &version.to_string()]);
        command.args(["--lifetime", &self.lifetime.as_secs().to_string()]);
        command.args(["--notice-ms", &NOTICE.as_millis().to_string()]);
        command.arg("--ring").arg(self.dir.join("ring"));
        command.arg("--ledger").arg(Self::ledger(&self.dir));
        if self.ignore_drain {
            command.arg("--ignore-drain");
        }
        let log =
            fs::File::options().append(true).create(true).open(self.dir.join("replicas.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("a replica without output")?;
        replica.running = Some(Running { child, lines: BufReader::new(stdout).lines() });
        let line = replica.line().await?;
        if line == format!("listening {}", replica.port) { Ok(()) } else { Err(line.into()) }
    }

    /// The key ring, for those who start from now on, and for all who run. They have it when this is done.
    pub(crate) async fn rotate(&self, ring: &str) -> Result {
        fs::write(self.dir.join("ring"), ring)?;
        for replica in &self.replicas {
            let mut replica = replica.lock().await;
            if replica.running.is_some() {
                replica.signal(Signal::HUP)?;
                let line = replica.line().await?;
                if line != "ring" {
                    return Err(line.into());
                }
            }
        }
        Ok(())
    }

    /// The memory that the `at`th replica holds, in KiB; `None` while it does not run.
    pub(crate) fn memory(&self, at: usize) -> Option<u64> {
        let replica = self.replicas.get(at)?.try_lock().ok()?;
        let pid = replica.running.as_ref()?.child.id()?;
        drop(replica);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    }

    /// Whether the `at`th replica says that it is to be given requests, as a load balancer would ask.
    pub(crate) async fn is_ready(&self, at: usize) -> bool {
        let Some(port) = self.ports.get(at) else { return false };
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", *port)).await?;
            stream
                .write_all(b"GET /ready HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n")
                .await?;
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await?;
            Ok::<_, std::io::Error>(said.starts_with(b"HTTP/1.1 200 "))
        };
        timeout(Duration::from_secs(1), asked).await.is_ok_and(|said| said.unwrap_or(false))
    }
}

impl Replica {
    /// Its next line.
    async fn line(&mut self) -> Result<String> {
        let running = self.running.as_mut().ok_or("the replica does not run")?;
        let line = timeout(PATIENCE, running.lines.next_line()).await;
        let line = line.map_err(|_| "a replica did not do what it was told")??;
        Ok(line.ok_or("a replica ended by itself: see replicas.log")?)
    }

    fn signal(&self, signal: Signal) -> Result {
        let running = self.running.as_ref().ok_or("the replica does not run")?;
        crate::signal(&running.child, signal)
    }

    /// How many tasks its runtime has.
    pub(crate) async fn tasks(&mut self) -> Result<usize> {
        self.signal(Signal::USR1)?;
        let line = self.line().await?;
        let tasks = line.strip_prefix("tasks ").and_then(|tasks| tasks.parse().ok());
        Ok(tasks.ok_or(line)?)
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        let pid = self.running.as_ref().and_then(|running| running.child.id());
        let pid = pid.ok_or("the replica does not run")?;
        Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
    }

    /// SIGTERM, and waits until it has ended.
    pub(crate) async fn drain(&mut self) -> Result {
        self.signal(Signal::TERM)?;
        let mut running = self.running.take().ok_or("the replica does not run")?;
        let ended = timeout(PATIENCE, running.child.wait()).await;
        let status = ended.map_err(|_| "a replica did not end when it was told to")??;
        if status.success() { Ok(()) } else { Err(format!("a replica ended with {status}").into()) }
    }

    /// SIGKILL.
    pub(crate) async fn kill(&mut self) -> Result {
        if let Some(mut running) = self.running.take() {
            running.child.kill().await?;
        }
        Ok(())
    }
}
