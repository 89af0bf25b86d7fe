//! The record of the steps that ran.

use std::sync::{Arc, Mutex, PoisonError};

/// One run of a step, successful or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepRun {
    /// The key of the step.
    pub key: String,
    /// The idempotency key that this run gave to external systems.
    pub idempotency_key: String,
}

/// A request extension that records the steps of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepLog(Arc<Mutex<Vec<StepRun>>>);

impl StepLog {
    pub(crate) fn record(&self, key: &str, idempotency_key: &str) {
        let run = StepRun { key: key.to_owned(), idempotency_key: idempotency_key.to_owned() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(run);
    }

    pub(super) fn all(&self) -> Vec<StepRun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
