//! A record of what replicas did that no replica can lose: an append-only file.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Result;

/// One run of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) call: String,
    pub(crate) step: String,
    /// The idempotency key.
    pub(crate) key: String,
    /// The request in which the step ran, as numbered by the replica that received it.
    pub(crate) request: String,
    /// The caller.
    pub(crate) caller: String,
}

#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Ok(Self(File::options().append(true).create(true).open(path)?))
    }

    /// Appends a line. A line is short and is written at once, so it is never partial.
    pub(crate) fn write(&self, entry: &impl Serialize) -> std::io::Result<()> {
        (&self.0).write_all(format!("{}\n", serde_json::to_string(entry)?).as_bytes())
    }

    pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
        let text = std::fs::read_to_string(path)?;
        Ok(text.lines().map(serde_json::from_str).collect::<std::result::Result<_, _>>()?)
    }
}
