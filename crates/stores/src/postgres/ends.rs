//! What a connection knows of journals.

use std::collections::HashMap;

use mrtr_server::tasks::{LeaseId, TaskKey, TaskWrite};

/// Maximum number of journals whose end a connection remembers.
const MAX_ENDS: usize = 1_024;

/// Where the journals end that a connection has added entries to, with the lease of the writer.
///
/// To look up where a journal ends takes a quarter of the time of the statement that adds entries.
/// It is necessary because another server, or another copy of the database, may have a shorter
/// journal. But a connection has the same server for all its life. This server has all entries that
/// were committed on the connection, unless the tables are restored while replicas run: PostgreSQL
/// closes all connections before it recovers from a crash. Each statement checks in any case that
/// the lease is current, and that the journal was not replaced since; and two entries cannot have
/// the same position.
#[derive(Default)]
pub(super) struct Ends(HashMap<TaskKey, (LeaseId, i32)>);

impl Ends {
    /// Returns true if the journal is known to end at this position.
    pub(super) fn is_known(&self, write: &TaskWrite, position: i32) -> bool {
        self.0.get(&write.key) == Some(&(write.lease, position))
    }

    pub(super) fn set(&mut self, write: &TaskWrite, end: i32) {
        if self.0.len() >= MAX_ENDS {
            // Most of them may be of tasks that have ended.
            self.0.clear();
        }
        self.0.insert(write.key, (write.lease, end));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
