//! What steps did, where no replica can forget it: a file that is only ever appended to.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;

/// One run of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) flow: String,
    pub(crate) step: String,
    /// The idempotency key.
    pub(crate) key: String,
    /// The request that it ran in, as the replica that received it numbered it.
    pub(crate) request: String,
    /// Who called.
    pub(crate) caller: String,
}

#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(Self(File::options().append(true).create(true).open(path)?))
    }

    /// A line is short, and written at once: it is there as a whole or not at all.
    pub(crate) fn write(&self, entry: &Entry) -> std::io::Result<()> {
        (&self.0).write_all(format!("{}\n", serde_json::to_string(entry)?).as_bytes())
    }

    pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
        let text = std::fs::read_to_string(path)?;
        Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
    }
}
