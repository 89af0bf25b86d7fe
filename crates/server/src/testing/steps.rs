//! The record of executed steps.

use std::sync::{Arc, Mutex, PoisonError};

/// One execution of a step, successful or not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepExecution {
    /// The key of the step.
    pub key: String,
    /// The [idempotency key](crate::Step::idempotency_key) of this execution.
    pub idempotency_key: String,
}

/// A request extension that records the steps of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepLog(Arc<Mutex<Vec<StepExecution>>>);

impl StepLog {
    pub(crate) fn record(&self, key: &str, idempotency_key: &str) {
        let execution =
            StepExecution { key: key.to_owned(), idempotency_key: idempotency_key.to_owned() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(execution);
    }

    pub(super) fn all(&self) -> Vec<StepExecution> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
