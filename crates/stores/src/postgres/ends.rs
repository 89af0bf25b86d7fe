//! What is known of the journals at a server.

use std::collections::HashMap;
use std::sync::Arc;

use mrtr_server::tasks::{LeaseId, TaskKey, TaskWrite};

/// Maximum number of journals whose end is remembered.
const MAX_ENDS: usize = 4_096;

/// Where the journals end that a store has added entries to, with the lease of the writer.
///
/// To look up where a journal ends takes a quarter of the time of the statement that adds entries.
/// It is necessary because another server, or another copy of the database, may have a shorter
/// journal. But a server that has committed entries keeps them, also when it recovers from a crash,
/// unless the tables are restored while replicas run. Each statement checks in any case that the
/// lease is current, and that the journal was not replaced since; and two entries cannot have the
/// same position.
#[derive(Default)]
pub(super) struct Ends {
    /// The server that has committed the entries, by its start.
    server: Option<Arc<str>>,
    known: HashMap<TaskKey, (LeaseId, i32)>,
}

impl Ends {
    /// Forgets everything, unless it was learned from this server.
    pub(super) fn of(&mut self, server: &Arc<str>) -> &mut Self {
        if self.server.as_ref() != Some(server) {
            *self = Self { server: Some(Arc::clone(server)), ..Self::default() };
        }
        self
    }

    /// Returns true if the journal is known to end at this position.
    pub(super) fn is_known(&self, write: &TaskWrite, position: i32) -> bool {
        self.known.get(&write.key) == Some(&(write.lease, position))
    }

    pub(super) fn set(&mut self, write: &TaskWrite, end: i32) {
        if self.known.len() >= MAX_ENDS && !self.known.contains_key(&write.key) {
            // Most of them may be of tasks that have ended.
            self.known.clear();
        }
        self.known.insert(write.key, (write.lease, end));
    }

    /// Forgets one journal, which is about to be replaced.
    pub(super) fn forget(&mut self, key: TaskKey) {
        self.known.remove(&key);
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_may_have_shorter_journals() {
        let [one, other] = ["one", "other"].map(Arc::from);
        let write = TaskWrite::new(TaskKey([1; 32]), LeaseId([1; 16]));
        let mut ends = Ends::default();
        ends.of(&one).set(&write, 3);
        assert!(ends.of(&one).is_known(&write, 3));
        let of_another_run = TaskWrite { lease: LeaseId([2; 16]), ..write.clone() };
        assert!(!ends.of(&one).is_known(&of_another_run, 3));
        assert!(!ends.of(&other).is_known(&write, 3));
        assert!(!ends.of(&one).is_known(&write, 3), "known again");
    }
}
