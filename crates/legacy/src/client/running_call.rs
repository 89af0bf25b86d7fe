//! A request that is being answered by a legacy server. Dropping it cancels it there.

use std::sync::Arc;

use mrtr_schema::jsonrpc::{Notification, Request, RequestId};
use mrtr_schema::notification::{Cancelled, name};
use mrtr_transport::unread;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::connection::{self, Connection, Incoming, Link};
use super::question;
use super::routes::Routes;

pub(super) struct RunningCall<C: Connection> {
    pub(super) link: Link<C>,
    /// Where questions for the call come from that do not name it.
    routes: Option<Arc<Routes>>,
    id: RequestId,
    messages: unread::Receiver<Incoming>,
    task: AbortHandle,
    reconnect: Arc<Notify>,
    is_answered: bool,
}

impl<C: Connection> RunningCall<C> {
    /// Sends a request. Without `routes`, it gets only what the server sends as part of the call.
    /// Must be called in a tokio runtime.
    pub(super) fn start(link: Link<C>, routes: Option<Arc<Routes>>, request: Request) -> Self {
        let (sender, messages) = unread::channel();
        let id = request.id.clone();
        if let Some(routes) = &routes {
            routes.add_call(&id, sender.clone());
        }
        let reconnect = Arc::<Notify>::default();
        let (connection, session) = (Arc::clone(&link.connection), link.session.clone());
        let run = connection.run(session, request, sender, Arc::clone(&reconnect));
        let task = tokio::spawn(run).abort_handle();
        Self { link, routes, id, messages, task, reconnect, is_answered: false }
    }

    /// Returns what resumes the stream of the call, if it has one, when it is notified: another
    /// replica may continue the call.
    pub(super) fn reconnect(&self) -> Arc<Notify> {
        Arc::clone(&self.reconnect)
    }

    /// Waits for the next message. The last is a response.
    pub(super) async fn next(&mut self) -> Option<Incoming> {
        let message = self.messages.recv().await;
        self.is_answered |= matches!(message, None | Some(Incoming::Response(_)));
        message
    }
}

impl<C: Connection> Drop for RunningCall<C> {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(routes) = &self.routes {
            routes.remove_call(&self.id);
        }
        let unread = self.messages.drain().filter_map(|message| match message {
            Incoming::Request(request) => Some(request.id),
            _ => None,
        });
        question::reject_all(&self.link, unread.collect());
        if self.is_answered || C::CANCELS_ON_DROP {
            return;
        }
        let params = Cancelled::new(self.id.clone()).with_reason("the caller dropped the request");
        let cancelled = Notification::new(name::CANCELLED, &params);
        // Without a runtime, the process is ending.
        if let (Ok(cancelled), Ok(runtime)) = (cancelled, tokio::runtime::Handle::try_current()) {
            let link = self.link.clone();
            runtime.spawn(async move {
                let _ = link.post(connection::notification(&cancelled)).await;
            });
        }
    }
}
