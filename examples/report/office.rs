//! The systems that the steps call. They recognize a repeated request by its idempotency key, as a bank does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use mrtr::Result;

#[derive(Clone)]
pub struct Office {
    /// A file outside the server, with a line for the beginning and for the effect of each request.
    pub ledger: PathBuf,
    /// The time that a request takes.
    pub time: Duration,
}

impl Office {
    pub async fn read(&self, source: &str, month: &str, key: &str) -> Result<usize> {
        self.request(&format!("read {source} of {month}"), key).await?;
        Ok(source.len() * 1_000)
    }

    pub async fn send(&self, receiver: &str, total: usize, key: &str) -> Result<()> {
        Ok(self.request(&format!("send {total} € to {receiver}"), key).await?)
    }

    async fn request(&self, what: &str, key: &str) -> io::Result<()> {
        self.append("begin", key, what)?;
        tokio::time::sleep(self.time).await;
        // A repeated request has no second effect.
        if !self.entries()?.effects.contains_key(key) {
            self.append("effect", key, what)?;
        }
        Ok(())
    }

    /// Writes a line at once, so that a process that is killed leaves no half line.
    fn append(&self, kind: &str, key: &str, what: &str) -> io::Result<()> {
        let mut ledger = OpenOptions::new().create(true).append(true).open(&self.ledger)?;
        ledger.write_all(format!("{kind} {key} {what}\n").as_bytes())
    }

    pub fn entries(&self) -> io::Result<Entries> {
        let text = match fs::read_to_string(&self.ledger) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let mut entries = Entries::default();
        for line in text.lines() {
            let mut parts = line.splitn(3, ' ');
            let (kind, key, what) = (parts.next(), parts.next(), parts.next());
            let (key, what) = (key.unwrap_or_default(), what.unwrap_or_default());
            if kind == Some("begin") {
                *entries.attempts.entry(what.to_owned()).or_default() += 1;
                entries.keys.entry(what.to_owned()).or_default().insert(key.to_owned());
            } else {
                *entries.effects.entry(key.to_owned()).or_default() += 1;
            }
        }
        Ok(entries)
    }
}

/// The lines of the ledger.
#[derive(Default)]
pub struct Entries {
    /// The number of attempts, by request.
    pub attempts: BTreeMap<String, usize>,
    /// The idempotency keys of the attempts, by request.
    pub keys: BTreeMap<String, BTreeSet<String>>,
    /// The number of effects, by idempotency key.
    pub effects: BTreeMap<String, usize>,
}

impl Entries {
    /// Returns a request that has begun and has no effect yet.
    pub fn in_flight(&self) -> Option<&str> {
        let open = self
            .keys
            .iter()
            .find(|(_, keys)| keys.iter().any(|key| !self.effects.contains_key(key)));
        open.map(|(what, _)| &**what)
    }
}
