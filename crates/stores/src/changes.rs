//! The changes of tasks that the server has not read yet.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use mrtr_server::tasks::TaskKey;
use tokio::sync::Notify;

/// Maximum number of unread changes. Later ones are dropped.
const MAX_UNREAD: usize = 1_024;

/// A bounded queue of changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    unread: Mutex<VecDeque<TaskKey>>,
    added: Notify,
}

impl Changes {
    pub(crate) fn add(&self, key: TaskKey) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if unread.len() < MAX_UNREAD && unread.back() != Some(&key) {
            unread.push_back(key);
        }
        drop(unread);
        self.added.notify_one();
    }

    /// Waits for the next change.
    pub(crate) async fn next(&self) -> TaskKey {
        loop {
            let added = self.added.notified();
            let next = self.unread.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(key) = next {
                return key;
            }
            added.await;
        }
    }
}
