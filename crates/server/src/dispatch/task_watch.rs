//! The tasks of a subscription.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::subscription::name;
use mrtr_schema::tasks::{DetailedTask, TaskNotification};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use super::tasks::check_extension;
use crate::registry::Registry;
use crate::request_parts::RequestParts;
use crate::tasks::{TaskKey, TaskUpdates};

/// Maximum number of tasks in one subscription.
const MAX_TASKS: usize = 100;

/// The interval at which all tasks are read: a store may not announce every change.
const INTERVAL: Duration = Duration::from_secs(5);

/// The tasks of one subscription.
pub(super) enum TaskWatch {
    /// Those in the store of this server.
    Own(OwnTasks),
    /// Those of another server.
    Remote(TaskUpdates),
}

/// Tasks in the store, and what the client knows of them.
#[derive(Default)]
pub(super) struct OwnTasks {
    tasks: Vec<Watched>,
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
        parts: &Arc<RequestParts>,
    ) -> Result<Self, ErrorObject> {
        if task_ids.is_empty() {
            return Ok(Self::Own(OwnTasks::default()));
        }
        check_extension(parts)?;
        if task_ids.len() > MAX_TASKS {
            let why = format!("Invalid params: at most {MAX_TASKS} tasks in one subscription");
            return Err(ErrorObject::invalid_params(why));
        }
        Ok(match (server.tasks.as_deref(), &server.task_subscriptions) {
            (Some(service), _) => {
                let changes = Some(service.changes.subscribe());
                let tasks = read_all(server, task_ids, parts).await;
                Self::Own(OwnTasks { tasks, changes })
            }
            (None, Some(subscriptions)) => {
                Self::Remote(subscriptions.subscribe(task_ids, Arc::clone(parts)).await)
            }
            (None, None) => Self::Own(OwnTasks::default()),
        })
    }

    /// Returns the ids of the tasks.
    pub(super) fn task_ids(&self) -> Vec<String> {
        match self {
            Self::Own(own) => {
                own.tasks.iter().map(|watched| watched.current.task().task_id.clone()).collect()
            }
            Self::Remote(updates) => updates.task_ids().to_owned(),
        }
    }

    /// Sends the tasks, and again when they have changed, until the client disconnects.
    pub(super) async fn run(
        self,
        server: &Arc<Registry>,
        parts: &RequestParts,
        meta: impl Fn() -> Object,
    ) {
        match self {
            Self::Own(mut own) => own.run(server, parts, meta).await,
            Self::Remote(mut updates) => {
                while let Some(task) = updates.next().await {
                    let params = TaskNotification::new(task, meta());
                    if !parts.notifier.send_waiting(name::TASK, &params).await {
                        return;
                    }
                }
                // Other changes may follow.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Reads those of the tasks that belong to the caller.
async fn read_all(server: &Registry, task_ids: Vec<String>, parts: &RequestParts) -> Vec<Watched> {
    let mut tasks: Vec<Watched> = Vec::new();
    for task_id in task_ids {
        let key = TaskKey::of(&task_id);
        if tasks.iter().all(|watched| watched.key != key)
            && let Ok(current) = server.detailed_task(&task_id, parts).await
        {
            tasks.push(Watched { key, current, sent: None });
        }
    }
    tasks
}

impl OwnTasks {
    /// Sends the tasks, and again when they have changed, until the client disconnects. Tasks that
    /// have ended, or that no longer exist, are not watched further.
    async fn run(
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
            let Some(changes) = self.changes.as_mut().filter(|_| !self.tasks.is_empty()) else {
                return std::future::pending().await;
            };
            let changed_task = loop {
                match timeout_at(next_read, changes.recv()).await {
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
                match server.current().detailed_task(&task_id, parts).await {
                    Ok(current) => watched.current = current,
                    Err(error) if error.data.is_none() => gone.push(watched.key),
                    // The store is unavailable.
                    Err(_) => {}
                }
            }
            self.tasks.retain(|watched| !gone.contains(&watched.key));
        }
    }
}
