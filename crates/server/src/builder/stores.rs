//! The stores of a server, and its tasks.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::Object;
use mrtr_schema::tasks::EXTENSION;

use super::ServerBuilder;
use crate::build_error::BuildError;
use crate::dispatch::{detach, task_watch, tasks};
use crate::registry::TaskFunctions;
use crate::request_parts::RequestParts;
use crate::single_use::SingleUseStore;
use crate::tasks::{TaskService, TaskStore, TaskSubscriptions, TaskUpdates, run_tasks};

const TASK_FUNCTIONS: TaskFunctions =
    TaskFunctions { call: detach::call, subscribe: task_watch::subscribe, run: run_tasks };

impl ServerBuilder {
    /// Sets the store of used request states, for handlers with
    /// [`single_use`](crate::Tool::single_use).
    pub fn single_use_store(mut self, store: impl SingleUseStore) -> Self {
        self.store = Some(Box::new(store));
        self
    }

    /// Returns true if the server has a [task store](Self::task_store).
    pub fn has_task_store(&self) -> bool {
        self.task_store.is_some()
    }

    /// Sets the store of [tasks](crate::tasks), and declares their extension.
    ///
    /// [`Server::run_tasks`](crate::Server::run_tasks) continues the tasks of other replicas, and
    /// those that were answered; `mrtr::serve` calls it.
    pub fn task_store(mut self, store: impl TaskStore) -> Self {
        self.task_store = Some((Box::new(store), &TASK_FUNCTIONS));
        self.extension(EXTENSION, Object::new()).with(|group| group.serving(tasks::METHODS))
    }

    /// Sets the time after which the tasks of a replica that has died are continued by another one.
    /// Default: 10 s. Less than 1 s or more than 24 h is a build error.
    ///
    /// A replica renews the lease of each running task three times in this time. A shorter time
    /// costs more writes, and a replica that does not reach the store for as long loses its tasks.
    pub fn task_lease(mut self, time: Duration) -> Self {
        self.task_lease = time;
        self
    }

    /// Sets the maximum number of tasks that run in this process at the same time. Default: 256.
    /// Zero is a build error. Tasks that wait for answers do not count.
    pub fn max_running_tasks(mut self, tasks: usize) -> Self {
        self.max_running_tasks = tasks;
        self
    }

    /// Sets the handler of subscriptions to tasks that another server keeps, for a server that
    /// forwards `tasks/get` by a [`method`](ServerBuilder::method). Declare the
    /// [`extension`](ServerBuilder::extension), too. Has no effect if there is a
    /// [`task_store`](ServerBuilder::task_store).
    ///
    /// The handler gets the request and the ids that the client subscribes to, at most 100. It must
    /// leave out the tasks of other callers. The subscription is acknowledged when the handler
    /// returns. If the client disconnects first, the handler's future is dropped.
    pub fn task_subscriptions<F, Fut>(mut self, subscribe: F) -> Self
    where
        F: Fn(Vec<String>, Arc<RequestParts>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskUpdates> + Send + 'static,
    {
        self.task_subscriptions = Some(TaskSubscriptions::new(subscribe));
        self
    }

    /// Returns the task service and its functions, or `None` without a task store.
    pub(super) fn task_service(
        &mut self,
    ) -> Result<Option<(Box<TaskService>, &'static TaskFunctions)>, BuildError> {
        let Some((store, functions)) = self.task_store.take() else { return Ok(None) };
        let leases = Duration::from_secs(1)..=Duration::from_hours(24);
        if !leases.contains(&self.task_lease) || self.max_running_tasks == 0 {
            return Err(BuildError::TaskLimits);
        }
        let name = self.info.name.clone();
        let (lease, max_running) = (self.task_lease, self.max_running_tasks);
        let service = TaskService::new(store, name, lease, max_running);
        Ok(Some((Box::new(service), functions)))
    }
}
