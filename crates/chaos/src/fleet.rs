//! The replicas, and operations on them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::{BoxError, Result};

/// Longest time that a process may take to react to a signal.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time from a replica becoming unready to its end. The load balancer polls more often.
const NOTICE: Duration = Duration::from_millis(1500);

/// The program of the replicas, which is a command of this one.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) command: &'static str,
    /// Options beside those that all replicas have.
    pub(crate) options: Vec<OsString>,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    replicas: Vec<Mutex<Replica>>,
    pub(crate) ports: Vec<u16>,
    dir: PathBuf,
    program: Program,
}

/// A replica. The task that holds its lock knows that the replica listens, or is about to change
/// that.
#[derive(Debug)]
pub(crate) struct Replica {
    port: u16,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u16,
    /// Where all replicas log.
    log: PathBuf,
}

impl Program {
    /// Returns the program whose calls are not tasks.
    pub(crate) fn replica(lifetime: Duration, ignore_drain: bool) -> Self {
        let (lifetime, notice) = (lifetime.as_secs().to_string(), NOTICE.as_millis().to_string());
        let mut options = vec!["--lifetime".into(), lifetime.into()];
        options.extend(["--notice-ms".into(), notice.into()]);
        options.extend(ignore_drain.then(|| "--ignore-drain".into()));
        Self { command: "replica", options }
    }

    /// Makes the program a gateway to a server, or to one more.
    pub(crate) fn upstream(mut self, prefix: &str, url: &str) -> Self {
        self.options.extend(["--upstream".into(), format!("{prefix}={url}").into()]);
        self
    }
}

impl Fleet {
    pub(crate) fn new(ports: &[u16], dir: &Path, program: Program) -> Self {
        let replicas =
            ports.iter().map(|port| Mutex::new(Replica { port: *port, running: None })).collect();
        Self { replicas, ports: ports.to_vec(), dir: dir.to_owned(), program }
    }

    pub(crate) fn ledger(dir: &Path) -> PathBuf {
        dir.join("ledger")
    }

    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    /// Locks the `at`th replica, unless another task operates on it.
    pub(crate) fn try_hold(&self, at: usize) -> Option<MutexGuard<'_, Replica>> {
        self.replicas.get(at)?.try_lock().ok()
    }

    /// Locks the `at`th replica, so that no other task operates on it.
    pub(crate) async fn hold(&self, at: usize) -> Result<MutexGuard<'_, Replica>> {
        Ok(self.replicas.get(at).ok_or("no such replica")?.lock().await)
    }

    /// Starts a replica, and waits until it listens.
    pub(crate) async fn start(&self, replica: &mut Replica, version: u32) -> Result {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(self.program.command).args(["--port", &replica.port.to_string()]);
        command.args(["--version", &version.to_string()]);
        command.arg("--ring").arg(self.dir.join("ring"));
        command.arg("--ledger").arg(Self::ledger(&self.dir));
        command.args(&self.program.options);
        let log = self.dir.join("replicas.log");
        let to_log = fs::File::options().append(true).create(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(to_log).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("a replica without output")?;
        let (lines, port) = (BufReader::new(stdout).lines(), replica.port);
        replica.running = Some(Running { child, lines, port, log });
        let line = replica.line().await?;
        if line == format!("listening {}", replica.port) { Ok(()) } else { Err(line.into()) }
    }

    /// Replaces the key ring of running replicas and of those that start later. Running replicas
    /// use it when this returns.
    pub(crate) async fn rotate(&self, ring: &str) -> Result {
        // A replica that starts now must not read half of a key ring.
        let (new, ring_file) = (self.dir.join("ring.new"), self.dir.join("ring"));
        fs::write(&new, ring)?;
        fs::rename(&new, ring_file)?;
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

    /// Returns the memory of the `at`th replica in KiB, or `None` while it does not run.
    pub(crate) fn memory(&self, at: usize) -> Option<u64> {
        let replica = self.replicas.get(at)?.try_lock().ok()?;
        let pid = replica.running.as_ref()?.child.id()?;
        drop(replica);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix(" kB")?.parse().ok()
    }

    /// Returns true if the `at`th replica reports that it is ready, as to a load balancer.
    pub(crate) async fn is_ready(&self, at: usize) -> bool {
        let Some(port) = self.ports.get(at) else { return false };
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", *port)).await?;
            stream
                .write_all(b"GET /ready HTTP/1.1\r\nHost: check\r\nConnection: close\r\n\r\n")
                .await?;
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await?;
            Ok::<_, std::io::Error>(response.starts_with(b"HTTP/1.1 200 "))
        };
        timeout(Duration::from_secs(1), asked).await.is_ok_and(|response| response.unwrap_or(false))
    }
}

impl Running {
    /// Waits until the process has ended.
    async fn end(&mut self) -> Result<ExitStatus> {
        let ended = timeout(PATIENCE, self.child.wait()).await;
        Ok(ended.map_err(|_| self.error("does not end"))??)
    }

    /// Returns an error about the process, with the end of the log.
    fn error(&self, what: &str) -> BoxError {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        let last = lines.get(lines.len().saturating_sub(8)..).unwrap_or_default().join("\n");
        let (port, log) = (self.port, self.log.display());
        format!("the replica on port {port} {what}. The end of {log}:\n{last}").into()
    }
}

impl Replica {
    /// Reads the next line that the replica prints.
    async fn line(&mut self) -> Result<String> {
        let running = self.running.as_mut().ok_or("the replica is not running")?;
        let line = timeout(PATIENCE, running.lines.next_line()).await;
        if let Some(line) = line.map_err(|_| running.error("printed nothing"))?? {
            return Ok(line);
        }
        let status = running.end().await?;
        Err(running.error(&format!("ended with {status}")))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result {
        let running = self.running.as_ref().ok_or("the replica is not running")?;
        crate::signal(&running.child, signal)
    }

    /// Returns the number of tasks of the replica's runtime, and of the bytes that it has allocated.
    pub(crate) async fn usage(&mut self) -> Result<(usize, u64)> {
        self.signal(Signal::USR1)?;
        let line = self.line().await?;
        let usage = line.strip_prefix("tasks ").and_then(|usage| usage.split_once(" bytes "));
        let usage =
            usage.and_then(|(tasks, bytes)| Some((tasks.parse().ok()?, bytes.parse().ok()?)));
        Ok(usage.ok_or(line)?)
    }

    /// Returns the number of open file descriptors.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        let pid = self.running.as_ref().and_then(|running| running.child.id());
        let pid = pid.ok_or("the replica is not running")?;
        Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count())
    }

    /// Sends SIGTERM, and waits until the replica has ended.
    pub(crate) async fn drain(&mut self) -> Result {
        self.signal(Signal::TERM)?;
        let mut running = self.running.take().ok_or("the replica is not running")?;
        let status = running.end().await?;
        if status.success() {
            Ok(())
        } else {
            Err(running.error(&format!("ended with {status} after SIGTERM")))
        }
    }

    /// Sends SIGKILL.
    pub(crate) async fn kill(&mut self) -> Result {
        if let Some(mut running) = self.running.take() {
            running.child.kill().await?;
        }
        Ok(())
    }
}
