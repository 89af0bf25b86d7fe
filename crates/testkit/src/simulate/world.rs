//! The outside world: it remembers what steps did to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use mrtr_server::Context;

/// Which request a leg answers, and whether that came with a state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg {
    pub(super) number: u64,
    pub(super) with_state: bool,
}

/// One run of a step.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) key: String,
    pub(super) leg: u64,
    /// If the leg came with a state.
    pub(super) idempotency_key: Option<String>,
}

/// What became of a flow, seen from outside.
#[derive(Debug, Clone, Default)]
pub(super) struct Past {
    pub(super) runs: Vec<Run>,
    /// Which answers a handler went on with, by what was asked, and on which leg it first did.
    pub(super) read: HashMap<String, u64>,
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct World(Arc<Mutex<HashMap<u64, Past>>>);

impl World {
    pub(super) fn ran(&self, flow: u64, key: &str, idempotency_key: &str, cx: &Context) {
        let leg = cx.parts().extensions().get::<Leg>().copied();
        let run = Run {
            key: key.to_owned(),
            leg: leg.map_or(u64::MAX, |leg| leg.number),
            idempotency_key: leg
                .is_some_and(|leg| leg.with_state)
                .then(|| idempotency_key.to_owned()),
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(flow).or_default().runs.push(run);
    }

    /// The handler goes on with the answer to this.
    pub(super) fn read(&self, flow: u64, message: &str, cx: &Context) {
        let leg = cx.parts().extensions().get::<Leg>().map_or(u64::MAX, |leg| leg.number);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(flow).or_default().read.entry(message.to_owned()).or_insert(leg);
    }

    /// What was done for a flow so far.
    pub(super) fn peek(&self, flow: u64) -> Past {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&flow)
            .cloned()
            .unwrap_or_default()
    }

    /// What was done for a flow; it is forgotten by this.
    pub(super) fn take(&self, flow: u64) -> Past {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&flow).unwrap_or_default()
    }
}
