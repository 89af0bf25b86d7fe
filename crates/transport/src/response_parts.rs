//! The answer to a request, part by part: first its notifications, then its response.

use std::future::{Future, poll_fn};
use std::pin::Pin;
#[cfg(feature = "stdio")]
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{Notification, Request, Response};
use mrtr_schema::meta::RequestMeta;

use crate::notifications::{NotificationReceiver, NotificationSender};
use crate::traits::{IncomingRequest, RequestHandler};

/// A response as a handler returns it: its result is text that is known to be JSON.
pub(crate) type RawResponse = Response<RawJson>;

/// A request that has passed the transport's checks, before its notification channel exists.
pub(crate) struct AdmittedRequest {
    pub(crate) request: Request,
    pub(crate) meta: Option<Arc<RequestMeta>>,
    pub(crate) headers: ::http::HeaderMap,
    pub(crate) extensions: ::http::Extensions,
}

impl AdmittedRequest {
    /// Creates a request without headers and extensions.
    pub(crate) fn new(request: Request, meta: Option<Arc<RequestMeta>>) -> Self {
        Self {
            request,
            meta,
            headers: ::http::HeaderMap::new(),
            extensions: ::http::Extensions::new(),
        }
    }
}

/// The parts of the answer to one request. Dropping it cancels the request.
pub(crate) struct ResponseParts {
    state: State,
    notifications: NotificationReceiver,
}

enum State {
    Running(Pin<Box<dyn Future<Output = RawResponse> + Send>>),
    /// The handler has returned. Its earlier notifications are still sent ahead of the response.
    Responding(RawResponse),
    /// Notifications from tasks that outlive the handler are discarded.
    Done,
}

/// One part of an answer.
pub(crate) enum Part {
    Notification(Notification),
    /// The last part.
    Response(RawResponse),
}

impl ResponseParts {
    /// Starts to handle a request. `permit` is held until the handler and all clones of the
    /// request's [`NotificationSender`] are gone.
    #[expect(clippy::inline_always, reason = "otherwise the handler's future is moved once more")]
    #[inline(always)]
    pub(crate) fn new<H, P>(handler: &Arc<H>, request: AdmittedRequest, permit: P) -> Self
    where
        H: RequestHandler,
        P: Send + Sync + 'static,
    {
        let AdmittedRequest { request, meta, headers, extensions } = request;
        let (sender, notifications) = NotificationSender::with_permit(permit);
        let incoming =
            IncomingRequest { request, meta, headers, extensions, notifications: sender };
        let running = Box::pin(Arc::clone(handler).handle(incoming));
        Self { state: State::Running(running), notifications }
    }

    /// Polls for the next part; `None` after the response.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        // The handler is polled first. Notifications that it sends in this poll are found right
        // after.
        self.poll_handler(cx);
        match &self.state {
            State::Running(_) => {
                self.notifications.poll_recv(cx).map(|next| Some(Part::Notification(next)))
            }
            _ => Poll::Ready(self.next_ready()),
        }
    }

    fn poll_handler(&mut self, cx: &mut Context<'_>) {
        if let State::Running(running) = &mut self.state
            && let Poll::Ready(response) = running.as_mut().poll(cx)
        {
            self.state = State::Responding(response);
        }
    }

    /// Waits for the end of `sending`. The handler goes on meanwhile: its timeout must not wait for
    /// a client that does not read.
    #[cfg(feature = "stdio")]
    pub(crate) async fn wait_for<T>(&mut self, sending: impl Future<Output = T>) -> T {
        let mut sending = pin!(sending);
        poll_fn(|cx| {
            let sent = sending.as_mut().poll(cx);
            if sent.is_pending() {
                self.poll_handler(cx);
            }
            sent
        })
        .await
    }

    /// Returns the next part if it is available without polling the handler.
    pub(crate) fn next_ready(&mut self) -> Option<Part> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => None,
            running @ State::Running(_) => {
                self.state = running;
                self.notifications.try_recv().map(Part::Notification)
            }
            State::Responding(response) => Some(match self.notifications.close_and_recv() {
                None => Part::Response(response),
                Some(next) => {
                    self.state = State::Responding(response);
                    Part::Notification(next)
                }
            }),
        }
    }

    /// Returns true if the response was returned already.
    #[cfg(feature = "http-endpoint")]
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Waits for the next part; `None` after the response.
    pub(crate) async fn next(&mut self) -> Option<Part> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}
