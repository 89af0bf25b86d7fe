//! The server's process and its resources, as reported by Linux.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::Result;

/// A process that ends when this value is dropped.
pub struct Server {
    child: Child,
    /// True if the process is asked to terminate, and not killed.
    terminate: bool,
    pub started: Instant,
}

impl Server {
    pub fn start(command: &[String], terminate: bool) -> Result<Self> {
        let (program, args) = command.split_first().ok_or("no command after --")?;
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = Instant::now();
        let child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        Ok(Self { child, terminate, started })
    }

    pub fn input(&mut self) -> Result<ChildStdin> {
        Ok(self.child.stdin.take().ok_or("no standard input")?)
    }

    pub fn output(&mut self) -> Result<ChildStdout> {
        Ok(self.child.stdout.take().ok_or("no standard output")?)
    }

    /// Returns the processor time of all threads in seconds, with nanosecond precision, unlike
    /// `stat`.
    pub fn cpu(&self) -> Result<f64> {
        let mut nanos = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let times = match fs::read_to_string(task?.path().join("schedstat")) {
                Err(gone) if gone.kind() == ErrorKind::NotFound => continue,
                times => times?,
            };
            nanos += times.split(' ').next().unwrap_or_default().parse::<u64>()?;
        }
        Ok(nanos as f64 / 1e9)
    }

    /// Returns the current and the maximum resident memory, in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().map(|kib| kib * 1024)
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = self.terminate
            && Command::new("kill")
                .arg(self.child.id().to_string())
                .status()
                .is_ok_and(|s| s.success());
        let killed = if asked { Ok(()) } else { self.child.kill() };
        let ended = killed.and_then(|()| self.child.wait());
        if let Err(error) = ended {
            let _ = writeln!(std::io::stderr(), "cannot end the server: {error}");
        }
    }
}
