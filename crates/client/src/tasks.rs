//! Tasks: calls that the server completes after their request (extension
//! `io.modelcontextprotocol/tasks`).

use std::sync::Arc;

use mrtr_schema::method;
use mrtr_schema::peer_text::truncate;
use mrtr_schema::tasks::CancelTaskResult;
use mrtr_transport::Transport;

use crate::client::Client;
use crate::error::CallError;
use crate::json::{decode_result, encode_param};
use crate::pending_call::PendingCall;

impl<T: Transport> Client<T> {
    /// Asks the server to cancel the task that `call` has become (`tasks/cancel`). The call cannot
    /// be used any more.
    ///
    /// The server acknowledges the request, and decides whether and when it stops the task. A
    /// client that resumes the call nevertheless gets its result, or an error with
    /// [`CallError::is_task_cancelled`].
    ///
    /// Nothing is sent for a call that is not a task: while it is paused, the server is not
    /// processing it.
    ///
    /// # Errors
    ///
    /// See [`CallError`]. The server responds with an error if it does not have the task any more.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # async fn example<T: Transport>(
    /// #     client: Client<T>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use mrtr_client::CallOutcome;
    ///
    /// let arguments = serde_json::json!({ "year": 2026 });
    /// if let CallOutcome::Working(call) = client.begin_tool("report", arguments).await? {
    ///     client.cancel(&call).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, call: &PendingCall) -> Result<(), CallError> {
        match call.task_id() {
            Some(task_id) => self.cancel_task(task_id).await,
            None => Ok(()),
        }
    }

    async fn cancel_task(&self, task_id: &str) -> Result<(), CallError> {
        let params = [("taskId", encode_param(&task_id)?)];
        let completed = self.run(method::TASKS_CANCEL, &params).await?;
        decode_result(method::TASKS_CANCEL, &completed.result).map(|CancelTaskResult { .. }| ())
    }

    /// Returns a client whose calls cancel their task when their future is dropped before they are
    /// complete, or when they time out. Default: the task goes on, and can be resumed.
    ///
    /// The cancellation is sent in the background, on the tokio runtime on which the future is
    /// dropped. Without a runtime, it is not sent.
    #[must_use]
    pub fn with_cancel_on_drop(&self) -> Self {
        self.with(|options| options.cancel_on_drop = true)
    }
}

/// Cancels a task when it is dropped.
pub(crate) struct CancelOnDrop<T: Transport> {
    client: Option<Client<T>>,
    task_id: Option<Arc<str>>,
}

impl<T: Transport> CancelOnDrop<T> {
    /// Creates a guard that does nothing yet, and ever if the client does not cancel on drop.
    pub(crate) fn new(client: &Client<T>) -> Self {
        let client = client.options.cancel_on_drop.then(|| client.clone());
        Self { client, task_id: None }
    }

    /// Sets the task of the call.
    pub(crate) fn watch(&mut self, call: &PendingCall) {
        if self.client.is_some() && self.task_id.is_none() {
            self.task_id = call.task_id().map(Arc::from);
        }
    }

    /// Leaves the task alone: the call is complete, or paused, or the task goes on without it.
    pub(crate) fn disarm(mut self) {
        self.task_id = None;
    }
}

impl<T: Transport> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        let (Some(client), Some(task_id)) = (self.client.take(), self.task_id.take()) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            tracing::warn!(target: "mrtr::client", "no runtime to cancel a task on");
            return;
        };
        runtime.spawn(async move {
            if let Err(error) = client.cancel_task(&task_id).await {
                let error = error.to_string();
                let error = &*truncate(&error);
                tracing::warn!(target: "mrtr::client", error, "cannot cancel a task");
            }
        });
    }
}
