//! The sessions that have state in this process. Their number is bounded.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mrtr_codec::UnixSeconds;

use super::session::{Session, SessionKey};

/// How many ended sessions are remembered until they expire. Each takes 40 bytes.
const MAX_TERMINATED: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Sessions {
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    active: HashMap<SessionKey, Entry>,
    /// Counts uses: the order in which idle sessions are forgotten.
    clock: u64,
    terminated: HashSet<SessionKey>,
    terminated_order: VecDeque<(SessionKey, UnixSeconds)>,
}

#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    last_used: u64,
}

impl Sessions {
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the session was ended by its client.
    pub(crate) fn is_terminated(&self, key: &SessionKey) -> bool {
        self.lock().terminated.contains(key)
    }

    /// Returns the session with this key, or adds one. `None` if there is no room: all sessions
    /// have requests or streams in flight.
    pub(crate) fn get_or_add(
        &self,
        key: SessionKey,
        create: impl FnOnce() -> Session,
    ) -> Option<Arc<Session>> {
        let mut table = self.lock();
        table.clock += 1;
        let now = table.clock;
        if let Some(entry) = table.active.get_mut(&key) {
            entry.last_used = now;
            return Some(Arc::clone(&entry.session));
        }
        if table.active.len() >= self.max {
            let idle = table.active.iter().filter(|(_, entry)| entry.session.is_idle());
            let oldest = idle.min_by_key(|(_, entry)| entry.last_used).map(|(key, _)| *key)?;
            table.active.remove(&oldest);
        }
        let session = Arc::new(create());
        table.active.insert(key, Entry { session: Arc::clone(&session), last_used: now });
        Some(session)
    }

    /// Forgets a session that has no state.
    pub(crate) fn release(&self, session: &Session) {
        if !session.has_state() {
            let mut table = self.lock();
            // Another request may have begun in between.
            if !session.has_state() {
                table.active.remove(&session.key);
            }
        }
    }

    /// Ends a session, and remembers that until it expires.
    pub(crate) fn terminate(&self, key: SessionKey, now: UnixSeconds, expires: UnixSeconds) {
        let mut table = self.lock();
        let session = table.active.remove(&key);
        if table.terminated.insert(key) {
            table.terminated_order.push_back((key, expires));
        }
        while let Some((oldest, expires)) = table.terminated_order.front().copied()
            && (expires <= now || table.terminated.len() > MAX_TERMINATED)
        {
            table.terminated_order.pop_front();
            table.terminated.remove(&oldest);
        }
        drop(table);
        if let Some(entry) = session {
            entry.session.terminate();
        }
    }

    /// Returns all sessions that have state here.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.lock().active.values().map(|entry| Arc::clone(&entry.session)).collect()
    }
}
