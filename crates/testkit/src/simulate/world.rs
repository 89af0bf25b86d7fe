//! The outside world: a record of the side effects of steps.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_server::Context;

/// Marks a request with its number, and with whether it carried a state.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestMark {
    pub(super) number: u64,
    pub(super) with_state: bool,
}

/// One run of a step.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) key: String,
    pub(super) request: u64,
    /// `None` if the request carried no state.
    pub(super) idempotency_key: Option<String>,
    /// True if the handler of a task had gone on with the result of an earlier run.
    pub(super) is_repeated: bool,
}

/// The history of a call, as seen from outside.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) runs: Vec<Run>,
    /// For each message, the number of the first request in which a handler used the answer.
    pub(super) read: HashMap<String, u64>,
    /// True if the call has become a task.
    is_task: bool,
    /// The steps of a task with whose results a handler went on.
    done: HashSet<String>,
}

/// Histories by call. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct World(Arc<Mutex<HashMap<u64, History>>>);

impl World {
    pub(super) fn ran(&self, call: u64, key: &str, idempotency_key: &str, cx: &Context) {
        let mark = cx.parts().extensions().get::<RequestMark>().copied();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let history = all.entry(call).or_default();
        // Other replicas continue a task without the request.
        let has_stable_key = mark.map_or(history.is_task, |mark| mark.with_state);
        let run = Run {
            key: key.to_owned(),
            request: mark.map_or(u64::MAX, |mark| mark.number),
            idempotency_key: has_stable_key.then(|| idempotency_key.to_owned()),
            is_repeated: history.done.contains(key),
        };
        history.runs.push(run);
    }

    /// Records that the handler continues with the result of a step.
    pub(super) fn done(&self, call: u64, key: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let history = all.entry(call).or_default();
        if history.is_task {
            history.done.insert(key.to_owned());
        }
    }

    /// Records that the call has become a task.
    pub(super) fn became_task(&self, call: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(call).or_default().is_task = true;
    }

    /// Records that the handler continues with the answer to `message`.
    pub(super) fn read(&self, call: u64, message: &str, cx: &Context) {
        let mark = cx.parts().extensions().get::<RequestMark>();
        let request = mark.map_or(u64::MAX, |mark| mark.number);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(call).or_default().read.entry(message.to_owned()).or_insert(request);
    }

    /// Returns the history of a call so far.
    pub(super) fn peek(&self, call: u64) -> History {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&call)
            .cloned()
            .unwrap_or_default()
    }

    /// Removes and returns the history of a call.
    pub(super) fn take(&self, call: u64) -> History {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&call).unwrap_or_default()
    }
}
