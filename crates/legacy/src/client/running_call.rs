//! A request that is being answered by a legacy server. Dropping it cancels it there.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{Notification, Request, RequestId};
use mrtr_schema::notification::{Cancelled, name};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::connection::{self, Connection, Incoming, MAX_UNREAD};
use super::routes::Routes;

pub(super) struct RunningCall<C: Connection> {
    connection: Arc<C>,
    routes: Arc<Routes>,
    id: RequestId,
    messages: mpsc::Receiver<Incoming>,
    task: AbortHandle,
    is_answered: bool,
}

impl<C: Connection> RunningCall<C> {
    /// Sends a request. Must be called in a tokio runtime.
    pub(super) fn start(connection: &Arc<C>, routes: &Arc<Routes>, request: Request) -> Self {
        let (sender, messages) = mpsc::channel(MAX_UNREAD);
        let id = request.id.clone();
        routes.add_call(&id, sender.clone());
        let task = tokio::spawn(Arc::clone(connection).run(request, sender)).abort_handle();
        let (connection, routes) = (Arc::clone(connection), Arc::clone(routes));
        Self { connection, routes, id, messages, task, is_answered: false }
    }

    /// Waits for the next message. The last is a response.
    pub(super) async fn next(&mut self) -> Option<Incoming> {
        let message = self.messages.recv().await;
        self.is_answered |= matches!(message, None | Some(Incoming::Response(_)));
        message
    }

    /// Returns the next message if it has arrived.
    pub(super) fn next_ready(&mut self) -> Option<Incoming> {
        let message = self.messages.try_recv().ok()?;
        self.is_answered |= matches!(message, Incoming::Response(_));
        Some(message)
    }
}

impl<C: Connection> Drop for RunningCall<C> {
    fn drop(&mut self) {
        self.task.abort();
        self.routes.remove_call(&self.id);
        if self.is_answered || C::CANCELS_ON_DROP {
            return;
        }
        let params = Cancelled::new(self.id.clone()).with_reason("the caller dropped the request");
        let cancelled = Notification::new(name::CANCELLED, &params);
        // Without a runtime, the process is ending.
        if let (Ok(cancelled), Ok(runtime)) = (cancelled, tokio::runtime::Handle::try_current()) {
            let connection = Arc::clone(&self.connection);
            runtime.spawn(async move {
                let _ = connection.post(connection::notification(&cancelled)).await;
            });
        }
    }
}
