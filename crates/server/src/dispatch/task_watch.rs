//! The tasks of a subscription.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::tasks::DetailedTask;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::panics::catch_panics;
use super::tasks::check_extension;
use crate::registry::{Constants, Registry, TaskSubscription};
use crate::request_parts::RequestParts;
use crate::tasks::{NextTaskFuture, TaskKey, TaskSource, TaskUpdates, is_unavailable};

/// Maximum number of tasks in one subscription.
const MAX_TASKS: usize = 100;

/// The interval at which all tasks are read: a store may not announce every change.
const INTERVAL: Duration = Duration::from_secs(5);

/// Tasks in the store of this server.
struct OwnTasks {
    server: Arc<Constants>,
    caller: Arc<RequestParts>,
    tasks: Vec<Watched>,
    changes: Option<Receiver<TaskKey>>,
    next_read: Instant,
}

struct Watched {
    key: TaskKey,
    current: DetailedTask,
    is_unsent: bool,
}

impl Registry {
    /// Subscribes the caller to the given tasks, except those of other callers.
    ///
    /// # Errors
    ///
    /// An error response, if the client does not declare the extension, if it asks for too many, or
    /// if the store is unavailable.
    pub(super) async fn subscribe_to_tasks(
        self: &Arc<Self>,
        task_ids: Vec<String>,
        caller: &Arc<RequestParts>,
    ) -> Result<Option<TaskUpdates>, ErrorObject> {
        if task_ids.is_empty() {
            return Ok(None);
        }
        check_extension(caller)?;
        if task_ids.len() > MAX_TASKS {
            let why = format!("Invalid params: at most {MAX_TASKS} tasks in one subscription");
            return Err(ErrorObject::invalid_params(why));
        }
        let caller = Arc::clone(caller);
        let updates = match (self.task_functions, &self.task_subscriptions) {
            (Some(own), _) => (own.subscribe)(Arc::clone(self), task_ids, caller),
            (None, Some(others)) => {
                return catch_panics(|| others.subscribe(task_ids, caller)).await.map(Some);
            }
            (None, None) => return Ok(None),
        };
        updates.await.map(Some)
    }
}

/// Subscribes the caller to the given tasks in the store, except those of other callers.
pub(crate) fn subscribe(
    server: Arc<Registry>,
    task_ids: Vec<String>,
    caller: Arc<RequestParts>,
) -> TaskSubscription {
    Box::pin(async move {
        // Subscribed before the tasks are read, so that no change after it is missed.
        let changes = server.tasks.as_deref().map(|service| service.changes.subscribe());
        let next_read = Instant::now() + INTERVAL;
        let tasks = read_all(&server, task_ids, &caller).await?;
        let granted = tasks.iter().map(|watched| watched.current.task().task_id.clone()).collect();
        let server = Arc::clone(&server.constants);
        let own = OwnTasks { server, caller, tasks, changes, next_read };
        Ok(TaskUpdates::watched(granted, own))
    })
}

/// Reads those of the tasks that belong to the caller.
///
/// # Errors
///
/// An error response, if the store is unavailable, because the owner of the tasks cannot be
/// determined.
async fn read_all(
    server: &Registry,
    task_ids: Vec<String>,
    caller: &RequestParts,
) -> Result<Vec<Watched>, ErrorObject> {
    let mut tasks: Vec<Watched> = Vec::new();
    for task_id in task_ids {
        let key = TaskKey::of(&task_id);
        if tasks.iter().any(|watched| watched.key == key) {
            continue;
        }
        match server.detailed_task(&task_id, caller).await {
            Ok(current) => tasks.push(Watched { key, current, is_unsent: true }),
            Err(error) if is_unavailable(&error) => return Err(error),
            Err(_) => {}
        }
    }
    Ok(tasks)
}

impl TaskSource for OwnTasks {
    fn next(&mut self) -> NextTaskFuture<'_> {
        Box::pin(async {
            loop {
                if let Some(task) = self.take_unsent() {
                    return Some(task);
                }
                if self.tasks.is_empty() {
                    return None;
                }
                self.read_changes().await?;
            }
        })
    }
}

impl OwnTasks {
    /// Returns a task whose current state has not been sent to the client. A task that has ended is
    /// not watched further.
    fn take_unsent(&mut self) -> Option<DetailedTask> {
        let position = self.tasks.iter().position(|watched| watched.is_unsent)?;
        let watched = self.tasks.get_mut(position)?;
        watched.is_unsent = false;
        if watched.current.task().status.is_terminal() {
            return Some(self.tasks.remove(position).current);
        }
        Some(watched.current.clone())
    }

    /// Waits for a change, and reads the tasks that may have changed. Tasks that no longer exist
    /// are not watched further. Returns `None` if the server shuts down.
    async fn read_changes(&mut self) -> Option<()> {
        let changed = self.next_change().await?;
        let mut gone = Vec::new();
        for watched in &mut self.tasks {
            if changed.is_some_and(|key| key != watched.key) {
                continue;
            }
            let task_id = &watched.current.task().task_id;
            match self.server.registry()?.detailed_task(task_id, &self.caller).await {
                Ok(current) => {
                    watched.is_unsent |= json(&current) != json(&watched.current);
                    watched.current = current;
                }
                Err(error) if is_unavailable(&error) => {}
                Err(_) => gone.push(watched.key),
            }
        }
        self.tasks.retain(|watched| !gone.contains(&watched.key));
        Some(())
    }

    /// Waits for a change, and returns the key of the task. `Some(None)` means that any watched
    /// task may have changed; `None`, that the server shuts down.
    async fn next_change(&mut self) -> Option<Option<TaskKey>> {
        let changes = self.changes.as_mut()?;
        loop {
            match timeout_at(self.next_read, changes.recv()).await {
                Ok(Ok(key)) if self.tasks.iter().all(|watched| watched.key != key) => {}
                Ok(Ok(key)) => return Some(Some(key)),
                Ok(Err(RecvError::Closed)) => return None,
                // Changes were missed, so everything may have changed.
                Ok(Err(RecvError::Lagged(_))) | Err(_) => {
                    self.next_read = Instant::now() + INTERVAL;
                    return Some(None);
                }
            }
        }
    }
}

fn json(task: &DetailedTask) -> Option<String> {
    serde_json::to_string(task).ok()
}
