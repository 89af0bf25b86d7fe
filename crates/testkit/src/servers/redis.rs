//! A Redis server.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{new_folder, wait_for};

/// A Redis server on a socket in its own directory. Dropping it stops the server.
pub struct Redis {
    process: Child,
    socket: PathBuf,
}

impl Redis {
    /// Starts a server, and waits until it accepts connections.
    pub fn start() -> Self {
        let socket = new_folder("redis").join("socket");
        Self { process: Self::spawn(&socket), socket }
    }

    fn spawn(socket: &Path) -> Child {
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(socket)
            .current_dir(socket.parent().unwrap())
            .stdout(Stdio::piped())
            .spawn();
        assert!(process.is_ok(), "these tests need `redis-server` 7 or newer in the path");
        let mut process = process.unwrap();
        let output = process.stdout.take().unwrap();
        assert!(wait_for("eady to accept", output), "redis-server did not start");
        process
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket.display())
    }

    /// Returns the path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a command as a line and returns the reply.
    pub fn command(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        write!(stream, "{command}\r\nQUIT\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.strip_suffix("+OK\r\n").unwrap_or(&answer).trim_end().to_owned()
    }

    /// Kills the server.
    pub fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the server again, on the same socket.
    pub fn restart(&mut self) {
        self.process = Self::spawn(&self.socket);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(self.socket.parent().unwrap());
    }
}
