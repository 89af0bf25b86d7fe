//! A request that is being answered: first its notifications, then its response.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_schema::meta::RequestMeta;

use crate::seam::{Call, Dispatch, Inbox, Outbox};

/// A request that is being answered. Dropping it cancels the request.
pub(crate) struct Answering {
    running: Option<Pin<Box<dyn Future<Output = Response> + Send>>>,
    last: Option<Response>,
    inbox: Inbox,
}

/// What comes of a request, in this order.
pub(crate) enum Part {
    Notification(Notification),
    /// The last part.
    Response(Response),
}

impl Answering {
    pub(crate) fn new<D: Dispatch>(
        dispatch: &Arc<D>,
        request: Request,
        meta: Option<RequestMeta>,
        extensions: ::http::Extensions,
    ) -> Self {
        let (outbox, inbox) = Outbox::new();
        let call = Call { request, meta, extensions, outbox };
        let dispatch = Arc::clone(dispatch);
        let running = Box::pin(async move { dispatch.dispatch(call).await });
        Self { running: Some(running), last: None, inbox }
    }

    /// The next part; `None` after the response.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        // The call first: what it has sent is looked at right after.
        if let Some(running) = &mut self.running
            && let Poll::Ready(response) = running.as_mut().poll(cx)
        {
            (self.running, self.last) = (None, Some(response));
        }
        match self.inbox.poll_next(cx) {
            Poll::Ready(Some(notification)) => Poll::Ready(Some(Part::Notification(notification))),
            _ if self.running.is_some() => Poll::Pending,
            _ => Poll::Ready(self.last.take().map(Part::Response)),
        }
    }

    /// The next part; `None` after the response.
    pub(crate) async fn next(&mut self) -> Option<Part> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}
