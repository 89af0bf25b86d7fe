//! Updates about tasks for subscriptions, also of tasks that another server keeps.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use mrtr_schema::tasks::DetailedTask;

use crate::handler::BoxFuture;
use crate::request_parts::RequestParts;

/// Updates for a client about tasks that another server keeps. Returned by the handler of
/// [`ServerBuilder::task_subscriptions`](crate::ServerBuilder::task_subscriptions).
pub struct TaskUpdates {
    task_ids: Vec<String>,
    tasks: Box<dyn TaskSource>,
}

/// The future of a task that has changed. Resolves to `None` if no watched task can change any
/// more, or if the server shuts down.
pub(crate) type NextTaskFuture<'a> =
    Pin<Box<dyn Future<Output = Option<DetailedTask>> + Send + 'a>>;

/// A source of updates about watched tasks.
pub(crate) trait TaskSource: Send {
    /// Waits for the next task that has changed.
    fn next(&mut self) -> NextTaskFuture<'_>;
}

impl<S: Stream<Item = DetailedTask> + Send> TaskSource for Pin<Box<S>> {
    fn next(&mut self) -> NextTaskFuture<'_> {
        Box::pin(poll_fn(|cx| self.as_mut().poll_next(cx)))
    }
}

impl TaskUpdates {
    /// Creates updates about `task_ids`, to which the client is now subscribed. The stream must
    /// yield each of these tasks once at first, and again whenever it has changed.
    ///
    /// The stream is dropped when the client unsubscribes. Its end does not end the subscription.
    pub fn new(
        task_ids: Vec<String>,
        tasks: impl Stream<Item = DetailedTask> + Send + 'static,
    ) -> Self {
        Self::watched(task_ids, Box::pin(tasks))
    }

    /// Creates updates about watched tasks.
    pub(crate) fn watched(task_ids: Vec<String>, tasks: impl TaskSource + 'static) -> Self {
        Self { task_ids, tasks: Box::new(tasks) }
    }

    pub(crate) fn task_ids(&self) -> &[String] {
        &self.task_ids
    }

    /// Waits for the next task that has changed.
    pub(crate) fn next(&mut self) -> NextTaskFuture<'_> {
        self.tasks.next()
    }
}

impl fmt::Debug for TaskUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskUpdates").field("task_ids", &self.task_ids).finish_non_exhaustive()
    }
}

type Subscribe = dyn Fn(Vec<String>, Arc<RequestParts>) -> BoxFuture<TaskUpdates> + Send + Sync;

/// The handler of subscriptions to tasks.
pub(crate) struct TaskSubscriptions(Box<Subscribe>);

impl TaskSubscriptions {
    pub(crate) fn new<F, Fut>(handler: F) -> Self
    where
        F: Fn(Vec<String>, Arc<RequestParts>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskUpdates> + Send + 'static,
    {
        Self(Box::new(move |task_ids, caller| Box::pin(handler(task_ids, caller))))
    }

    pub(crate) fn subscribe(
        &self,
        task_ids: Vec<String>,
        caller: Arc<RequestParts>,
    ) -> BoxFuture<TaskUpdates> {
        (self.0)(task_ids, caller)
    }
}
