//! The faults of a run, and their times.

use std::sync::Mutex;

use crate::lock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A replica was killed.
    Killed,
    /// A replica was stopped for longer than the lease, and continued.
    Frozen,
    /// The connections of a replica passed nothing on for longer than the lease.
    Held,
    /// The connections of a replica passed nothing on, before and while it was frozen.
    Delayed,
    /// A connection of a replica was cut.
    Cut,
    /// The server of the store was killed, and started again.
    Crashed,
    /// The server of the store was stopped, copied, and started again.
    Copied,
    /// The server of the store was started with the copy.
    Restored,
    /// The server of the store committed slowly.
    Slow,
    /// A replica did not get to run.
    Stalled,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The port of the replica. `None`: all replicas.
    pub(crate) port: Option<u16>,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(crate) fn add(&self, kind: Kind, port: Option<u16>, from: f64, to: f64) {
        lock(&self.0).push(Fault { kind, port, from, to });
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        lock(&self.0).iter().filter(|fault| fault.kind == kind).count()
    }

    pub(crate) fn all(&self) -> Vec<Fault> {
        lock(&self.0).clone()
    }
}
