//! A session over a byte stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{Message, Request, Response};
use mrtr_transport::stdio::StreamClient;
use mrtr_transport::unread;
use mrtr_transport::{OutgoingRequest, TransportError};
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};

use crate::client::connection::{Connection, ConnectionError, Incoming, StreamEnd};

/// A timeout that never comes: a call ends when the server is silent for too long instead.
pub(super) const NEVER: Duration = Duration::from_hours(24 * 365);

pub(super) struct StreamSession {
    stream: StreamClient,
    timeout: Duration,
    /// How long `initialize` may take.
    start_limit: Duration,
    /// What the server sends outside of calls, until it is listened to.
    unheard: Mutex<Option<unread::Receiver<Message>>>,
}

impl StreamSession {
    pub(super) fn new(stream: &StreamClient, timeout: Duration, start_limit: Duration) -> Self {
        let stream = stream.clone().timeout(NEVER);
        Self { stream, timeout, start_limit, unheard: Mutex::default() }
    }

    fn unheard(&self) -> MutexGuard<'_, Option<unread::Receiver<Message>>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection for StreamSession {
    const CANCELS_ON_DROP: bool = true;

    type Session = ();

    async fn initialize(&self, request: Request) -> Result<(Response, ()), ConnectionError> {
        let stream = self.stream.clone().timeout(self.start_limit);
        // The server may ask as soon as it has answered.
        *self.unheard() = Some(stream.unsolicited());
        Ok((stream.exchange(OutgoingRequest::new(request)).await?, ()))
    }

    async fn run(
        self: Arc<Self>,
        (): (),
        request: Request,
        messages: unread::Sender<Incoming>,
        _: Arc<Notify>,
    ) {
        // A call that reads too slowly loses notifications.
        let forward = |notification| {
            let _ = messages.try_send(Incoming::Notification(notification));
        };
        let outgoing = OutgoingRequest::new(request).with_notification_handler(&forward);
        let outcome = self.stream.exchange(outgoing).await.map_err(ConnectionError::from);
        let _ = messages.send(Incoming::Response(outcome)).await;
    }

    async fn listen(
        self: Arc<Self>,
        (): (),
        messages: unread::Sender<Incoming>,
        opening: oneshot::Sender<()>,
        _: impl Fn() + Send + Sync + 'static,
    ) -> (StreamEnd, Option<oneshot::Sender<()>>) {
        let unheard = self.unheard().take();
        let mut unsolicited = unheard.unwrap_or_else(|| self.stream.unsolicited());
        drop(opening);
        while let Some(message) = unsolicited.recv().await {
            let message = match message {
                Message::Request(request) => Incoming::Request(request),
                Message::Notification(notification) => Incoming::Notification(notification),
                Message::Response(_) => continue,
            };
            if messages.send(message).await.is_err() {
                break;
            }
        }
        (StreamEnd::Final, None)
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn post(&self, (): &(), message: String) -> Result<(), ConnectionError> {
        let message = RawValue::from_string(message)
            .map_err(|error| TransportError::protocol(error.to_string()))?;
        if self.stream.post(RawJson::from(message)) {
            Ok(())
        } else {
            let why = "the stream to the server is closed, or the server does not read it";
            Err(TransportError::interrupted(why).into())
        }
    }
}
