//! The HTTP response to a message: JSON, or an event stream once a notification comes first.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use mrtr_schema::RawJson;
use mrtr_schema::jsonrpc::{self, ErrorObject, RequestId, code};
use mrtr_transport::http::{EventSource, ResponseBody, event_stream, push_event};
use mrtr_transport::{NotificationReceiver, headers};

/// The header of a session.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The answer to a message.
pub(crate) enum Answer {
    Json(RawJson),
    /// The response to `initialize`, with the session id.
    Session(RawJson, HeaderValue),
    Error {
        /// `None`: the status that belongs to the error.
        status: Option<StatusCode>,
        id: Option<RequestId>,
        error: ErrorObject,
    },
    /// Events of a stream that ends with them.
    Events(String),
    /// Nothing to say.
    Accepted,
}

impl Answer {
    pub(crate) fn error(id: impl Into<Option<RequestId>>, error: ErrorObject) -> Self {
        Self::Error { status: None, id: id.into(), error }
    }

    /// Gives an error about an unknown method the status 200: 404 means that the session has ended.
    pub(crate) fn in_session(self) -> Self {
        match self {
            Self::Error { status: None, id, error } if error.code == code::METHOD_NOT_FOUND => {
                Self::Error { status: Some(StatusCode::OK), id, error }
            }
            other => other,
        }
    }

    pub(crate) fn rejected(status: StatusCode, message: &str) -> Self {
        let error = ErrorObject::invalid_request(message);
        Self::Error { status: Some(status), id: None, error }
    }

    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        match self {
            Self::Json(message) => json(message),
            Self::Session(message, id) => {
                let mut response = json(message);
                response.headers_mut().insert(SESSION_ID, id);
                response
            }
            Self::Error { status, id, error } => {
                tracing::debug!(target: "mrtr::dialects", %error, "request rejected");
                let status = status.unwrap_or_else(|| headers::status_for_error(&error));
                let instruction = headers::status_and_header(&error);
                let mut response = json(jsonrpc::Response::<RawJson>::error(id, error).to_json());
                *response.status_mut() = status;
                let headers = response.headers_mut();
                if let Some((status, name, value)) = instruction {
                    headers.insert(name, value);
                    *response.status_mut() = status;
                } else if status == StatusCode::METHOD_NOT_ALLOWED {
                    headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
                } else if status == StatusCode::SERVICE_UNAVAILABLE {
                    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                }
                response
            }
            Self::Events(_) => event_stream(Stream::ended(self)),
            Self::Accepted => {
                let mut response = Response::new(ResponseBody::from(String::new()));
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            }
        }
    }

    /// Writes the answer as events.
    fn push(self, events: &mut String) {
        match self {
            Self::Json(message) | Self::Session(message, _) => push_event(events, &message),
            Self::Error { id, error, .. } => {
                push_event(events, &jsonrpc::Response::<RawJson>::error(id, error).to_json());
            }
            Self::Events(all) => events.push_str(&all),
            Self::Accepted => {}
        }
    }
}

fn json(message: RawJson) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::from(String::from(message)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

pub(crate) type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Waits for the answer or the first notification. Dropping the response cancels the request.
pub(crate) async fn respond(
    mut answering: Answering,
    mut notifications: NotificationReceiver,
) -> Response<ResponseBody> {
    let first = poll_fn(|cx| {
        if let Poll::Ready(answer) = answering.as_mut().poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        notifications.poll_recv(cx).map(Err)
    });
    match first.await {
        Ok(answer) => {
            let mut events = String::new();
            while let Some(next) = notifications.close_and_recv() {
                push_event(&mut events, &next.to_json());
            }
            if events.is_empty() {
                return answer.into_response();
            }
            answer.push(&mut events);
            event_stream(Stream::ended(Answer::Events(events)))
        }
        Err(first) => {
            let mut events = String::new();
            push_event(&mut events, &first.to_json());
            event_stream(Stream { ready: Some(events), running: Some((answering, notifications)) })
        }
    }
}

/// The events of one response.
struct Stream {
    ready: Option<String>,
    running: Option<(Answering, NotificationReceiver)>,
}

impl Stream {
    fn ended(answer: Answer) -> Self {
        let mut events = String::new();
        answer.push(&mut events);
        Self { ready: Some(events), running: None }
    }
}

impl EventSource for Stream {
    fn poll_events(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        if let Some(ready) = self.ready.take() {
            return Poll::Ready(Some(ready));
        }
        let Some((answering, notifications)) = &mut self.running else {
            return Poll::Ready(None);
        };
        let mut events = String::new();
        if let Poll::Ready(next) = notifications.poll_recv(cx) {
            push_event(&mut events, &next.to_json());
            return Poll::Ready(Some(events));
        }
        let Poll::Ready(answer) = answering.as_mut().poll(cx) else { return Poll::Pending };
        while let Some(next) = notifications.close_and_recv() {
            push_event(&mut events, &next.to_json());
        }
        answer.push(&mut events);
        self.running = None;
        Poll::Ready(Some(events))
    }

    fn is_done(&self) -> bool {
        self.ready.is_none() && self.running.is_none()
    }
}
