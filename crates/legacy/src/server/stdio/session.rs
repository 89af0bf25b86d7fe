//! The session of a legacy client over a stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, Request, RequestId, Response};
use mrtr_schema::notification::{Cancelled, name};
use mrtr_transport::stdio::StreamLimits;
use mrtr_transport::stdio::lines::{LineState, MessagePrefix, json_line};
use mrtr_transport::{RequestHandler, batch};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::legacy_method;
use crate::server::call::{Call, Channel, Outgoing, empty};
use crate::server::context::{AnsweredBy, Context};
use crate::server::gateway::Gateway;
use crate::server::listen::listen;
use crate::server::session::{Session, SessionKey};
use crate::server::stream::Permit;

/// A line, which is never withdrawn.
pub(super) type OutgoingLine = (Vec<u8>, AlwaysWritten);

#[derive(Debug)]
pub(super) struct AlwaysWritten;

impl LineState for AlwaysWritten {
    fn begin_write(&self) -> bool {
        true
    }
}

/// How many notifications about changes wait for the queue of lines.
const MAX_CHANGES: usize = 16;

pub(super) struct StreamSession<H> {
    gateway: Arc<Gateway<H>>,
    lines: mpsc::Sender<OutgoingLine>,
    limits: StreamLimits,
    /// `None` before `initialize`.
    session: Option<Arc<Session>>,
    is_listening: bool,
    tasks: JoinSet<()>,
    /// The tasks that send changes.
    listeners: JoinSet<()>,
    permits: Arc<Semaphore>,
}

impl<H: RequestHandler> StreamSession<H> {
    pub(super) fn new(
        gateway: Arc<Gateway<H>>,
        lines: mpsc::Sender<OutgoingLine>,
        limits: StreamLimits,
    ) -> Self {
        let permits = limits.max_in_flight().min(Semaphore::MAX_PERMITS);
        Self {
            gateway,
            lines,
            limits,
            session: None,
            is_listening: false,
            tasks: JoinSet::new(),
            listeners: JoinSet::new(),
            permits: Arc::new(Semaphore::new(permits)),
        }
    }

    /// Rejects a message that is too long. If it is an answer, the question gets the error: a
    /// response has no response.
    pub(super) async fn reject_line(&self, prefix: MessagePrefix, error: ErrorObject) {
        let MessagePrefix { id, has_method, .. } = prefix;
        if let (Some(id), Some(session), false) = (&id, &self.session, has_method)
            && session.answer(id, Err(error.clone()), AnsweredBy::Connection)
        {
            return;
        }
        self.reject(id, error).await;
    }

    /// Answers a message with an error. Nothing more is read until there is room for it.
    pub(super) async fn reject(&self, id: Option<RequestId>, error: ErrorObject) {
        tracing::debug!(target: "mrtr::legacy", %error, "message rejected");
        self.send(Response::error(id, error)).await;
    }

    async fn send(&self, response: Response<RawJson>) {
        // A closed queue means that the client is gone.
        let _ = self.lines.send((json_line(response.to_json()), AlwaysWritten)).await;
    }

    /// Processes a line of the client.
    pub(super) async fn process(&mut self, line: &[u8]) {
        while self.tasks.try_join_next().is_some() {}
        let has_batches =
            self.session.as_ref().is_some_and(|session| session.claims.version.has_batches());
        if !has_batches || !batch::is_batch(line) {
            return self.process_message(line).await;
        }
        match batch::split(line) {
            Ok(batch) => {
                for message in batch {
                    self.process_message(message.get().as_bytes()).await;
                }
            }
            Err(error) => self.reject(None, error).await,
        }
    }

    async fn process_message(&mut self, text: &[u8]) {
        match Message::parse_within(text, self.limits.max_depth()) {
            Ok(Message::Request(request)) => self.process_request(request).await,
            Ok(Message::Notification(notification)) => self.process_notification(&notification),
            Ok(Message::Response(Response { id, outcome })) => {
                let answer = self.session.as_ref().zip(id);
                let is_expected = answer.is_some_and(|(session, id)| {
                    session.answer(&id, outcome, AnsweredBy::Connection)
                });
                if !is_expected {
                    tracing::debug!(target: "mrtr::legacy", "response without a request ignored");
                }
            }
            Err(error) if Message::was_notification(text) => {
                tracing::debug!(target: "mrtr::legacy", %error, "malformed notification ignored");
            }
            Err(error) => self.reject(Message::salvage_id(text), error).await,
        }
    }

    fn process_notification(&mut self, notification: &Notification) {
        let Some(session) = &self.session else { return };
        match notification.method.as_str() {
            name::CANCELLED => {
                if let Ok(Cancelled { request_id, .. }) = notification.decode_params() {
                    session.cancel_call(&request_id);
                }
            }
            legacy_method::INITIALIZED if !self.is_listening => {
                self.is_listening = true;
                self.listen(Arc::clone(session));
            }
            _ => {}
        }
    }

    /// Sends the changes of the server to the client.
    fn listen(&mut self, session: Arc<Session>) {
        let (sender, mut changes) = mpsc::channel::<Notification>(MAX_CHANGES);
        let gateway = Arc::clone(&self.gateway);
        let lines = self.lines.clone();
        self.listeners.spawn(async move {
            listen(&gateway, &session, &Context::default(), &sender).await;
        });
        self.listeners.spawn(async move {
            while let Some(change) = changes.recv().await {
                let line = (json_line(change.to_json()), AlwaysWritten);
                if lines.send(line).await.is_err() {
                    return;
                }
            }
        });
    }

    async fn process_request(&mut self, request: Request) {
        let id = request.id.clone();
        let Some(session) = self.session.clone() else {
            return match request.method.as_str() {
                legacy_method::INITIALIZE => self.initialize(&request).await,
                legacy_method::PING => {
                    self.send(Response { id: Some(id), outcome: Ok(empty()) }).await;
                }
                _ => {
                    let error =
                        ErrorObject::invalid_request("the session begins with `initialize`");
                    self.reject(Some(id), error).await;
                }
            };
        };
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            let error = ErrorObject::internal("too many requests are in flight");
            return self.reject(Some(id), error).await;
        };
        let (gateway, lines) = (Arc::clone(&self.gateway), self.lines.clone());
        let calling = Arc::clone(&session);
        let tasks = &mut self.tasks;
        let begun = session.begin_call(&id, None, |number| {
            tasks.spawn(async move {
                let channel = LineChannel { lines, permit: Arc::new(permit) };
                let call = Call {
                    gateway: &gateway,
                    session: &calling,
                    channel: &channel,
                    context: &Context::default(),
                };
                let registered = RegisteredCall { session: &calling, id: &request.id, number };
                let outcome = call.respond(&request, None).await;
                // It can be cancelled until there is room for the response.
                let room = channel.lines.reserve().await;
                drop(registered);
                let response = Response { id: Some(request.id), outcome };
                if let Ok(room) = room {
                    room.send((json_line(response.to_json()), AlwaysWritten));
                }
            })
        });
        if let Err(why) = begun {
            self.reject(Some(id), ErrorObject::invalid_request(why)).await;
        }
    }

    async fn initialize(&mut self, request: &Request) {
        let outcome = match self.gateway.initialize(request, &Context::default()).await {
            Ok((claims, result)) => {
                let session = Session::new(SessionKey::of(""), claims, None);
                self.session = Some(Arc::new(session));
                RawJson::new(&result)
                    .map_err(|error| ErrorObject::internal(format!("Internal error: {error}")))
            }
            Err(error) => Err(error),
        };
        self.send(Response { id: Some(request.id.clone()), outcome }).await;
    }

    /// Waits for the requests in flight.
    pub(super) async fn finish(&mut self, timeout: Duration) {
        self.listeners.shutdown().await;
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(timeout, all).await;
    }

    /// Cancels the requests in flight.
    pub(super) async fn abort(&mut self) {
        if let Some(session) = &self.session {
            session.terminate();
        }
        self.listeners.shutdown().await;
        self.tasks.shutdown().await;
    }
}

/// A call that is in the session's list until this is dropped, also by a panic.
struct RegisteredCall<'a> {
    session: &'a Session,
    id: &'a RequestId,
    number: u64,
}

impl Drop for RegisteredCall<'_> {
    fn drop(&mut self) {
        self.session.end_call(self.id, self.number);
    }
}

/// The lines of a stream as the way to the client.
struct LineChannel {
    lines: mpsc::Sender<OutgoingLine>,
    permit: Permit,
}

impl Channel for LineChannel {
    fn send(&self, message: Outgoing) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        let text = match message {
            Outgoing::Notification(notification) => Ok(notification.to_json()),
            Outgoing::Request { request, .. } => RawJson::new(&request),
        };
        Box::pin(async move {
            let Ok(text) = text else { return false };
            self.lines.send((json_line(text), AlwaysWritten)).await.is_ok()
        })
    }

    fn is_resumable(&self) -> bool {
        false
    }

    fn hand_over(&self, _: Option<Arc<str>>) {}

    fn permit(&self) -> Option<Permit> {
        Some(Arc::clone(&self.permit))
    }
}
