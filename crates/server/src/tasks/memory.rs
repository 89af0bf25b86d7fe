//! A task store in memory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::row::TaskRow;
use super::store::{
    Claim, Created, HeldTask, Lease, NewTask, TaskKey, TaskRecord, TaskStore, TaskStoreError,
    TaskWrite, UnixMillis, Verdict,
};

/// A [`TaskStore`] in the memory of one process: its tasks end with the process. For tests, and for
/// programs whose tasks are not worth keeping.
///
/// With [`Arc`](std::sync::Arc), several servers in one process share it. Each change is announced
/// to one of them, and the others look about once a second.
///
/// ```
/// use mrtr_server::tasks::{MemoryTaskStore, TaskPolicy};
/// use mrtr_server::{Context, Result, Server, Tool};
///
/// async fn report(cx: Context) -> Result<String> {
///     cx.step("collect", async |_| Ok("All is well.".to_owned())).await
/// }
///
/// let tool = Tool::new("report", "Writes the report", report).task(TaskPolicy::immediately());
/// let server = Server::builder("reports", "1.0.0")
///     .tool(tool)
///     .task_store(MemoryTaskStore::new(10_000))
///     .allow_anonymous()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[derive(Debug)]
pub struct MemoryTaskStore {
    capacity: usize,
    state: Mutex<State>,
    changed: Notify,
    /// The time at which `start` was read. Tokio's clock can be paused in tests.
    epoch: UnixMillis,
    start: Instant,
}

#[derive(Debug, Default)]
struct State {
    rows: HashMap<TaskKey, TaskRow>,
    due: BTreeSet<(UnixMillis, TaskKey)>,
    expiry: BTreeSet<(UnixMillis, TaskKey)>,
    /// The changes that were not read yet.
    changes: VecDeque<TaskKey>,
}

/// Maximum number of unread changes.
const MAX_CHANGES: usize = 1_024;

impl MemoryTaskStore {
    /// Creates a store for up to `capacity` tasks, including those that have ended and are kept.
    pub fn new(capacity: usize) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            capacity,
            state: Mutex::default(),
            changed: Notify::new(),
            epoch: UnixMillis::default().after(since),
            start: Instant::now(),
        }
    }

    fn now(&self) -> UnixMillis {
        self.epoch.after(self.start.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a task, if it exists, and announces the change.
    fn change<T>(&self, key: TaskKey, change: impl FnOnce(&mut TaskRow) -> T) -> Option<T> {
        let now = self.now();
        let mut state = self.lock();
        state.delete_expired(now);
        let mut row = state.remove(key)?;
        let changed = change(&mut row);
        state.insert(key, row);
        state.announce(key);
        drop(state);
        self.changed.notify_one();
        Some(changed)
    }
}

impl State {
    fn insert(&mut self, key: TaskKey, row: TaskRow) {
        self.due.extend(row.due().map(|due| (due, key)));
        self.expiry.extend(row.record().expires.map(|expires| (expires, key)));
        self.rows.insert(key, row);
    }

    fn remove(&mut self, key: TaskKey) -> Option<TaskRow> {
        let row = self.rows.remove(&key)?;
        if let Some(due) = row.due() {
            self.due.remove(&(due, key));
        }
        if let Some(expires) = row.record().expires {
            self.expiry.remove(&(expires, key));
        }
        Some(row)
    }

    fn announce(&mut self, key: TaskKey) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.push_back(key);
        }
    }

    fn delete_expired(&mut self, now: UnixMillis) {
        while let Some((expires, key)) = self.expiry.first().copied()
            && expires <= now
        {
            self.remove(key);
        }
    }
}

impl TaskStore for MemoryTaskStore {
    async fn create(&self, task: NewTask, lease: Lease) -> Result<Created, TaskStoreError> {
        let (key, now) = (task.key, self.now());
        let mut state = self.lock();
        state.delete_expired(now);
        if let Some(row) = state.rows.get(&key) {
            let is_ours = row.is_held_with(lease.id);
            let record = row.record();
            return Ok(if is_ours { Created::New(record) } else { Created::Exists(record) });
        }
        if state.rows.len() >= self.capacity {
            return Err(TaskStoreError::Full);
        }
        let row = TaskRow::create(task, lease, now);
        let record = row.record();
        state.insert(key, row);
        Ok(Created::New(record))
    }

    async fn read(&self, key: TaskKey) -> Result<Option<TaskRecord>, TaskStoreError> {
        let now = self.now();
        let mut state = self.lock();
        state.delete_expired(now);
        Ok(state.rows.get(&key).map(TaskRow::record))
    }

    async fn answer(
        &self,
        key: TaskKey,
        answers: Vec<(String, Vec<u8>)>,
    ) -> Result<(), TaskStoreError> {
        let now = self.now();
        self.change(key, |row| row.answer(answers, now));
        Ok(())
    }

    async fn cancel(&self, key: TaskKey) -> Result<(), TaskStoreError> {
        let now = self.now();
        self.change(key, |row| row.cancel(now));
        Ok(())
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<HeldTask>, TaskStoreError> {
        let Claim { service, handlers, lease, limit } = claim;
        let now = self.now();
        let mut state = self.lock();
        state.delete_expired(now);
        let is_due = |(wake, _): &&(UnixMillis, TaskKey)| *wake <= now;
        let due: Vec<_> = state.due.iter().take_while(is_due).map(|(_, key)| *key).collect();
        let mut held = Vec::new();
        for key in due {
            if held.len() == limit {
                break;
            }
            let Some(mut row) = state.remove(key) else { continue };
            if row.service == service {
                let claimed = row.claim(key, &handlers, lease, now);
                if claimed.is_none() && row.due().is_none() {
                    // It was cancelled, and its holder did not end it.
                    state.announce(key);
                }
                held.extend(claimed);
            }
            state.insert(key, row);
        }
        drop(state);
        self.changed.notify_one();
        Ok(held)
    }

    async fn write(&self, write: TaskWrite) -> Result<Verdict, TaskStoreError> {
        let now = self.now();
        // Entries alone change nothing that others see.
        let is_visible = write.view.is_some() || write.end.is_some();
        if is_visible {
            return Ok(self
                .change(write.key, |row| row.write(write, now))
                .unwrap_or(Verdict::Lost));
        }
        let mut state = self.lock();
        state.delete_expired(now);
        let Some(mut row) = state.remove(write.key) else { return Ok(Verdict::Lost) };
        let key = write.key;
        let verdict = row.write(write, now);
        state.insert(key, row);
        Ok(verdict)
    }

    async fn next_change(&self) -> TaskKey {
        loop {
            let changed = self.changed.notified();
            if let Some(key) = self.lock().changes.pop_front() {
                return key;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::store::{LeaseId, TaskHandler};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cancellation_of_a_lost_run_is_announced() {
        let store = MemoryTaskStore::new(1);
        let handler = TaskHandler { tool: "tool".to_owned(), version: 1, min_version: 1 };
        let (key, minute) = (TaskKey([1; 32]), Duration::from_mins(1));
        let task = NewTask {
            key,
            service: "service".to_owned(),
            handler: handler.clone(),
            ttl: None,
            retention: minute,
            call: Vec::new(),
            view: Vec::new(),
            entries: Vec::new(),
        };
        store.create(task, Lease { id: LeaseId([1; 16]), time: minute }).await.unwrap();
        store.cancel(key).await.unwrap();
        assert_eq!(store.next_change().await, key);
        tokio::time::advance(minute).await;

        let lease = Lease { id: LeaseId([2; 16]), time: minute };
        let service = "service".to_owned();
        let claim = Claim { service, handlers: vec![handler].into(), lease, limit: 1 };
        assert!(store.claim(claim).await.unwrap().is_empty());
        assert_eq!(store.next_change().await, key);
    }
}
