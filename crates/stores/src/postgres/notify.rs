//! Announces changes to other replicas, and listens to them.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_server::tasks::{TaskKey, TaskStoreError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::connect::{Connector, OnNotice, failed};
use super::pool::{Params, lock};
use crate::changes::Changes;

/// The time for which changes gather before they are announced.
const GATHER: Duration = Duration::from_millis(10);

/// The pause between two attempts to restore the connection.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest time without a reply. A pooler may keep a connection whose server hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of changes that gather. Others are not announced.
const MAX_GATHERED: usize = 10_000;

/// The number of keys in a notification. Its payload is shorter than 8,000 bytes.
const KEYS: usize = 120;

/// The length of a key in a payload, and of the name of a replica.
const KEY: usize = 64;
const NAME: usize = 16;

/// The channel has the number of the table: schemas of one database have channels of their own.
const CHANNEL: &str = "SELECT 'mrtr_task_' || 'mrtr_task'::regclass::oid::text";

const NOTIFY: &str = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload";

/// Announces changes within a transaction.
pub(super) const NOTIFY_AT_COMMIT: &str =
    "SELECT pg_notify('mrtr_task_' || 'mrtr_task'::regclass::oid::text, payload)
    FROM unnest($1::text[]) AS payload";

/// Announces and hears changes, on a connection of its own.
pub(super) struct Notifier {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    /// The changes of this replica and of others.
    changes: Changes,
    gathered: Mutex<HashSet<TaskKey>>,
    added: Notify,
    /// Tells the notifications of this replica from those of others.
    name: String,
}

impl Notifier {
    pub(super) fn start(connector: Connector) -> Result<Self, TaskStoreError> {
        let name = getrandom::u64().map_err(|error| TaskStoreError::Unavailable(error.into()))?;
        let shared = Arc::new(Shared {
            changes: Changes::default(),
            gathered: Mutex::default(),
            added: Notify::new(),
            name: format!("{name:0NAME$x}"),
        });
        let task = tokio::spawn(supervise(connector, Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, task })
    }

    /// Announces a change, a little later.
    pub(super) fn announce(&self, key: TaskKey) {
        self.shared.announce(key);
    }

    pub(super) fn announcer(&self) -> Announcer {
        Announcer(Arc::clone(&self.shared))
    }

    pub(super) async fn next(&self) -> TaskKey {
        self.shared.changes.next().await
    }
}

/// Announces changes for a [`Notifier`].
#[derive(Clone)]
pub(super) struct Announcer(Arc<Shared>);

impl Announcer {
    /// Announces a change, a little later.
    pub(super) fn announce(&self, key: TaskKey) {
        self.0.announce(key);
    }

    /// Returns the payloads of notifications.
    pub(super) fn payloads(&self, keys: &[TaskKey]) -> Vec<String> {
        keys.chunks(KEYS).map(|keys| payload(&self.0.name, keys)).collect()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn announce(&self, key: TaskKey) {
        self.changes.add(key);
        let mut gathered = lock(&self.gathered);
        if gathered.len() < MAX_GATHERED {
            gathered.insert(key);
        }
        drop(gathered);
        self.added.notify_one();
    }

    fn take(&self) -> Vec<TaskKey> {
        let mut gathered = lock(&self.gathered);
        gathered.drain().collect()
    }

    /// Reads a payload: the name of a replica, and keys.
    fn hear(&self, payload: &str) {
        let Some((name, keys)) = payload.split_at_checked(NAME) else { return };
        if name != self.name {
            keys.as_bytes().chunks(KEY).filter_map(parse_key).for_each(|key| self.changes.add(key));
        }
    }
}

/// Keeps the connection.
async fn supervise(connector: Connector, shared: Arc<Shared>) {
    loop {
        let heard = Arc::clone(&shared);
        let on_notice: OnNotice = Arc::new(move |payload| heard.hear(payload));
        let opened = connector.open(Some(on_notice)).await;
        let ended = match opened {
            Ok((client, mut driver)) => {
                // The driver ends when the connection breaks.
                tokio::select! {
                    ended = announce(&client, &shared) => ended,
                    _ = &mut driver => Ok(()),
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(target: "mrtr::tasks", %error, "listening for changes failed");
        }
        sleep(PAUSE).await;
    }
}

/// Announces what gathers, for as long as the connection works.
async fn announce(client: &Client, shared: &Shared) -> Result<(), TaskStoreError> {
    let channel: String = client.query_one(CHANNEL, &[]).await.map_err(failed)?.get(0);
    // Nothing is lost with a notification, so its commit does not wait for the disk.
    let listen = format!("SET synchronous_commit = off; LISTEN {channel}");
    client.batch_execute(&listen).await.map_err(failed)?;
    let notify = client.prepare(NOTIFY).await.map_err(failed)?;
    loop {
        shared.added.notified().await;
        sleep(GATHER).await;
        let keys = shared.take();
        let payloads: Vec<_> = keys.chunks(KEYS).map(|keys| payload(&shared.name, keys)).collect();
        if !payloads.is_empty() {
            let params: &Params<'_> = &[&channel, &payloads];
            let notified = timeout(TIMEOUT, client.execute(&notify, params)).await;
            let no_reply = |_| TaskStoreError::Unavailable("no reply to NOTIFY".into());
            notified.map_err(no_reply)?.map_err(failed)?;
        }
    }
}

fn payload(name: &str, keys: &[TaskKey]) -> String {
    let mut payload = name.to_owned();
    for byte in keys.iter().flat_map(|key| key.0) {
        // Writing to a string does not fail.
        let _ = write!(payload, "{byte:02x}");
    }
    payload
}

fn parse_key(text: &[u8]) -> Option<TaskKey> {
    let mut key = [0; 32];
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    if pairs.len() != key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(TaskKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(name: &str) -> Shared {
        Shared {
            changes: Changes::default(),
            gathered: Mutex::default(),
            added: Notify::new(),
            name: name.to_owned(),
        }
    }

    #[tokio::test]
    async fn payloads_carry_keys_to_other_replicas_only() {
        let (one, other) = (shared("000000000000000a"), shared("000000000000000b"));
        let keys: Vec<_> = (0..KEYS).map(|n| TaskKey::of(&n.to_string())).collect();
        let payload = payload(&one.name, &keys);
        assert!(payload.len() < 8_000);
        for text in ["", "x", "000000000000000a", "000000000000000a0", "ü00000000000000aff"] {
            other.hear(text);
        }
        one.hear(&payload);
        one.changes.add(TaskKey::of("only"));
        assert_eq!(one.changes.next().await, TaskKey::of("only"));
        other.hear(&payload);
        for key in keys {
            assert_eq!(other.changes.next().await, key);
        }
    }
}
