//! Where messages of the server go that do not name the request that they are about.
//!
//! Servers send questions on the stream of the session, too, instead of that of the call. Such a
//! question is given to the call that began last.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mrtr_schema::jsonrpc::{Notification, Request, RequestId};
use mrtr_transport::unread::{self, Receiver, Sender};

use super::connection::{Incoming, StreamEnd};

#[derive(Default)]
pub(super) struct Routes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The calls in flight, in the order in which they began.
    calls: Vec<(RequestId, Sender<Incoming>)>,
    /// The calls belong to several callers. The server may still ask for a call that has ended
    /// here.
    is_shared: bool,
    subscribers: Vec<Sender<Notification>>,
    /// Those that get nothing, because the server has no stream for changes.
    idle: Vec<Sender<Notification>>,
    /// The session has ended.
    is_over: bool,
    /// How the stream of the session has ended: nothing announces changes any more.
    end: Option<StreamEnd>,
}

impl Routes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_call(&self, id: &RequestId, messages: Sender<Incoming>) {
        self.lock().calls.push((id.clone(), messages));
    }

    /// Refuses questions that do not name their call from now on.
    pub(super) fn set_shared(&self) {
        self.lock().is_shared = true;
    }

    pub(super) fn remove_call(&self, id: &RequestId) {
        self.lock().calls.retain(|(own, _)| own != id);
    }

    /// Returns the changes that the server announces from now on; none if subscriptions have ended.
    pub(super) fn subscribe(&self) -> Receiver<Notification> {
        let (sender, receiver) = unread::channel();
        let mut state = self.lock();
        if state.end.is_none() {
            state.subscribers.retain(|own| !own.is_closed());
            state.subscribers.push(sender);
        }
        receiver
    }

    /// Returns the changes of a session whose server announces none: it ends with the session.
    pub(super) fn subscribe_idle(&self) -> Receiver<Notification> {
        let (sender, receiver) = unread::channel();
        let mut state = self.lock();
        if !state.is_over {
            state.idle.retain(|own| !own.is_closed());
            state.idle.push(sender);
        }
        receiver
    }

    /// Ends all subscriptions, so that they begin again: changes may have been missed.
    pub(super) fn interrupt_subscriptions(&self) {
        self.lock().subscribers.clear();
    }

    /// Ends all subscriptions with their session.
    pub(super) fn end_session(&self) {
        self.end_subscriptions(StreamEnd::Final);
        let mut state = self.lock();
        state.is_over = true;
        state.idle.clear();
    }

    /// Ends all subscriptions: no more changes will come, unless the stream is opened again.
    pub(super) fn end_subscriptions(&self, end: StreamEnd) {
        let mut state = self.lock();
        state.end = Some(end);
        state.subscribers.clear();
    }

    /// Lets subscriptions begin again. Returns how the stream had ended; `None` if it had not.
    pub(super) fn begin_again(&self) -> Option<StreamEnd> {
        self.lock().end.take()
    }

    /// Returns how the stream of the session has ended; `None` if it has not.
    pub(super) fn end(&self) -> Option<StreamEnd> {
        self.lock().end
    }

    /// Passes a notification to all subscribers. One that reads too slowly is ended: it would miss
    /// a change.
    pub(super) fn announce(&self, notification: &Notification) {
        let send = |to: &Sender<Notification>| to.try_send(notification.clone()).is_ok();
        self.lock().subscribers.retain(send);
    }

    /// Gives a request of the server to the call that began last. Returns the request if there is
    /// no call, or if the calls belong to several callers: it could be meant for another caller.
    pub(super) fn ask(&self, request: Request) -> Option<Request> {
        let state = self.lock();
        if state.is_shared {
            return Some(request);
        }
        let Some((_, call)) = state.calls.last() else { return Some(request) };
        // The call reads nothing while it waits for the client, so its queue may be full.
        match call.try_send(Incoming::Request(request)) {
            Err(Incoming::Request(request)) => Some(request),
            _ => None,
        }
    }
}
