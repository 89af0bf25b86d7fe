//! The tasks of a subscription.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::json::from_value;
use mrtr_schema::jsonrpc::{ErrorObject, code};
use mrtr_schema::subscription::name;
use mrtr_schema::tasks::{DetailedTask, GetTaskResult, TaskNotification};
use mrtr_schema::{Object, method};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::tasks::check_extension;
use crate::registry::{Method, Registry};
use crate::request_parts::RequestParts;
use crate::tasks::TaskKey;

/// Maximum number of tasks in one subscription.
const MAX_TASKS: usize = 100;

/// The interval at which all tasks are read: a store may not announce every change, and a method of
/// the server's own announces none.
const INTERVAL: Duration = Duration::from_secs(5);

/// The tasks of one subscription, and what its client knows of them.
pub(super) struct TaskWatch {
    tasks: Vec<Watched>,
    /// The tasks that change, if the server has a store of them.
    changes: Option<Receiver<TaskKey>>,
}

struct Watched {
    key: TaskKey,
    current: DetailedTask,
    /// The JSON that was sent last.
    sent: Option<String>,
}

impl TaskWatch {
    /// Begins to watch those of the tasks that belong to the caller.
    ///
    /// # Errors
    ///
    /// An error response, if the client does not declare the extension, or asks for too many.
    pub(super) async fn start(
        server: &Registry,
        task_ids: Vec<String>,
        parts: &RequestParts,
    ) -> Result<Self, ErrorObject> {
        let mut tasks: Vec<Watched> = Vec::new();
        if !task_ids.is_empty() {
            check_extension(parts)?;
        }
        if task_ids.len() > MAX_TASKS {
            let why = format!("Invalid params: at most {MAX_TASKS} tasks in one subscription");
            return Err(ErrorObject::invalid_params(why));
        }
        let service = server.tasks.as_deref().filter(|_| !task_ids.is_empty());
        let changes = service.map(|service| service.changes.subscribe());
        for task_id in task_ids {
            let key = TaskKey::of(&task_id);
            if tasks.iter().all(|watched| watched.key != key)
                && let Ok(current) = server.task_to_watch(&task_id, parts).await
            {
                tasks.push(Watched { key, current, sent: None });
            }
        }
        Ok(Self { tasks, changes })
    }

    /// Returns the ids of the tasks.
    pub(super) fn task_ids(&self) -> Vec<String> {
        self.tasks.iter().map(|watched| watched.current.task().task_id.clone()).collect()
    }

    /// Sends the tasks, and again when they have changed, until the client disconnects. Tasks that
    /// have ended, or that no longer exist, are not watched further.
    pub(super) async fn run(
        &mut self,
        server: &Arc<Registry>,
        parts: &RequestParts,
        meta: impl Fn() -> Object,
    ) {
        let mut next_read = Instant::now() + INTERVAL;
        loop {
            for watched in &mut self.tasks {
                let params = TaskNotification::new(watched.current.clone(), meta());
                let json = serde_json::to_string(&params).ok();
                if watched.sent != json && !parts.notifier.send_waiting(name::TASK, &params).await {
                    return;
                }
                watched.sent = json;
            }
            self.tasks.retain(|watched| !watched.current.task().status.is_terminal());
            if self.tasks.is_empty() {
                return std::future::pending().await;
            }
            let changed_task = loop {
                match timeout_at(next_read, next_change(&mut self.changes)).await {
                    Ok(Ok(key)) if self.tasks.iter().all(|watched| watched.key != key) => {}
                    Ok(Ok(key)) => break Some(key),
                    // Changes were missed, so everything may have changed.
                    Ok(Err(RecvError::Lagged(_))) | Err(_) => break None,
                    Ok(Err(RecvError::Closed)) => return,
                }
            };
            if changed_task.is_none() {
                next_read = Instant::now() + INTERVAL;
            }
            let mut gone = Vec::new();
            for watched in &mut self.tasks {
                if changed_task.is_some_and(|key| key != watched.key) {
                    continue;
                }
                let task_id = watched.current.task().task_id.clone();
                match server.current().task_to_watch(&task_id, parts).await {
                    Ok(current) => watched.current = current,
                    Err(error) if error.code == code::INVALID_PARAMS => gone.push(watched.key),
                    // The store is unavailable.
                    Err(_) => {}
                }
            }
            self.tasks.retain(|watched| !gone.contains(&watched.key));
        }
    }
}

/// Waits for a task to change. Without a store, none does.
async fn next_change(changes: &mut Option<Receiver<TaskKey>>) -> Result<TaskKey, RecvError> {
    match changes {
        Some(changes) => changes.recv().await,
        None => std::future::pending().await,
    }
}

impl Registry {
    /// Reads a task of the caller, from the store or with the server's own method `tasks/get`.
    async fn task_to_watch(
        &self,
        task_id: &str,
        parts: &RequestParts,
    ) -> Result<DetailedTask, ErrorObject> {
        let Some(Method::Extension(get)) = self.methods.get(method::TASKS_GET) else {
            return self.detailed_task(task_id, parts).await;
        };
        let params = Object::from_iter([("taskId".to_owned(), task_id.into())]);
        let result = self.call_method(get, params, parts.without_notifications()).await?;
        match from_value::<GetTaskResult>(&result.into()) {
            Ok(found) if found.task.task().task_id == task_id => Ok(found.task),
            _ => {
                tracing::error!(target: "mrtr::tasks", "`tasks/get` returned no task, or another");
                Err(ErrorObject::internal("Internal error"))
            }
        }
    }
}
