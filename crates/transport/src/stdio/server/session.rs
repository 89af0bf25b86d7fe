//! The session of one client: its requests in flight, and the lines to write to it.

use std::collections::HashMap;
use std::sync::Arc;

use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, Request, RequestId, Response};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::method;
use mrtr_schema::notification::{Cancelled, name};
use mrtr_schema::request_head::RequestHead;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::limits::StreamLimits;
use super::request_state::RequestState;
use crate::response_parts::{AdmittedRequest, Part, ResponseParts};
use crate::server_side::{initialize, metrics};
use crate::stdio::writer::json_line;
use crate::traits::RequestHandler;

/// A line to write, and the state of the request that it is about.
pub(super) type OutgoingLine = (Vec<u8>, Option<Arc<RequestState>>);

/// The session of one client.
pub(super) struct Session<H> {
    handler: Arc<H>,
    limits: StreamLimits,
    pub(super) lines: Sender<OutgoingLine>,
    /// A rejection that waits for a free slot in the queue. Nothing more is read until it is sent,
    /// so that a client cannot make the server hold many of them.
    pub(super) rejection: Option<Vec<u8>>,
    pub(super) tasks: JoinSet<()>,
    in_flight: HashMap<RequestId, InFlight>,
    /// Permits for requests, held also by work that continues after a cancellation.
    permits: Arc<Semaphore>,
}

/// A request that is being answered.
struct InFlight {
    task: AbortHandle,
    state: Arc<RequestState>,
    /// True for a subscription: if it ends without a result, the client must be notified.
    is_subscription: bool,
}

impl<H: RequestHandler> Session<H> {
    pub(super) fn new(handler: H, lines: Sender<OutgoingLine>, limits: StreamLimits) -> Self {
        let permits = limits.in_flight.min(Semaphore::MAX_PERMITS);
        Self {
            handler: Arc::new(handler),
            limits,
            lines,
            rejection: None,
            tasks: JoinSet::new(),
            in_flight: HashMap::new(),
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    /// Answers a message with an error.
    pub(super) fn reject(&mut self, id: Option<RequestId>, error: ErrorObject) {
        metrics::count_rejection(metrics::reason_for_error(&error));
        self.rejection = Some(json_line(Response::error(id, error).to_json()));
        self.send_rejection();
    }

    /// Sends the rejection that waits, if there is one and the queue has a free slot.
    pub(super) fn send_rejection(&mut self) {
        let Some(line) = self.rejection.take() else { return };
        // A closed queue means that the client is gone.
        if let Err(TrySendError::Full((line, _))) = self.lines.try_send((line, None)) {
            self.rejection = Some(line);
        }
    }

    /// Forgets the requests whose tasks have finished. Their ids may be in use again, so they are
    /// recognized by their tasks.
    pub(super) fn forget_finished(&mut self, _: Result<(), JoinError>) {
        self.in_flight.retain(|_, request| !request.task.is_finished());
    }

    /// Waits for the requests in flight that are no subscriptions.
    pub(super) async fn finish_requests(&mut self) {
        while self.in_flight.values().any(|request| !request.is_subscription)
            && let Some(finished) = self.tasks.join_next().await
        {
            self.forget_finished(finished);
        }
    }

    /// Cancels the subscriptions that end without a result, and notifies the client of each.
    pub(super) async fn end_subscriptions(&mut self) {
        for (request_id, InFlight { task, state, is_subscription }) in self.in_flight.drain() {
            if is_subscription && !task.is_finished() {
                state.cancel();
                let params = Cancelled::new(request_id).with_reason("the server is shutting down");
                if let Ok(cancelled) = Notification::new(name::CANCELLED, &params) {
                    let _ = self.lines.send((json_line(cancelled.to_json()), None)).await;
                }
            }
        }
    }

    /// Processes a message from the client.
    pub(super) fn process(&mut self, line: &[u8]) {
        match Message::parse_within(line, self.limits.depth) {
            Ok(Message::Request(request)) => self.process_request(request),
            Ok(Message::Notification(notification)) => self.process_notification(&notification),
            Ok(Message::Response(_)) => {
                tracing::debug!(target: "mrtr::stdio", "response from the client ignored");
            }
            Err(error) if Message::was_notification(line) => {
                tracing::debug!(target: "mrtr::stdio", %error, "malformed notification ignored");
            }
            Err(error) => self.reject(Message::salvage_id(line), error),
        }
    }

    fn process_notification(&mut self, notification: &Notification) {
        if notification.method != name::CANCELLED {
            return;
        }
        let Ok(Cancelled { request_id: id, reason, .. }) = notification.decode_params() else {
            return;
        };
        // An unknown request is not an error: the cancellation may have crossed the response.
        if let Some(InFlight { task, state, .. }) = self.in_flight.remove(&id) {
            tracing::debug!(target: "mrtr::stdio", %id, reason, "request cancelled by the client");
            state.cancel();
            task.abort();
        }
    }

    fn process_request(&mut self, request: Request) {
        let id = request.id.clone();
        let (meta, permit) = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(error) => return self.reject(Some(id), error),
        };
        let is_subscription = request.method == method::LISTEN;
        let admitted = AdmittedRequest::new(request, meta);
        let parts = ResponseParts::new(&self.handler, admitted, permit);
        let state = RequestState::running();
        let task = self.tasks.spawn(answer(parts, self.lines.clone(), Arc::clone(&state)));
        self.in_flight.insert(id, InFlight { task, state, is_subscription });
    }

    /// Makes the checks that every request must pass.
    fn admit(
        &self,
        request: &Request,
    ) -> Result<(Option<Arc<RequestMeta>>, OwnedSemaphorePermit), ErrorObject> {
        let mirrored = RequestHead::from_request(request)?;
        if let Some(error) = initialize::reject_older_revision(request, &mirrored) {
            return Err(error);
        }
        if self.in_flight.get(&request.id).is_some_and(|other| other.state.is_running()) {
            let message = "a request with this `id` is already in flight";
            return Err(ErrorObject::invalid_request(message));
        }
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| ErrorObject::internal("too many requests are in flight"))?;
        Ok((mirrored.meta, permit))
    }
}

/// Waits until the queue has a free slot; false if the client is gone.
pub(super) async fn has_free_slot(lines: &Sender<OutgoingLine>) -> bool {
    lines.reserve().await.is_ok()
}

/// Queues the parts of an answer until the last one, or until the client is gone.
async fn answer(mut parts: ResponseParts, lines: Sender<OutgoingLine>, state: Arc<RequestState>) {
    while let Some(part) = parts.next().await {
        let line = match part {
            Part::Notification(notification) => json_line(notification.to_json()),
            Part::Response(response) => {
                state.set_answered();
                json_line(response.to_json())
            }
        };
        let sending = lines.send((line, Some(Arc::clone(&state))));
        if parts.wait_for(sending).await.is_err() {
            break;
        }
    }
}
