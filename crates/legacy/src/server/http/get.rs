//! GET: streams that clients resume, and changes of the server.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{HeaderName, Request, Response, StatusCode, header};
use bytes::Bytes;
use mrtr_schema::jsonrpc::Notification;
use mrtr_transport::RequestHandler;
use mrtr_transport::http::{EventSource, Permit, ResponseBody, event_stream, push_event};
use tokio::sync::mpsc;

use super::body::{CallEvents, EventId};
use super::caller::{Caller, context_of};
use super::rejected::Rejected;
use crate::server::bus::Message;
use crate::server::gateway::Gateway;
use crate::server::listen::listen;
use crate::server::run::{AttachedReader, NewCall};
use crate::server::sessions::SessionRef;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How many notifications wait for a client that reads slowly.
const MAX_QUEUED: usize = 64;

pub(super) async fn handle<H: RequestHandler>(
    gateway: &Arc<Gateway<H>>,
    request: Request<Bytes>,
    permit: Permit,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    let accepts = request.headers().get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    if !accepts
        .into_iter()
        .any(|value| value.contains("text/event-stream") || value.contains("*/*"))
    {
        let message = "Accept must allow text/event-stream";
        return Err(Rejected::new(StatusCode::NOT_ACCEPTABLE, message));
    }
    let session = Caller::of(&request).session(gateway)?;
    match request.headers().get(&LAST_EVENT_ID) {
        Some(id) => {
            let id = id.to_str().ok().and_then(EventId::parse);
            resume(gateway, &session, &request, id, permit).await
        }
        None => changes(gateway, &session, &request, permit).await,
    }
}

/// Resumes the stream of a call, here or from the sealed call in the event id.
async fn resume<H: RequestHandler>(
    gateway: &Arc<Gateway<H>>,
    session: &SessionRef,
    request: &Request<Bytes>,
    id: Option<EventId<'_>>,
    permit: Permit,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    let unknown = || {
        Rejected::new(StatusCode::BAD_REQUEST, "Last-Event-ID names no stream that can be resumed")
    };
    let EventId { stream, position, state } = id.ok_or_else(unknown)?;
    let mut priming = false;
    let reader = if let Some(stream) = session.stream(stream) {
        stream.read_after(position)
    } else {
        // The replica that sent the event is gone. The call continues here, with the last round.
        let (call, state) =
            state.and_then(|state| gateway.open_call(session, state)).ok_or_else(unknown)?;
        // The client learns the name of the new stream before its first message.
        priming = session.claims.version.has_priming_events();
        tracing::info!(
            target: "mrtr::legacy",
            method = call.method,
            "a call of another replica is continued"
        );
        if permit.is_reserve() {
            return Err(Rejected::overloaded(None));
        }
        session.give_up_call(&call.id);
        let new = gateway.new_stream(session, 1, Arc::new(permit));
        new.set_resuming(true);
        let resumed = Message::Resumed {
            session: session.key,
            stream: stream.to_owned(),
            id: call.id.clone(),
            new: new.id().to_owned(),
        };
        let reader = new.read_after(0);
        let call = NewCall { request: call, state: Some(state), context: context_of(request) };
        gateway.start_call(session, &new, call);
        // A replica that does not learn it gives the call up by itself, after a while.
        if !matches!(gateway.publish(&resumed).await, Ok(true)) {
            new.set_resuming(false);
        }
        reader
    };
    let reader = AttachedReader::new(gateway, session, reader);
    Ok(event_stream(CallEvents::new(reader, priming, state)))
}

/// Streams the changes of the server to a session. A stream that it had before ends.
async fn changes<H: RequestHandler>(
    gateway: &Arc<Gateway<H>>,
    session: &SessionRef,
    request: &Request<Bytes>,
    permit: Permit,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    if permit.is_reserve() {
        return Err(Rejected::overloaded(None));
    }
    let context = context_of(request);
    // For clients, 405 means that there will never be changes.
    if !gateway.announces_changes(session, &context).await.map_err(Rejected::unavailable)? {
        let message = "this server has no changes to announce";
        return Err(Rejected::new(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let (sender, receiver) = mpsc::channel(MAX_QUEUED);
    let (gateway, listening) = (Arc::clone(gateway), session.clone());
    let task = tokio::spawn(async move {
        listen(&gateway, &listening, &context, &sender).await;
        drop(permit);
    });
    session.replace_listener(task.abort_handle());
    Ok(event_stream(Changes(receiver)))
}

/// The events of one connection. When it is dropped, the task that fills the channel ends.
struct Changes(mpsc::Receiver<Notification>);

impl EventSource for Changes {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        let next = ready!(self.0.poll_recv(cx));
        Poll::Ready(next.map(|notification| {
            let mut event = String::new();
            push_event(&mut event, &notification.to_json());
            event
        }))
    }
}
