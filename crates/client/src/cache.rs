//! What a server says may be reused for a while (specification: server utilities, "Caching").

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::jsonrpc::Notification;
use mrtr_schema::method;
use mrtr_schema::result::CacheHints;
use mrtr_schema::subscription::name;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Results of one client, each for as long as it is fresh. A client has one set of credentials, so
/// nothing is reused across authorization contexts, be it `public` or `private`.
#[derive(Debug)]
pub(crate) struct Cache {
    max_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    bytes: usize,
    /// Counts what was thrown away because it had changed: a result that was asked for before that, and
    /// comes in after it, may show how things were.
    changes: u64,
}

/// A call: its method, and its parameters as they are written.
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

/// What the cache has for a call.
pub(crate) enum Found {
    Fresh(Box<RawValue>),
    /// Nothing; where its result belongs.
    Nothing(Vacancy),
    /// Nothing, and its result is none that may be kept.
    NotKept,
}

/// The place for the result of a call that is under way.
#[derive(Debug)]
pub(crate) struct Vacancy {
    key: Key,
    changes: u64,
}

/// What an entry costs beside its key and result.
const OVERHEAD: usize = 128;

impl Cache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, state: Mutex::default() }
    }

    pub(crate) fn find(&self, method: &str, params: &[(&str, Box<RawValue>)]) -> Found {
        let cacheable = matches!(
            method,
            method::DISCOVER
                | method::TOOLS_LIST
                | method::PROMPTS_LIST
                | method::RESOURCES_LIST
                | method::RESOURCE_TEMPLATES_LIST
                | method::RESOURCES_READ
        );
        if !cacheable || self.max_bytes == 0 {
            return Found::NotKept;
        }
        let params = params.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        let key = Key { method: method.to_owned(), params };
        let mut state = self.lock();
        match state.entries.get(&key) {
            Some(entry) if entry.is_fresh() => return Found::Fresh(entry.result.clone()),
            Some(_) => state.remove(&key),
            None => {}
        }
        Found::Nothing(Vacancy { key, changes: state.changes })
    }

    /// Keeps a result that was just received, if the server allows it.
    pub(crate) fn keep(&self, place: Vacancy, result: &RawValue) {
        // Malformed hints are none. Whoever asked for the result reads it, and will complain.
        let ttl = CacheHints::from_result(result).unwrap_or_default().ttl_ms;
        let entry = Entry {
            result: result.to_owned(),
            received: Instant::now(),
            ttl: Duration::from_millis(ttl),
        };
        let bytes = entry.bytes(&place.key);
        let mut state = self.lock();
        if ttl == 0 || bytes > self.max_bytes || state.changes != place.changes {
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
        state.remove(&place.key);
        state.bytes += bytes;
        state.entries.insert(place.key, entry);
    }

    /// Throws away what a notification says has changed.
    pub(crate) fn hear(&self, notification: &Notification) {
        match notification.method.as_str() {
            name::TOOLS => self.forget(&[method::TOOLS_LIST]),
            name::PROMPTS => self.forget(&[method::PROMPTS_LIST]),
            name::RESOURCES => {
                self.forget(&[method::RESOURCES_LIST, method::RESOURCE_TEMPLATES_LIST]);
            }
            // What changed may be a part of a resource with another URI, so all are read again.
            name::RESOURCE_UPDATED => self.forget(&[method::RESOURCES_READ]),
            // A subscription that begins anew may have missed anything.
            name::ACKNOWLEDGED => self.clear(),
            _ => {}
        }
    }

    /// Throws away the results of these methods.
    pub(crate) fn forget(&self, methods: &[&str]) {
        let mut state = self.lock();
        state.changes += 1;
        state.retain(|key, _| !methods.contains(&key.method.as_str()));
    }

    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.changes += 1;
        state.retain(|_, _| false);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
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
        OVERHEAD + key.method.len() + params + self.result.get().len()
    }
}
