//! Calls that wait for the client's answers. They cannot leave this process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::RequestId;

use super::connection::Connection;
use super::request::Target;
use super::running_call::RunningCall;

/// How many calls may wait. A further one cancels the oldest of the caller with the most, who has
/// most likely gone.
const MAX_SUSPENDED: usize = 256;

/// A call that stands at questions of the server.
pub(super) struct SuspendedCall<C: Connection> {
    pub(super) running: RunningCall<C>,
    /// What the call is of.
    pub(super) target: Target,
    /// The server's requests: the keys of the input requests, and the ids.
    pub(super) questions: Vec<(String, RequestId)>,
}

impl<C: Connection> SuspendedCall<C> {
    /// Returns the responses of the server's requests: their ids, and the results.
    pub(super) fn answers<'r>(
        &'r self,
        responses: &'r InputResponses,
    ) -> impl Iterator<Item = (&'r RequestId, Option<&'r str>)> {
        self.questions
            .iter()
            .map(|(key, id)| (id, responses.get(key).map(serde_json::value::RawValue::get)))
    }
}

/// The calls that wait, the oldest first, by their request states.
pub(super) struct SuspendedCalls<C: Connection> {
    waiting: Mutex<Waiting<C>>,
}

type Waiting<C> = VecDeque<(String, SuspendedCall<C>)>;

impl<C: Connection> Default for SuspendedCalls<C> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<C: Connection> SuspendedCalls<C> {
    /// Keeps a call, and returns its request state: one that no other call has, in any process.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub(super) fn insert(&self, call: SuspendedCall<C>) -> Result<String, getrandom::Error> {
        let state = format!("legacy-{:016x}{:016x}", getrandom::u64()?, getrandom::u64()?);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back((state.clone(), call));
        let dropped = if waiting.len() > MAX_SUSPENDED { remove_one(&mut waiting) } else { None };
        drop(waiting);
        if dropped.is_some() {
            tracing::warn!(
                target: "mrtr::client",
                max = MAX_SUSPENDED,
                "too many calls wait for answers: the oldest of a caller is cancelled"
            );
        }
        Ok(state)
    }

    /// Takes a call of `target` by its request state.
    ///
    /// # Errors
    ///
    /// If there is no such call, with the reason.
    pub(super) fn take(
        &self,
        state: &str,
        target: &Target,
    ) -> Result<SuspendedCall<C>, &'static str> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().position(|(own, _)| own == state);
        match at.filter(|at| waiting.get(*at).is_some_and(|(_, call)| call.target == *target)) {
            Some(at) => waiting.remove(at).map(|(_, call)| call).ok_or(UNKNOWN),
            None if at.is_some() => Err("the request state is of another call"),
            None => Err(UNKNOWN),
        }
    }
}

/// Removes the oldest call of the caller with the most calls.
fn remove_one<C: Connection>(waiting: &mut Waiting<C>) -> Option<(String, SuspendedCall<C>)> {
    let mut counts = HashMap::<_, usize>::new();
    for (_, call) in waiting.iter() {
        *counts.entry(&call.target.caller).or_default() += 1;
    }
    let most = counts.values().copied().max();
    let at = waiting.iter().position(|(_, call)| counts.get(&call.target.caller).copied() == most);
    waiting.remove(at?)
}

const UNKNOWN: &str = "a call with a legacy server can be resumed only by the client that began it";
