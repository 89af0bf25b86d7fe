//! The sessions that are in use or have state in this process. Their number is bounded.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Deref;
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
    /// How many [`SessionRef`]s there are.
    uses: usize,
    last_used: u64,
}

/// Why there is no session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoSession {
    /// Its client has ended it.
    Terminated,
    /// All sessions are in use, and their number is at its limit.
    TooMany,
}

impl Sessions {
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), table: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session with this key, or adds one.
    pub(crate) fn get_or_add(
        self: &Arc<Self>,
        key: SessionKey,
        create: impl FnOnce() -> Session,
    ) -> Result<SessionRef, NoSession> {
        let mut table = self.lock();
        if table.terminated.contains(&key) {
            return Err(NoSession::Terminated);
        }
        table.clock += 1;
        let now = table.clock;
        if table.active.len() >= self.max && !table.active.contains_key(&key) {
            let unused = table.active.iter().filter(|(_, entry)| entry.uses == 0);
            let oldest = unused.min_by_key(|(_, entry)| entry.last_used).map(|(key, _)| *key);
            table.active.remove(&oldest.ok_or(NoSession::TooMany)?);
        }
        let entry = table.active.entry(key).or_insert_with(|| Entry {
            session: Arc::new(create()),
            uses: 0,
            last_used: now,
        });
        entry.uses += 1;
        entry.last_used = now;
        Ok(SessionRef { session: Arc::clone(&entry.session), sessions: Arc::clone(self) })
    }

    /// Ends a session, and remembers that until it expires. Returns false if it had ended before.
    pub(crate) fn terminate(
        &self,
        key: SessionKey,
        now: UnixSeconds,
        expires: UnixSeconds,
    ) -> bool {
        let mut table = self.lock();
        let session = table.active.remove(&key);
        let is_new = table.terminated.insert(key);
        if is_new {
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
        is_new
    }

    /// Ends all sessions that are in use or have state here. A later request with the same session
    /// id starts with empty state, as on another replica.
    pub(crate) fn close(&self) {
        let active = std::mem::take(&mut self.lock().active);
        for entry in active.into_values() {
            entry.session.terminate();
        }
    }

    /// Returns the session with this key, if it is in use or has state here.
    pub(crate) fn get(&self, key: SessionKey) -> Option<Arc<Session>> {
        self.lock().active.get(&key).map(|entry| Arc::clone(&entry.session))
    }

    /// Returns the number of sessions that are in use or have state here.
    pub(crate) fn count(&self) -> usize {
        self.lock().active.len()
    }
}

/// A session in use. When the last reference is dropped, a session without state is forgotten.
#[derive(Debug)]
pub(crate) struct SessionRef {
    session: Arc<Session>,
    sessions: Arc<Sessions>,
}

impl Deref for SessionRef {
    type Target = Arc<Session>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl SessionRef {
    /// Changes the session's entry, unless the session has ended.
    fn update(&self, change: impl FnOnce(&mut Entry)) {
        let mut table = self.sessions.lock();
        if let MapEntry::Occupied(mut entry) = table.active.entry(self.session.key)
            && Arc::ptr_eq(&entry.get().session, &self.session)
        {
            change(entry.get_mut());
            if entry.get().uses == 0 && !self.session.has_state() {
                entry.remove();
            }
        }
    }
}

impl Clone for SessionRef {
    fn clone(&self) -> Self {
        self.update(|entry| entry.uses += 1);
        Self { session: Arc::clone(&self.session), sessions: Arc::clone(&self.sessions) }
    }
}

impl Drop for SessionRef {
    fn drop(&mut self) {
        self.update(|entry| entry.uses -= 1);
    }
}

#[cfg(test)]
mod tests {
    use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
    use mrtr_schema::notification::LogLevel;

    use super::*;
    use crate::LegacyVersion;
    use crate::server::claims::SessionClaims;
    use crate::server::session::Change;

    fn get(sessions: &Arc<Sessions>, id: &str) -> Result<SessionRef, NoSession> {
        let key = SessionKey::of(id);
        let claims = SessionClaims {
            version: LegacyVersion::V2025_11_25,
            capabilities: ClientCapabilities::default(),
            client: Implementation::new("test", "1"),
        };
        sessions.get_or_add(key, || Session::new(key, claims, None))
    }

    #[test]
    fn session_is_forgotten_with_its_last_reference() {
        let sessions = Arc::new(Sessions::new(8));
        let first = get(&sessions, "a").unwrap();
        let second = get(&sessions, "a").unwrap();
        drop(first);
        let third = get(&sessions, "a").unwrap();
        assert!(Arc::ptr_eq(&second, &third), "two requests of a session share its state");
        drop((second.clone(), second, third));
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn unused_session_with_state_makes_room_for_others() {
        let sessions = Arc::new(Sessions::new(2));
        for id in ["a", "b"] {
            get(&sessions, id).unwrap().change(Change::LogLevel(LogLevel::Debug));
        }
        let used = get(&sessions, "a").unwrap();
        let new = get(&sessions, "c").unwrap();
        assert_eq!(get(&sessions, "d").unwrap_err(), NoSession::TooMany);
        assert!(Arc::ptr_eq(&used, &get(&sessions, "a").unwrap()));
        drop(new);
        assert!(get(&sessions, "d").is_ok());
    }

    #[test]
    fn session_that_was_closed_begins_anew() {
        let sessions = Arc::new(Sessions::new(2));
        let used = get(&sessions, "a").unwrap();
        used.change(Change::LogLevel(LogLevel::Debug));
        sessions.close();
        let new = get(&sessions, "a").unwrap();
        assert!(!Arc::ptr_eq(&used, &new) && !new.has_state());
        drop((used, new));
        assert_eq!(sessions.count(), 0);
    }

    #[test]
    fn ended_session_stays_ended_until_it_expires() {
        let sessions = Arc::new(Sessions::new(2));
        let used = get(&sessions, "a").unwrap();
        let end = |id, now, expires| {
            sessions.terminate(SessionKey::of(id), UnixSeconds(now), UnixSeconds(expires))
        };
        assert!(end("a", 0, 10));
        assert!(!end("a", 1, 10), "it had ended before");
        drop(used);
        assert_eq!(get(&sessions, "a").unwrap_err(), NoSession::Terminated);
        end("b", 10, 20);
        assert_eq!(sessions.lock().terminated.len(), 1, "expired ones are not remembered");
    }
}
