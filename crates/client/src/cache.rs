//! Cache of results that the server allows to reuse (specification: server utilities, "Caching").

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::Notification;
use mrtr_schema::method;
use mrtr_schema::result::CacheHints;
use mrtr_schema::subscription::name;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// The results of one client, each for as long as it is fresh.
///
/// It is emptied when the transport sends another authorization, such as a new access token. So no
/// result is reused across authorization contexts, and `public` and `private` results need no
/// distinction.
#[derive(Debug)]
pub(crate) struct Cache {
    max_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    bytes: usize,
    /// The number of invalidations so far. A result whose request was sent before the last one may
    /// be outdated, and is not stored.
    invalidations: u64,
    /// The authorization of the requests whose results are here.
    epoch: u64,
}

/// A call: its method, and its parameters as JSON text, with the capabilities that the client
/// declares, unless they are those that follow from its handlers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    method: String,
    params: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    result: Box<RawValue>,
    received: Instant,
    ttl: Duration,
}

/// The outcome of a lookup.
pub(crate) enum Lookup {
    /// The slot replaces it, if it turns out to be of no use.
    Fresh(Box<RawValue>, Slot),
    /// No fresh result. The slot stores the result of the call.
    Missing(Slot),
    /// Results of this method are not cached.
    NotCacheable,
}

/// The place for the result of a call in flight.
#[derive(Debug)]
pub(crate) struct Slot {
    key: Key,
    invalidations: u64,
}

/// An estimate of the memory an entry takes beside its key and result, so that many small entries
/// do not exceed the size of the cache by far.
const ENTRY_OVERHEAD: usize = 128;

impl Cache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, state: Mutex::default() }
    }

    pub(crate) fn find(
        &self,
        method: &str,
        params: &[(&str, Box<RawValue>)],
        capabilities: Option<&ClientCapabilities>,
        epoch: u64,
    ) -> Lookup {
        let cacheable = matches!(
            method,
            method::DISCOVER
                | method::TOOLS_LIST
                | method::PROMPTS_LIST
                | method::RESOURCES_LIST
                | method::RESOURCE_TEMPLATES_LIST
                | method::RESOURCES_READ
        );
        // A call that is continued (specification: caching).
        let is_retry =
            params.iter().any(|(name, _)| matches!(*name, "requestState" | "inputResponses"));
        if !cacheable || is_retry || self.max_bytes == 0 {
            return Lookup::NotCacheable;
        }
        let mut params: Vec<_> =
            params.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        params.extend(capabilities.and_then(|declared| serde_json::to_string(declared).ok()));
        let key = Key { method: method.to_owned(), params };
        let mut state = self.lock();
        state.enter(epoch);
        let invalidations = state.invalidations;
        match state.entries.get(&key) {
            Some(entry) if entry.is_fresh() => {
                return Lookup::Fresh(entry.result.clone(), Slot { key, invalidations });
            }
            Some(_) => state.remove(&key),
            None => {}
        }
        Lookup::Missing(Slot { key, invalidations })
    }

    /// Stores a result that was just received, if the server allows it. It is not stored if the
    /// authorization has changed since the lookup.
    pub(crate) fn store(&self, slot: Slot, result: &RawValue, epoch: u64) {
        // Malformed hints allow nothing. The caller decodes the result and reports the error.
        let ttl = CacheHints::from_result(result).unwrap_or_default().ttl_ms;
        let entry = Entry {
            result: result.to_owned(),
            received: Instant::now(),
            ttl: Duration::from_millis(ttl),
        };
        let bytes = entry.bytes(&slot.key);
        let mut state = self.lock();
        state.enter(epoch);
        if ttl == 0 || bytes > self.max_bytes || state.invalidations != slot.invalidations {
            return;
        }
        if state.bytes + bytes > self.max_bytes {
            state.retain(|_, entry| entry.is_fresh());
        }
        while state.bytes + bytes > self.max_bytes {
            let oldest = state.entries.iter().min_by_key(|(_, entry)| entry.received);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            state.remove(&oldest);
        }
        state.remove(&slot.key);
        state.bytes += bytes;
        state.entries.insert(slot.key, entry);
    }

    /// Removes the results that a notification reports as changed.
    pub(crate) fn invalidate(&self, notification: &Notification) {
        match notification.method.as_str() {
            name::TOOLS => self.remove(&[method::TOOLS_LIST]),
            name::PROMPTS => self.remove(&[method::PROMPTS_LIST]),
            name::RESOURCES => {
                self.remove(&[method::RESOURCES_LIST, method::RESOURCE_TEMPLATES_LIST]);
            }
            // The changed resource may be part of one with another URI, so all are removed.
            name::RESOURCE_UPDATED => self.remove(&[method::RESOURCES_READ]),
            // A subscription may have missed any change before it was acknowledged.
            name::ACKNOWLEDGED => self.clear(),
            _ => {}
        }
    }

    /// Removes the results of these methods.
    pub(crate) fn remove(&self, methods: &[&str]) {
        let mut state = self.lock();
        state.invalidations += 1;
        state.retain(|key, _| !methods.contains(&key.method.as_str()));
    }

    /// Removes all results.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.invalidations += 1;
        state.retain(|_, _| false);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes all results if they are those of another authorization.
    fn enter(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.invalidations += 1;
            self.retain(|_, _| false);
        }
    }

    fn remove(&mut self, key: &Key) {
        self.bytes -= self.entries.remove(key).map_or(0, |entry| entry.bytes(key));
    }

    fn retain(&mut self, keep: impl Fn(&Key, &Entry) -> bool) {
        self.entries.retain(|key, entry| keep(key, entry));
        self.bytes = self.entries.iter().map(|(key, entry)| entry.bytes(key)).sum();
    }
}

impl Entry {
    fn is_fresh(&self) -> bool {
        self.received.elapsed() < self.ttl
    }

    fn bytes(&self, key: &Key) -> usize {
        let params: usize = key.params.iter().map(String::len).sum();
        ENTRY_OVERHEAD + key.method.len() + params + self.result.get().len()
    }
}
