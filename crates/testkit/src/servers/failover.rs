//! A failover between two Redis servers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::Redis;

/// Two Redis servers behind one address, which leads to the old one at first.
pub struct RedisFailover {
    /// The server that is replaced.
    pub old: Redis,
    /// The server that takes its place.
    pub new: Redis,
    address: PathBuf,
}

impl RedisFailover {
    /// Starts the servers.
    pub fn start() -> Self {
        let (old, new) = (Redis::start(), Redis::start());
        let address = old.socket().with_file_name("address");
        symlink(old.socket(), &address).unwrap();
        Self { old, new, address }
    }

    /// Returns the URL of the address.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.address.display())
    }

    /// Makes the old server a replica. It keeps its connections, and refuses writes.
    pub fn demote_old(&self) {
        // Nothing listens there: it stays alone.
        assert_eq!(self.old.command("REPLICAOF 127.0.0.1 1"), "+OK");
    }

    /// Lets the address lead to the new server.
    pub fn lead_to_new(&self) {
        fs::remove_file(&self.address).unwrap();
        symlink(self.new.socket(), &self.address).unwrap();
    }
}
