//! Scopes that a handler requires in the middle of a call.

use std::future::poll_fn;
use std::sync::Arc;

use super::checkpoint::SuspendRequest;
use super::fault::Fault;
use super::journal::{Entry, EntryKind, Journal, SCOPE};
use super::round::Round;
use super::step_scope;
use crate::error::Error;

/// The first character of the keys of scopes. Keys of handlers seldom begin with it.
const PREFIX: char = '\u{1}';

/// Implements [`Context::require_scope`](crate::Context::require_scope).
pub(crate) async fn require_scope(round: Arc<Round>, scope: String) -> Result<(), Error> {
    if round.require_scope(&scope) {
        return Ok(());
    }
    let mut request = None;
    poll_fn(|cx| {
        request.get_or_insert_with(|| SuspendRequest::new(&round, cx));
        round.poll_closed(cx.waker())
    })
    .await;
    Err(Error::round_closed(&scope))
}

impl Round {
    /// Returns true if the access token of this request has a scope. If not, records that the call
    /// needs it: later requests are refused without it before they run.
    fn require_scope(&self, scope: &str) -> bool {
        let mut state = self.lock();
        if let Some(step) = step_scope::current_step(self) {
            let why = format!("the scope {scope:?} is required inside the step {step:?}");
            state.fail(Fault::Handler(why));
            return false;
        }
        let key = format!("{PREFIX}{scope}");
        let is_recorded = state.replay.use_decision(&key);
        let is_granted = self.parts.has_scope(scope);
        if !is_granted && !is_recorded {
            state.replay.push_decision(&key, SCOPE);
        }
        state.lacks_scope |= !is_granted;
        state.requires_scope = true;
        is_granted
    }

    /// Returns true if the handler has required a scope.
    pub(crate) fn requires_scope(&self) -> bool {
        self.lock().requires_scope
    }
}

impl Journal {
    /// Returns the scopes that the call was found to need.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(Entry::scope)
    }
}

impl Entry {
    fn scope(&self) -> Option<&str> {
        let is_scope = self.kind == EntryKind::Decision && *self.value == *SCOPE;
        self.key.strip_prefix(PREFIX).filter(|_| is_scope)
    }
}
