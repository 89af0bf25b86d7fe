//! A PostgreSQL server.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{new_folder, wait_for};

/// The user that runs the server if the tests run as root, which PostgreSQL refuses.
const NOBODY: u32 = 65_534;

/// A PostgreSQL server on a socket in its own folder. Dropping it stops the server.
pub struct Postgres {
    process: Child,
    folder: PathBuf,
    options: &'static [&'static str],
}

impl Postgres {
    /// Creates a database and starts its server, which writes nothing to the disk.
    pub fn start() -> Self {
        Self::create(&["-c", "fsync=off"])
    }

    /// Creates a database and starts its server, which is durable.
    pub fn start_durable() -> Self {
        Self::create(&[])
    }

    /// Creates a database and starts its server, which is durable and has the buffers of a server
    /// as shipped.
    pub fn start_as_shipped() -> Self {
        Self::create(&["-c", "shared_buffers=128MB"])
    }

    fn create(options: &'static [&'static str]) -> Self {
        let folder = new_folder("postgres");
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.join("data");
        let mut initdb = command("initdb", &folder);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D"]);
        let created = initdb.arg(&data).output();
        let created = created.expect("these tests need PostgreSQL: apt-get install postgresql");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let process = Self::spawn(&folder, options);
        Self { process: process.expect("postgres did not start"), folder, options }
    }

    /// Starts a server. Returns `None` if it ends at once.
    fn spawn(folder: &Path, options: &[&str]) -> Option<Child> {
        let mut server = command("postgres", folder);
        server.arg("-D").arg(folder.join("data")).arg("-k").arg(folder);
        server.args(["-c", "listen_addresses=", "-c", "shared_buffers=8MB"]).args(options);
        let mut process = server.stderr(Stdio::piped()).spawn().unwrap();
        let log = process.stderr.take().unwrap();
        let is_ready = wait_for("ready to accept connections", log);
        if !is_ready {
            process.wait().unwrap();
        }
        is_ready.then_some(process)
    }

    /// Kills the server. Its children end when they notice that it is gone.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops the server, which then has written everything to its data directory.
    pub fn stop(&mut self) {
        let mut stop = command("pg_ctl", &self.folder);
        let stopped = stop.args(["stop", "--silent", "--mode=fast", "-D"]).arg(self.data());
        assert!(stopped.status().unwrap().success(), "postgres did not stop");
        self.process.wait().unwrap();
    }

    /// Returns the folder of the server's socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts the server again after it was killed or stopped.
    pub fn restart(&mut self) {
        // It refuses to start while children of the killed one are alive.
        let started = (0..1_000).find_map(|_| Self::spawn(&self.folder, self.options));
        self.process = started.expect("postgres did not start again");
    }

    /// Returns the settings of a connection.
    pub fn config(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A server that is killed leaves its shared memory behind. It does not write a checkpoint.
        let mut stop = command("pg_ctl", &self.folder);
        let stop = stop.args(["stop", "--silent", "--mode=immediate", "-D"]).arg(self.data());
        if !stop.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the command of a program of PostgreSQL, which Debian keeps out of the path.
fn command(name: &str, folder: &Path) -> Command {
    let mut versions: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path().join("bin").join(name)))
        .filter(|program| program.is_file())
        .collect();
    versions.sort();
    let mut command = Command::new(versions.pop().unwrap_or_else(|| name.into()));
    command.current_dir(folder);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Returns true if this process belongs to root.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
