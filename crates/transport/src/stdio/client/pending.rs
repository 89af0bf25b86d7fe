//! The requests that wait for a response, and the messages that concern them.

use std::collections::HashMap;
use std::sync::Arc;

use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, RequestId, Response};
use mrtr_schema::notification::{Cancelled, Progress, name};
use mrtr_schema::peer_text::{quote, truncate};
use mrtr_schema::subscription::{Changed, SUBSCRIPTION_ID};
use tokio::sync::oneshot;

use super::send_state::SendState;
use crate::error::TransportError;
use crate::stdio::oversized::MessagePrefix;
use crate::unread::{MAX_UNREAD, MAX_UNREAD_BYTES, Sender};

/// The requests that wait for a response.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// One end of the stream is closed: no more requests can be sent.
    pub(super) closed: bool,
    /// The server has sent a message.
    pub(super) has_received: bool,
    /// Gets messages that concern no request, if anything reads them: for legacy servers.
    pub(super) unsolicited: Option<Sender<Message>>,
    pub(super) waiters: HashMap<RequestId, Waiter>,
}

/// The receiving ends of one request. A waiter that is dropped without a response fails its
/// request.
#[derive(Debug)]
pub(super) struct Waiter {
    /// A call whose caller does not poll it loses notifications for which there is no space. A
    /// subscription fails, since a missed change would not be reported again.
    pub(super) notifications: Sender<Notification>,
    /// `None` once the request has failed on our side, and is still to be cancelled at the server.
    pub(super) response: Option<oneshot::Sender<Result<Response, TransportError>>>,
    pub(super) state: Arc<SendState>,
    pub(super) long_lived: bool,
    /// The token with which the request asks for its progress.
    pub(super) progress_token: Option<RequestId>,
}

impl Waiter {
    fn finish(&mut self, outcome: Result<Response, TransportError>) {
        if let Some(response) = self.response.take() {
            // The caller may have given up meanwhile.
            let _ = response.send(outcome);
        }
    }
}

impl Pending {
    /// Ends all requests: no message comes any more.
    pub(super) fn end(&mut self) {
        self.closed = true;
        self.unsolicited = None;
        self.waiters.clear();
    }

    /// Passes a message from the server to the request that it concerns.
    pub(super) fn deliver(&mut self, message: Message) {
        self.has_received = true;
        match message {
            Message::Response(response) => self.deliver_response(response),
            Message::Notification(notification) => self.deliver_notification(notification),
            Message::Request(request) => {
                let method = request.method.clone();
                if !self.pass_on(Message::Request(request)) {
                    let method = quote(&method);
                    tracing::warn!(target: "mrtr::stdio", method, "request from the server ignored");
                }
            }
        }
    }

    fn deliver_response(&mut self, response: Response) {
        let id = response.id.clone().or_else(|| self.only_written_call());
        if let Some(mut waiter) = id.and_then(|id| self.waiters.remove(&id)) {
            waiter.finish(Ok(response));
        } else if let (None, Err(error)) = (response.id, response.outcome) {
            let error = error.to_string();
            let error = &*truncate(&error);
            tracing::warn!(target: "mrtr::stdio", error, "the server could not read a request");
        }
        // Any other response arrived after its request was cancelled.
    }

    fn deliver_notification(&mut self, notification: Notification) {
        match notification.method.as_str() {
            name::CANCELLED => self.end_subscription(&notification),
            // A log message does not name its request: one of the waiting calls gets it.
            name::MESSAGE => {
                let mut calls = self.waiters.iter().filter(|(_, waiter)| !waiter.long_lived);
                if let Some(id) = calls.next().map(|(id, _)| id.clone()) {
                    self.notify(&id, notification);
                }
            }
            _ => match self.concerned_request(&notification) {
                Some(id) => self.notify(&id, notification),
                None => {
                    self.pass_on(Message::Notification(notification));
                }
            },
        }
    }

    /// Returns the request that a notification concerns, if it names one.
    fn concerned_request(&self, notification: &Notification) -> Option<RequestId> {
        if notification.method == name::PROGRESS {
            let token = notification.decode_params::<Progress>().ok()?.progress_token;
            let asked =
                |waiter: &Waiter| waiter.progress_token.as_ref().is_some_and(|own| *own == token);
            // Usually the token is the id.
            if self.waiters.get(&token).is_some_and(asked) {
                return Some(token);
            }
            let found = self.waiters.iter().find(|(_, waiter)| asked(waiter));
            return found.map(|(id, _)| id.clone());
        }
        let meta = notification.decode_params::<Changed>().ok()?.meta;
        serde_json::from_value(meta.get(SUBSCRIPTION_ID)?.clone()).ok()
    }

    /// Passes on a message that concerns no request. Returns false if nothing reads such messages,
    /// or too many are unread.
    fn pass_on(&self, message: Message) -> bool {
        self.unsolicited.as_ref().is_some_and(|sender| sender.try_send(message).is_ok())
    }

    /// Logs a malformed message, and fails the request with its id, if there is one.
    pub(super) fn reject_malformed(&mut self, line: &[u8], error: ErrorObject) {
        tracing::warn!(target: "mrtr::stdio", %error, "malformed message from the server");
        let MessagePrefix { id, has_method } = MessagePrefix::parse(line);
        let id = id.filter(|_| !has_method);
        if let Some(mut waiter) = id.and_then(|id| self.waiters.remove(&id)) {
            let violation = TransportError::protocol("the server sent a malformed message");
            waiter.finish(Err(violation.with_source(error)));
        }
    }

    /// Fails the request to which an oversized message responds.
    pub(super) fn reject_oversized(&mut self, prefix: MessagePrefix, max_message: usize) {
        let reason = format!("the server sent a message of more than {max_message} bytes");
        tracing::warn!(target: "mrtr::stdio", "{reason}");
        if prefix.has_method {
            return;
        }
        let id = prefix.id.or_else(|| self.only_written_call());
        if let Some(mut waiter) = id.and_then(|id| self.waiters.remove(&id)) {
            waiter.finish(Err(TransportError::protocol(reason)));
        }
    }

    /// Returns the only call that the server has seen, if there is exactly one.
    ///
    /// An error about a request that the server could not read, such as one that is too long, has
    /// no id. It can only concern a request that was written, and not a subscription, which is
    /// short.
    pub(super) fn only_written_call(&self) -> Option<RequestId> {
        let mut calls = self
            .waiters
            .iter()
            .filter(|(_, waiter)| !waiter.long_lived && waiter.state.is(SendState::WRITTEN));
        let (id, _) = calls.next()?;
        calls.next().is_none().then(|| id.clone())
    }

    fn notify(&mut self, id: &RequestId, notification: Notification) {
        let Some(waiter) = self.waiters.get_mut(id) else { return };
        if waiter.notifications.try_send(notification).is_err() {
            tracing::warn!(
                target: "mrtr::stdio",
                %id,
                "notification dropped: too many, or too long ones, are unread"
            );
            if waiter.long_lived {
                waiter.finish(Err(TransportError::interrupted(format!(
                    "subscription failed: more than {MAX_UNREAD} notifications or {} MiB unread",
                    MAX_UNREAD_BYTES >> 20
                ))));
            }
        }
    }

    /// Ends a subscription that the server has cancelled. Servers may cancel nothing else.
    fn end_subscription(&mut self, notification: &Notification) {
        let Ok(Cancelled { request_id: id, reason, .. }) = notification.decode_params() else {
            return;
        };
        if self.waiters.get(&id).is_some_and(|waiter| waiter.long_lived)
            && let Some(mut waiter) = self.waiters.remove(&id)
        {
            tracing::debug!(target: "mrtr::stdio", %id, reason, "subscription ended by the server");
            let error = TransportError::subscription_ended("the server ended the subscription");
            waiter.finish(Err(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unread;

    #[test]
    fn error_without_id_concerns_the_only_written_call() {
        let mut pending = Pending::default();
        let mut add = |id, state, long_lived| {
            let waiter = Waiter {
                notifications: unread::channel().0,
                response: None,
                state: SendState::new(state),
                long_lived,
                progress_token: None,
            };
            pending.waiters.insert(RequestId::Number(id), waiter);
            pending.only_written_call()
        };
        assert_eq!(add(1, SendState::QUEUED, false), None);
        assert_eq!(add(2, SendState::WRITTEN, false), Some(RequestId::Number(2)));
        assert_eq!(add(3, SendState::WRITTEN, true), Some(RequestId::Number(2)));
        assert_eq!(add(4, SendState::WRITTEN, false), None, "it may concern either");
    }
}
