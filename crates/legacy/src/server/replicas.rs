//! The other replicas of the service, over the bus.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mrtr_codec::{Binding, Digest, Principal, SealError, UnixSeconds, Validity, open, seal};
use mrtr_schema::jsonrpc::{ErrorObject, RequestId};
use mrtr_transport::RequestHandler;

use super::bus::{BusError, Message};
use super::context::AnsweredBy;
use super::gateway::{Gateway, Listening, now};
use super::session::Session;

/// How long a message may be under way, in seconds. It bounds how late a repeated one is accepted.
const VALIDITY: u64 = 60;

/// How long a message may take to be published.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Ties messages to their purpose.
fn binding() -> Binding<'static> {
    Binding {
        principal: None,
        proof_key: None,
        method: "replica",
        target: "bus",
        arguments: Digest::from_parts(&[]),
    }
}

impl<H: RequestHandler> Gateway<H> {
    /// Tells the other replicas. Returns false if there is no bus.
    ///
    /// # Errors
    ///
    /// If the message is too long, or, with an internal error, which is logged, if they were not
    /// reached.
    pub(crate) async fn publish(&self, message: &Message) -> Result<bool, ErrorObject> {
        let Some(bus) = &self.options.bus else { return Ok(false) };
        let sealed = serde_json::to_vec(message).map_err(BusError::new).map(|body| {
            let validity = Validity::starting(now(), VALIDITY);
            seal(&*self.sealer, &binding(), validity, &body)
        });
        let sealed = match sealed {
            Ok(Err(SealError::TooLong(_))) => {
                let message = "the message is too long to be passed on to another replica";
                return Err(ErrorObject::invalid_request(message));
            }
            Ok(sealed) => sealed.map_err(BusError::new),
            Err(error) => Err(error),
        };
        let published = async { bus.bus.publish(sealed?).await };
        let published = tokio::time::timeout(TIMEOUT, published).await;
        let published = published.unwrap_or_else(|late| Err(BusError::new(late)));
        published.map(|()| true).map_err(|error| {
            tracing::error!(target: "mrtr::legacy", %error, "the other replicas were not reached");
            ErrorObject::internal("Internal error")
        })
    }

    /// Starts the task that receives messages.
    ///
    /// # Errors
    ///
    /// If this is not called in a Tokio runtime, or another server uses the bus.
    pub(crate) fn listen_to_bus(self: &Arc<Self>) -> io::Result<()> {
        let Some(bus) = self.options.bus.clone() else { return Ok(()) };
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        if !bus.take() {
            return Err(io::Error::other("another server uses this bus"));
        }
        let gateway = Arc::downgrade(self);
        let task = runtime.spawn(async move {
            loop {
                let text = bus.bus.receive().await;
                let Some(gateway) = gateway.upgrade() else { return };
                gateway.receive(&text);
            }
        });
        let _ = self.listening.set(Listening(task.abort_handle()));
        Ok(())
    }

    /// Processes a message of a replica, which may be this one.
    fn receive(&self, text: &str) {
        let message =
            open(&*self.sealer, text, &binding(), now()).map_err(|error| error.to_string());
        let message = message.and_then(|opened| {
            serde_json::from_slice(opened.body()).map_err(|error| error.to_string())
        });
        match message {
            Ok(message) => self.process(message),
            Err(error) => {
                tracing::warn!(target: "mrtr::legacy", error, "a message of the bus was rejected");
            }
        }
    }

    fn process(&self, message: Message) {
        match message {
            Message::Answered { session, id, result, error, authorization } => {
                let answer = result.ok_or_else(|| {
                    error.unwrap_or_else(|| ErrorObject::internal("an answer without a result"))
                });
                if let Some(session) = self.sessions.get(session) {
                    let by = AnsweredBy::Elsewhere(authorization);
                    session.answer(&RequestId::String(id), answer, by);
                }
            }
            Message::Cancelled { session, id } => {
                if let Some(session) = self.sessions.get(session) {
                    session.cancel_call(&id);
                }
            }
            Message::Resumed { session, stream, id, new } => {
                let Some(session) = self.sessions.get(session) else { return };
                if let Some(stream) = session.stream(&stream) {
                    session.give_up(&stream);
                }
                match session.stream(&new) {
                    Some(own) => own.set_resuming(false),
                    // It may have been resumed here before, on another stream. If it was resumed
                    // twice at the same time, the replica whose message comes last continues.
                    None if session.is_resuming(&id) => {}
                    None => session.give_up_call(&id),
                }
            }
            Message::Ended { session, expires } => {
                self.sessions.terminate(session, now(), UnixSeconds(expires));
            }
            Message::Changed { session: key, claims, principal, change } => {
                let create = || Session::new(key, *claims, principal.map(Principal::from));
                if let Ok(session) = self.sessions.get_or_add(key, create) {
                    session.change(change);
                }
            }
        }
    }
}
