//! A request that is being answered: first its notifications, then its response.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mrtr_schema::json::RawJson;
use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_schema::meta::RequestMeta;

use crate::notifications::{NotificationReceiver, NotificationSender};
use crate::traits::{IncomingRequest, RequestHandler};

/// A response, as a server gives it.
pub(crate) type Written = Response<RawJson>;

/// A request, and what came with it.
pub(crate) struct Received {
    pub(crate) request: Request,
    pub(crate) meta: Option<Arc<RequestMeta>>,
    pub(crate) headers: ::http::HeaderMap,
    pub(crate) extensions: ::http::Extensions,
}

impl Received {
    /// A request alone.
    pub(crate) fn new(request: Request, meta: Option<Arc<RequestMeta>>) -> Self {
        let (headers, extensions) = (::http::HeaderMap::new(), ::http::Extensions::new());
        Self { request, meta, headers, extensions }
    }
}

/// A request that is being answered. Dropping it cancels the request.
pub(crate) struct ResponseParts {
    state: State,
    inbox: NotificationReceiver,
}

enum State {
    Running(Pin<Box<dyn Future<Output = Written> + Send>>),
    /// What was sent before the response goes out first.
    Last(Written),
    /// What a task sends that outlives the call goes nowhere.
    Over,
}

/// What comes of a request, in this order.
pub(crate) enum Part {
    Notification(Notification),
    /// The last part.
    Response(Written),
}

impl ResponseParts {
    /// The request holds `place` for as long as anybody goes on with it.
    pub(crate) fn new<D, P>(dispatch: &Arc<D>, request: Received, place: P) -> Self
    where
        D: RequestHandler,
        P: Send + Sync + 'static,
    {
        let Received { request, meta, headers, extensions } = request;
        let (outbox, inbox) = NotificationSender::holding(place);
        let call = IncomingRequest { request, meta, headers, extensions, outbox };
        let running = Box::pin(Arc::clone(dispatch).handle(call));
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
        match &self.state {
            State::Running(_) => {
                self.inbox.poll_next(cx).map(|next| Some(Part::Notification(next)))
            }
            _ => Poll::Ready(self.next_there()),
        }
    }

    /// The next part, if it is there without anybody going on with the call.
    pub(crate) fn next_there(&mut self) -> Option<Part> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Over => None,
            running @ State::Running(_) => {
                self.state = running;
                self.inbox.next_there().map(Part::Notification)
            }
            State::Last(response) => Some(match self.inbox.next_sent() {
                None => Part::Response(response),
                Some(next) => {
                    self.state = State::Last(response);
                    Part::Notification(next)
                }
            }),
        }
    }

    /// Whether the response was the last part that came.
    #[cfg(feature = "http-endpoint")]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The next part; `None` after the response.
    pub(crate) async fn next(&mut self) -> Option<Part> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}
