//! The tasks of a server: its store, and the runs of this process.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast};

use super::store::{Claim, ErasedTaskStore, Lease, LeaseId, TaskHandler, TaskKey, TaskStoreError};

/// The timeout of one operation of the store within a request.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of changes that wait for one slow subscription.
const MAX_CHANGES: usize = 256;

/// Maximum number of unconfirmed creations that are cancelled with more than one attempt.
const MAX_UNCONFIRMED: usize = 1_024;

/// The tasks of a server.
pub(crate) struct TaskService {
    pub(crate) store: Box<dyn ErasedTaskStore>,
    /// The name of the server: the tasks of others in the same store are not its own.
    pub(crate) name: String,
    /// What the parts of its tasks are bound to.
    pub(crate) binding: String,
    /// The time for which a replica that has died keeps its tasks.
    pub(crate) lease: Duration,
    /// The changes of tasks at all replicas, as far as the store announces them.
    pub(crate) changes: broadcast::Sender<TaskKey>,
    /// The tasks that may run in this process at the same time.
    permits: Arc<Semaphore>,
    /// The unconfirmed creations that may be in the course of being cancelled at the same time.
    pub(crate) unconfirmed: Semaphore,
    /// The runs of this process.
    running: Mutex<HashMap<TaskKey, Arc<Notify>>>,
}

impl TaskService {
    pub(crate) fn new(
        store: Box<dyn ErasedTaskStore>,
        name: String,
        lease: Duration,
        max_running: usize,
    ) -> Self {
        Self {
            store,
            binding: format!("tasks of {name}"),
            name,
            lease,
            changes: broadcast::Sender::new(MAX_CHANGES),
            permits: Arc::new(Semaphore::new(max_running.min(Semaphore::MAX_PERMITS))),
            unconfirmed: Semaphore::new(MAX_UNCONFIRMED),
            running: Mutex::default(),
        }
    }

    /// Creates a lease with a random identity.
    ///
    /// # Errors
    ///
    /// If the operating system has no random numbers.
    pub(crate) fn new_lease(&self) -> Result<Lease, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        Ok(Lease { id: LeaseId(id), time: self.lease })
    }

    /// Returns the part of a lease after which its holder stops, since its clock and that of the
    /// store may differ in speed, and an operation takes time.
    pub(crate) fn usable_lease(&self) -> Duration {
        self.lease.mul_f64(0.9)
    }

    /// Creates a claim of up to `limit` tasks that one of the handlers can continue.
    pub(super) fn claim_of(
        &self,
        handlers: Arc<[TaskHandler]>,
        lease: Lease,
        limit: usize,
    ) -> Claim {
        Claim { service: self.name.clone(), handlers, lease, limit }
    }

    /// Takes a permit to run a task, if one is free.
    pub(crate) fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits until a task may run, and takes up to `limit` permits: at least one, but at most half
    /// of the free ones. The others are for calls that become tasks meanwhile.
    pub(super) async fn permits(&self, limit: usize) -> Vec<OwnedSemaphorePermit> {
        let mut permits = Vec::new();
        permits.extend(Arc::clone(&self.permits).acquire_owned().await.ok());
        let limit = limit.min(self.permits.available_permits().div_ceil(2));
        while permits.len() < limit
            && let Some(permit) = self.try_permit()
        {
            permits.push(permit);
        }
        permits
    }

    /// Registers a run: changes of its task wake the returned notification. It replaces an earlier
    /// run, which may have lost its lease without having noticed.
    pub(super) fn register(&self, key: TaskKey) -> Arc<Notify> {
        let hint = Arc::default();
        self.runs().insert(key, Arc::clone(&hint));
        hint
    }

    /// Ends the registration of a run, unless another one has replaced it.
    pub(super) fn unregister(&self, key: TaskKey, hint: &Arc<Notify>) {
        let mut runs = self.runs();
        if runs.get(&key).is_some_and(|registered| Arc::ptr_eq(registered, hint)) {
            runs.remove(&key);
        }
    }

    /// Announces a change to the run of the task, and to subscriptions.
    pub(super) fn announce(&self, key: TaskKey) {
        if let Some(run) = self.runs().get(&key) {
            run.notify_one();
        }
        // Sending fails if there are no subscriptions, which is not an error.
        let _ = self.changes.send(key);
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<TaskKey, Arc<Notify>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The `data.reason` of the error response of an unavailable store.
const UNAVAILABLE: &str = "task_store_unavailable";

/// The `data.reason` of the error response of a full store.
const FULL: &str = "task_store_full";

/// Returns true if the error is that of an unavailable or a full store.
pub(crate) fn is_unavailable(error: &ErrorObject) -> bool {
    has_reason(error, UNAVAILABLE) || is_full(error)
}

/// Returns true if the error is that of a full store: nothing was created.
pub(crate) fn is_full(error: &ErrorObject) -> bool {
    has_reason(error, FULL)
}

fn has_reason(error: &ErrorObject, reason: &str) -> bool {
    error.data.as_ref().is_some_and(|data| data.get("reason") == Some(&reason.into()))
}

/// Awaits an operation of the store within a request.
///
/// # Errors
///
/// An error response that asks the client to try again.
pub(crate) async fn within_request<T>(
    operation: impl Future<Output = Result<T, TaskStoreError>>,
) -> Result<T, ErrorObject> {
    let done = tokio::time::timeout(STORE_TIMEOUT, operation).await;
    let done = done.unwrap_or_else(|_| {
        let why = format!("no reply within {STORE_TIMEOUT:?}");
        Err(TaskStoreError::Unavailable(why.into()))
    });
    done.map_err(|error| {
        tracing::error!(target: "mrtr::tasks", %error, "an operation of the task store failed");
        let reason = if matches!(error, TaskStoreError::Full) { FULL } else { UNAVAILABLE };
        ErrorObject::internal("The task store is unavailable; try again")
            .with_data(json!({ "reason": reason }))
    })
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::super::MemoryTaskStore;
    use super::*;

    #[test]
    fn run_that_has_lost_its_task_does_not_end_the_registration_of_the_next() {
        let store = Box::new(MemoryTaskStore::new(1));
        let service = TaskService::new(store, "server".to_owned(), Duration::from_secs(10), 1);
        let key = TaskKey([1; 32]);
        let lost = service.register(key);
        let hint = service.register(key);
        service.unregister(key, &lost);
        service.announce(key);
        let is_notified = |run: &Notify| {
            pin!(run.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(is_notified(&hint) && !is_notified(&lost));
        service.unregister(key, &hint);
        assert!(service.runs().is_empty());
    }
}
