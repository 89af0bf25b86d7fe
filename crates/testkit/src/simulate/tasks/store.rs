//! A task store as one replica sees it: slow, faulty, and at times out of reach.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr_server::tasks::{
    Claim, Created, HeldTask, Lease, MemoryTaskStore, NewTask, TaskKey, TaskRecord, TaskStore,
    TaskStoreError, TaskWrite, Verdict,
};

use crate::random::Random;

/// The faults of a store. All replicas share them.
#[derive(Debug)]
pub(super) struct Faults {
    random: Mutex<Random>,
    /// Percentage of operations with a fault.
    percentage: u64,
    /// The number of faults that are left, so that every call ends.
    left: AtomicU32,
    /// The number of faults.
    pub(super) count: AtomicU32,
    /// True if the creation of a task may be reported as failed although it was performed. A client
    /// that repeats its first request then has two tasks.
    pub(super) may_lose_creation: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The operation is not performed.
    Fails,
    /// The operation is performed, and reported as failed.
    Lost,
    /// The operation, or its reply, takes this time.
    Slow(Duration),
    SlowReply(Duration),
}

impl Faults {
    pub(super) fn new(random: Random, percentage: u64, most: u32) -> Self {
        Self {
            random: Mutex::new(random),
            percentage,
            left: AtomicU32::new(most),
            count: AtomicU32::new(0),
            may_lose_creation: AtomicBool::new(false),
        }
    }

    fn next(&self) -> Fault {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if random.below(100) >= self.percentage || self.left.load(Ordering::Relaxed) == 0 {
            return Fault::None;
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        let time = Duration::from_millis(random.below(4_000));
        match random.below(4) {
            0 => Fault::Fails,
            1 => Fault::Lost,
            2 => Fault::Slow(time),
            _ => Fault::SlowReply(time),
        }
    }
}

/// A store as one replica sees it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    store: Arc<MemoryTaskStore>,
    faults: Arc<Faults>,
    is_cut: Arc<AtomicBool>,
}

fn failed<T>(why: &str) -> Result<T, TaskStoreError> {
    Err(TaskStoreError::Unavailable(why.into()))
}

impl Connection {
    pub(super) fn new(store: &Arc<MemoryTaskStore>, faults: &Arc<Faults>) -> Self {
        let (store, faults) = (Arc::clone(store), Arc::clone(faults));
        Self { store, faults, is_cut: Arc::default() }
    }

    /// Cuts the replica off from the store, or restores the connection.
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    async fn perform<T>(
        &self,
        fault: Fault,
        operation: impl Future<Output = Result<T, TaskStoreError>>,
    ) -> Result<T, TaskStoreError> {
        if let Fault::Slow(time) = fault {
            tokio::time::sleep(time).await;
        }
        if fault == Fault::Fails || self.is_cut.load(Ordering::Relaxed) {
            return failed("not performed");
        }
        let done = operation.await;
        if let Fault::SlowReply(time) = fault {
            tokio::time::sleep(time).await;
        }
        if fault == Fault::Lost || self.is_cut.load(Ordering::Relaxed) {
            return failed("performed");
        }
        done
    }
}

impl TaskStore for Connection {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        let operation = TaskStore::create(&self.store, task, lease);
        if self.faults.may_lose_creation.load(Ordering::Relaxed) {
            return self.perform(self.faults.next(), operation).await;
        }
        if self.is_cut.load(Ordering::Relaxed) { failed("cut off") } else { operation.await }
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        self.perform(self.faults.next(), TaskStore::read(&self.store, key)).await
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        self.perform(self.faults.next(), TaskStore::answer(&self.store, key, answers)).await
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        self.perform(self.faults.next(), TaskStore::cancel(&self.store, key)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        self.perform(self.faults.next(), TaskStore::claim(&self.store, claim)).await
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        self.perform(self.faults.next(), TaskStore::write(&self.store, write)).await
    }

    async fn next_change(&self) -> TaskKey {
        // All hints are lost: each replica looks on its own.
        std::future::pending().await
    }
}
