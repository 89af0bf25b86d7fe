//! Calls that wait for the client's answers. They cannot leave this process.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use mrtr_schema::input::InputResponses;
use mrtr_schema::jsonrpc::RequestId;

use super::connection::Connection;
use super::running_call::RunningCall;

/// How many calls may wait. A further one cancels the oldest, whose caller has most likely gone.
const MAX_SUSPENDED: usize = 256;

/// A call that stands at questions of the server.
pub(super) struct SuspendedCall<C: Connection> {
    pub(super) running: RunningCall<C>,
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
    calls: Mutex<Calls<C>>,
}

struct Calls<C: Connection> {
    count: u64,
    waiting: VecDeque<(String, SuspendedCall<C>)>,
}

impl<C: Connection> Default for SuspendedCalls<C> {
    fn default() -> Self {
        Self { calls: Mutex::new(Calls { count: 0, waiting: VecDeque::new() }) }
    }
}

impl<C: Connection> SuspendedCalls<C> {
    /// Keeps a call, and returns its request state.
    pub(super) fn insert(&self, call: SuspendedCall<C>) -> String {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.count += 1;
        let state = format!("legacy session, call {}", calls.count);
        calls.waiting.push_back((state.clone(), call));
        let oldest =
            if calls.waiting.len() > MAX_SUSPENDED { calls.waiting.pop_front() } else { None };
        drop(calls);
        drop(oldest);
        state
    }

    /// Takes a call by its request state.
    pub(super) fn take(&self, state: &str) -> Option<SuspendedCall<C>> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let at = calls.waiting.iter().position(|(own, _)| own == state)?;
        calls.waiting.remove(at).map(|(_, call)| call)
    }
}
