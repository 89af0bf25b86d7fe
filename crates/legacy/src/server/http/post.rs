//! POST: messages of the client.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use mrtr_schema::jsonrpc::{ErrorObject, Message, Notification, RequestId};
use mrtr_schema::notification::{Cancelled, name};
use mrtr_schema::{RawJson, jsonrpc};
use mrtr_transport::http::{Permit, ResponseBody, event_stream};
use mrtr_transport::{RequestHandler, batch, headers};
use serde_json::value::RawValue;

use super::body::CallEvents;
use super::caller::{Caller, SESSION_ID, context_of};
use super::rejected::{Rejected, empty, json, json_text};
use crate::server::bus;
use crate::server::context::{AnsweredBy, Authorization};
use crate::server::gateway::Gateway;
use crate::server::opening::opens_session;
use crate::server::run::{AttachedReader, NewCall};
use crate::server::session::Session;
use crate::server::sessions::SessionRef;
use crate::server::stream::{EventKind, Stream};

/// How long a request may take before its response becomes a stream, which the client can resume.
const STREAM_AFTER: Duration = Duration::from_secs(1);

/// The longest id in bytes whose cancellation is passed on to other replicas.
const MAX_PUBLISHED_ID: usize = 256;

pub(super) async fn handle<H: RequestHandler>(
    gateway: &Arc<Gateway<H>>,
    request: Request<Bytes>,
    permit: Permit,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    if !headers::has_json_content_type(request.headers()) {
        let message = "Content-Type must be application/json, in UTF-8 and not compressed";
        return Err(Rejected::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    if !headers::accepts_json_and_sse(request.headers()) {
        let message = "Accept must allow application/json and text/event-stream";
        return Err(Rejected::new(StatusCode::NOT_ACCEPTABLE, message));
    }
    if opens_session(request.body()) {
        if permit.is_reserve() {
            return Err(Rejected::overloaded(None));
        }
        return initialize(gateway, &request).await;
    }
    let session = Caller::of(&request).session(gateway)?;
    handle_messages(gateway, &session, &request, permit).await
}

/// Opens a session. It costs no memory.
async fn initialize<H: RequestHandler>(
    gateway: &Arc<Gateway<H>>,
    request: &Request<Bytes>,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    let Message::Request(message) = parse(request.body())? else {
        return Err(Rejected::new(StatusCode::BAD_REQUEST, "`initialize` must be a request"));
    };
    let outcome = async {
        let (claims, result) = gateway.initialize(&message, &context_of(request)).await?;
        let principal = request.extensions().get();
        let session_id = gateway.session_id(&claims, principal)?;
        let result = RawJson::new(&result)
            .map_err(|error| ErrorObject::internal(format!("Internal error: {error}")))?;
        Ok((session_id, result))
    };
    let id = Some(message.id.clone());
    match outcome.await {
        Ok((session_id, result)) => {
            let mut response = json(&jsonrpc::Response { id, outcome: Ok(result) });
            if let Ok(session_id) = HeaderValue::from_str(&session_id) {
                response.headers_mut().insert(SESSION_ID, session_id);
            }
            Ok(response)
        }
        Err(error) => {
            Err(Box::new(Rejected { status: headers::status_for_error(&error), id, error }))
        }
    }
}

fn parse(body: &[u8]) -> Result<Message, Box<Rejected>> {
    Message::parse(body).map_err(|error| {
        let id = Message::salvage_id(body);
        Box::new(Rejected { status: StatusCode::BAD_REQUEST, id, error })
    })
}

async fn handle_messages<H: RequestHandler>(
    gateway: &Arc<Gateway<H>>,
    session: &SessionRef,
    request: &Request<Bytes>,
    mut permit: Permit,
) -> Result<Response<ResponseBody>, Box<Rejected>> {
    let is_batch = batch::is_batch(request.body());
    let messages = if is_batch && session.claims.version.has_batches() {
        parse_batch(request.body())?
    } else {
        vec![parse(request.body())?]
    };
    let mut calls = Vec::new();
    for message in messages {
        match message {
            Message::Request(call) => calls.push(call),
            Message::Notification(notification) => {
                notify(gateway, session, &notification).await?;
            }
            Message::Response(response) => {
                let is_expected = answer(gateway, session, request, response).await?;
                if !is_expected && is_batch {
                    tracing::debug!(target: "mrtr::legacy", "response without a request ignored");
                } else if !is_expected {
                    let message = "no request of this server with this `id` waits for a response";
                    return Err(Rejected::new(StatusCode::BAD_REQUEST, message));
                }
            }
        }
    }
    if calls.is_empty() {
        return Ok(empty(StatusCode::ACCEPTED));
    }
    if permit.is_reserve() {
        return Err(Rejected::overloaded(calls.swap_remove(0).id));
    }
    if !permit.try_add_requests(calls.len() - 1) {
        return Err(Rejected::batch_too_large(calls.len()));
    }
    let stream = gateway.new_stream(session, calls.len(), Arc::new(permit));
    let reader = AttachedReader::new(gateway, session, stream.read_after(0));
    for call in calls {
        let call = NewCall { request: call, state: None, context: context_of(request) };
        gateway.start_call(session, &stream, call);
    }
    Ok(respond(session, &stream, reader, is_batch).await)
}

/// Answers with JSON if the response comes soon and first, and with an event stream otherwise.
async fn respond<H: RequestHandler>(
    session: &Session,
    stream: &Stream,
    mut reader: AttachedReader<H>,
    is_batch: bool,
) -> Response<ResponseBody> {
    if !is_batch {
        let first = tokio::time::timeout(STREAM_AFTER, reader.reader.peek()).await;
        if let Ok(Some(event)) = first
            && event.kind == EventKind::Response
            && stream.is_complete()
            && let Some(message) = event.message
        {
            let refusal = refusal(message.as_str());
            let mut response = json_text(message);
            if let Some((status, name, value)) = refusal {
                *response.status_mut() = status;
                response.headers_mut().insert(name, value);
            }
            return response;
        }
    }
    event_stream(CallEvents::new(reader, session.claims.version.has_priming_events(), None))
}

/// Returns the status and the header of an error response that tells the client how to continue.
fn refusal(message: &str) -> Option<(StatusCode, HeaderName, HeaderValue)> {
    // Most responses need not be parsed.
    if !["insufficient_scope", "retryAfterMs"].iter().any(|name| message.contains(name)) {
        return None;
    }
    match Message::parse(message.as_bytes()) {
        Ok(Message::Response(response)) => headers::status_and_header(&response.outcome.err()?),
        _ => None,
    }
}

fn parse_batch(body: &[u8]) -> Result<Vec<Message>, Box<Rejected>> {
    let messages = batch::split(body)
        .map_err(|error| Box::new(Rejected { status: StatusCode::BAD_REQUEST, id: None, error }))?;
    messages.iter().map(|message| parse(message.get().as_bytes())).collect()
}

/// Delivers an answer, here or to the replica that asked. Returns false if no call waits for it.
async fn answer<H: RequestHandler>(
    gateway: &Gateway<H>,
    session: &Session,
    request: &Request<Bytes>,
    response: jsonrpc::Response<Box<RawValue>>,
) -> Result<bool, Box<Rejected>> {
    let Some(RequestId::String(id)) = response.id else { return Ok(false) };
    if !gateway.is_of_other_process(&id) {
        let by = AnsweredBy::Request(context_of(request));
        return Ok(session.answer(&RequestId::String(id), response.outcome, by));
    }
    let authorization = Authorization::of(request.extensions());
    let answered = bus::Message::answered(session.key, id, response.outcome, authorization);
    gateway.publish(&answered).await.map_err(Rejected::unreached)
}

/// Handles a notification. Unknown ones are ignored.
async fn notify<H: RequestHandler>(
    gateway: &Gateway<H>,
    session: &Session,
    notification: &Notification,
) -> Result<(), Box<Rejected>> {
    if notification.method != name::CANCELLED {
        return Ok(());
    }
    let Ok(Cancelled { request_id: id, reason, .. }) = notification.decode_params() else {
        return Ok(());
    };
    let id: RequestId = id;
    tracing::debug!(target: "mrtr::legacy", %id, reason, "request cancelled by the client");
    let is_long = matches!(&id, RequestId::String(id) if id.len() > MAX_PUBLISHED_ID);
    if !session.cancel_call(&id) && !is_long {
        let cancelled = bus::Message::Cancelled { session: session.key, id };
        gateway.publish(&cancelled).await.map_err(Rejected::unreached)?;
    }
    Ok(())
}
