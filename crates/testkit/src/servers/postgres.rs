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
}

impl Postgres {
    /// Creates a database and starts its server.
    pub fn start() -> Self {
        let folder = new_folder("postgres");
        if is_root() {
            chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.join("data");
        let mut initdb = command("initdb", &folder);
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D"]);
        let created = initdb.arg(&data).output().unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        let mut server = command("postgres", &folder);
        server.arg("-D").arg(&data).arg("-k").arg(&folder);
        server.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=8MB"]);
        let mut process = server.stderr(Stdio::piped()).spawn().unwrap();
        let log = process.stderr.take().unwrap();
        assert!(wait_for("ready to accept connections", log), "postgres did not start");
        Self { process, folder }
    }

    /// Returns the settings of a connection.
    pub fn config(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server's children end when they notice that it is gone.
        let _ = self.process.kill();
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
