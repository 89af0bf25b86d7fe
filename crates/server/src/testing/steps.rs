//! Which steps were begun.

use std::sync::{Arc, Mutex, PoisonError};

/// A step that was begun, whatever came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepBegun {
    /// Its key.
    pub key: String,
    /// What it handed to the outside world.
    pub idempotency_key: String,
}

/// Comes with a request, and hears of its steps.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepLog(Arc<Mutex<Vec<StepBegun>>>);

impl StepLog {
    pub(crate) fn begun(&self, key: &str, idempotency_key: &str) {
        let begun = StepBegun { key: key.to_owned(), idempotency_key: idempotency_key.to_owned() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(begun);
    }

    pub(super) fn all(&self) -> Vec<StepBegun> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
