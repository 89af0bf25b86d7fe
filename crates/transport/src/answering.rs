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
    state: State,
    inbox: Inbox,
}

enum State {
    Running(Pin<Box<dyn Future<Output = Response> + Send>>),
    /// What was sent before the response goes out first.
    Last(Response),
    /// What a task sends that outlives the call goes nowhere.
    Over,
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
        Self { state: State::Running(running), inbox }
    }

    /// The next part; `None` after the response.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        // The call first: what it has sent is looked at right after.
        if let State::Running(running) = &mut self.state
            && let Poll::Ready(response) = running.as_mut().poll(cx)
        {
            self.state = State::Last(response);
        }
        if matches!(self.state, State::Over) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(notification)) = self.inbox.poll_next(cx) {
            return Poll::Ready(Some(Part::Notification(notification)));
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Last(response) => Poll::Ready(Some(Part::Response(response))),
            running => {
                self.state = running;
                Poll::Pending
            }
        }
    }

    /// The next part; `None` after the response.
    pub(crate) async fn next(&mut self) -> Option<Part> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}
