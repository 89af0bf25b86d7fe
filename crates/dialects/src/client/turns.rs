//! Calls in `multi-turn-sse`.

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{
    ErrorObject, Message, Notification, Params, Request, RequestId, Response,
};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::notification::{Progress, name};
use mrtr_schema::peer_text::truncate;
use mrtr_schema::{PROTOCOL_VERSION, RawJson, method};
use mrtr_transport::TransportError;
use mrtr_transport::http::RawResponse;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::{OnNotification, input_required, respond, respond_with, unusable};
use super::connection::{post, read};
use super::dialect_client::DialectClient;
use super::session::Session;
use crate::wire::call::Call;
use crate::wire::members;
use crate::wire::sse::Event;
use crate::wire::turn::{BUFFER_INPUT, INPUT_REQUIRED, MAX_ANSWERS, write_answers};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// A call between two turns: the state that the client of the current revision keeps.
#[derive(Serialize, Deserialize)]
struct Suspended {
    /// The id of the event that ended the turn.
    event: String,
    /// The id under which the server knows the call.
    call: RequestId,
    /// The keys of the questions, and their ids.
    questions: Vec<(String, RequestId)>,
}

/// How a stream has ended.
enum Ended {
    Response(Response),
    Turn(String),
}

impl DialectClient {
    pub(super) async fn send_turn(
        &self,
        call: Call,
        meta: &RequestMeta,
        on_notification: OnNotification<'_>,
    ) -> Result<Response, TransportError> {
        let mut session = self.open(meta).await?;
        if call.request.method == method::DISCOVER {
            return respond_with(call.request.id, &discovered(&session.server));
        }
        let suspended = match call.request_state.as_deref().map(serde_json::from_str) {
            None => None,
            Some(Ok(suspended)) => Some(suspended),
            Some(Err(_)) => {
                let error = ErrorObject::invalid_params("Invalid or expired requestState")
                    .with_data(json!({ "reason": "invalid_request_state" }));
                return Ok(Response::error(Some(call.request.id), error));
            }
        };
        let mut response = self.post_turn(&session, &call, suspended.as_ref()).await?;
        if response.status() == StatusCode::NOT_FOUND && session.headers.contains_key(&SESSION_ID) {
            // The session has ended. The server has not acted on the request.
            self.forget(&session).await;
            session = self.open(meta).await?;
            response = self.post_turn(&session, &call, suspended.as_ref()).await?;
        }
        let known_as = suspended.map_or_else(|| call.request.id.clone(), |it| it.call);
        let token = meta.progress_token.as_ref();
        let mut turn = Turn { questions: Vec::new(), is_buffering: false };
        let ended = read(response, |event| turn.receive(event, &known_as, token, on_notification));
        let ended = ended.await?.ok_or_else(|| {
            TransportError::protocol("the server accepted a request and did not answer it")
        })?;
        match ended {
            Ended::Response(Response { outcome, .. }) => {
                Ok(Response { id: Some(call.request.id), outcome })
            }
            Ended::Turn(event) => {
                let questions = turn.questions.into_iter().enumerate();
                let (requests, questions) = questions.map(keyed).unzip();
                let suspended = Suspended { event, call: known_as, questions };
                let state = serde_json::to_string(&suspended).map_err(|error| unusable(&error))?;
                let requests: Vec<_> = requests;
                respond(call.request.id, input_required(&requests, Some(&state)))
            }
        }
    }

    /// Sends the call, or the answers of a turn.
    async fn post_turn(
        &self,
        session: &Session,
        call: &Call,
        suspended: Option<&Suspended>,
    ) -> Result<RawResponse, TransportError> {
        let mut headers = session.headers.clone();
        let text = match suspended {
            None => RawJson::new(&call.request).map_err(|error| unusable(&error))?.into(),
            Some(Suspended { event, questions, .. }) => {
                let event = HeaderValue::from_str(event).map_err(|_| {
                    TransportError::protocol("the server chose an event id that is not a header")
                })?;
                headers.insert(LAST_EVENT_ID, event);
                let responses = call.input_responses.clone().unwrap_or_default();
                write_answers(
                    questions
                        .iter()
                        .filter_map(|(key, id)| responses.get(key).map(|response| (id, response))),
                )
            }
        };
        post(&self.http, headers, text, false).await
    }

    /// Returns the session, which the first request opens.
    async fn open(&self, meta: &RequestMeta) -> Result<Session, TransportError> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        let opened = self.initialize(meta).await?;
        *session = Some(opened.clone());
        Ok(opened)
    }

    async fn initialize(&self, meta: &RequestMeta) -> Result<Session, TransportError> {
        let version = self.dialect.protocol_version();
        let mut capabilities = json!(meta.client_capabilities.clone().unwrap_or_default());
        if let Some(capabilities) = capabilities.as_object_mut() {
            capabilities
                .retain(|name, _| matches!(name.as_str(), "elicitation" | "sampling" | "roots"));
        }
        let params = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": meta.client_info,
        });
        let id = self.own_id();
        let params = Params::new(&params).map_err(|error| unusable(&error))?;
        let request = Request::new(id.clone(), "initialize", Some(params));
        let text = RawJson::new(&request).map_err(|error| unusable(&error))?;
        let response = post(&self.http, HeaderMap::new(), text.into(), false).await?;
        let session_id = response.headers().get(&SESSION_ID).cloned();
        let outcome = read(response, |event| match Message::parse(event.data.as_bytes()) {
            Ok(Message::Response(response)) if response.id.as_ref() == Some(&id) => {
                Ok(Some(response.outcome))
            }
            Ok(Message::Response(Response { id: None, outcome })) => Ok(Some(outcome)),
            _ if event.data.is_empty() => Ok(None),
            _ => Err("sent no response to `initialize`".to_owned()),
        });
        let outcome = outcome.await?.ok_or_else(|| {
            TransportError::protocol("the server accepted `initialize` and did not answer it")
        })?;
        let result = outcome.map_err(|error| {
            TransportError::protocol(format!("the server rejected `initialize`: {error}"))
        })?;
        let server: Value = serde_json::from_str(result.get()).map_err(|error| unusable(&error))?;
        if server.get("protocolVersion").and_then(Value::as_str) != Some(version) {
            let spoken = server.get("protocolVersion").cloned().unwrap_or_default().to_string();
            return Err(TransportError::protocol(format!(
                "the server speaks revision {} and not {version}",
                truncate(&spoken)
            )));
        }
        let mut headers = HeaderMap::new();
        headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(version));
        if let Some(session_id) = session_id {
            headers.insert(SESSION_ID, session_id);
        }
        let initialized = Notification::from_raw("notifications/initialized", None).to_json();
        let accepted = post(&self.http, headers.clone(), initialized.into(), false).await?;
        if !accepted.status().is_success() {
            let status = accepted.status();
            return Err(TransportError::protocol(format!(
                "the server answered {status} to `notifications/initialized`"
            )));
        }
        Ok(Session { headers, server })
    }

    /// Forgets a session, so that the next request opens another.
    async fn forget(&self, ended: &Session) {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| session.headers == ended.headers) {
            *session = None;
        }
    }
}

/// A stream, as far as it was read.
struct Turn {
    questions: Vec<Request>,
    is_buffering: bool,
}

impl Turn {
    fn receive(
        &mut self,
        event: Event,
        call: &RequestId,
        token: Option<&RequestId>,
        on_notification: OnNotification<'_>,
    ) -> Result<Option<Ended>, String> {
        match event.name.as_str() {
            BUFFER_INPUT => {
                self.is_buffering = true;
                return Ok(None);
            }
            INPUT_REQUIRED if !self.is_buffering => {
                return Err(format!("sent {INPUT_REQUIRED} without {BUFFER_INPUT}"));
            }
            INPUT_REQUIRED => {
                let id = event.id.filter(|id| !id.is_empty());
                let id = id.ok_or_else(|| format!("sent {INPUT_REQUIRED} without an id"))?;
                return Ok(Some(Ended::Turn(id)));
            }
            "" | "message" => {}
            _ => return Ok(None),
        }
        if event.data.is_empty() {
            return Ok(None);
        }
        match Message::parse(event.data.as_bytes()) {
            Ok(Message::Notification(notification)) => {
                on_notification(with_token(notification, token));
                Ok(None)
            }
            Ok(Message::Request(_)) if !self.is_buffering => {
                Err(format!("sent a request without {BUFFER_INPUT}"))
            }
            Ok(Message::Request(_)) if self.questions.len() == MAX_ANSWERS => {
                Err(format!("sent more than {MAX_ANSWERS} requests"))
            }
            Ok(Message::Request(request)) => {
                self.questions.push(request);
                Ok(None)
            }
            Ok(Message::Response(response)) => {
                let is_ours = response.id.as_ref() == Some(call);
                // An error about a message that could not be read has no id.
                if is_ours || (response.id.is_none() && response.outcome.is_err()) {
                    Ok(Some(Ended::Response(response)))
                } else {
                    Err("sent a response to another request".to_owned())
                }
            }
            Err(error) => Err(format!("sent a malformed message: {error}")),
        }
    }
}

type Keyed = ((String, Box<RawValue>), (String, RequestId));

/// Returns a question under a key, and the id of its answer. The key contains the position: ids may
/// be equal, and as long as the server likes.
fn keyed((position, question): (usize, Request)) -> Keyed {
    let Request { id, method, params, .. } = question;
    let key = format!("{}-{position}", method.replace('/', "-"));
    let object = ObjectWriter::with_capacity(256).string("method", &method);
    let params = params.as_ref().map_or("{}", Params::as_str);
    let params = RawValue::from_string(params.to_owned()).unwrap_or_default();
    let request = members::value(object.raw("params", &RawJson::from(params)).end());
    ((key.clone(), request.unwrap_or_default()), (key, id))
}

/// Replaces the token of a progress notification: the server knows that of the first request only.
fn with_token(notification: Notification, token: Option<&RequestId>) -> Notification {
    if notification.method != name::PROGRESS {
        return notification;
    }
    let renamed = notification.decode_params::<Progress>().ok().zip(token).and_then(|it| {
        let (mut progress, token) = it;
        progress.progress_token = token.clone();
        Notification::new(name::PROGRESS, &progress).ok()
    });
    renamed.unwrap_or(notification)
}

/// Returns what `server/discover` would: what `initialize` has told.
fn discovered(server: &Value) -> Value {
    let mut result = json!({
        "resultType": "complete",
        "supportedVersions": [PROTOCOL_VERSION],
        "capabilities": server.get("capabilities").cloned().unwrap_or_else(|| json!({})),
        "ttlMs": 0,
        "cacheScope": "private",
    });
    if let Some(info) = server.get("serverInfo")
        && let Some(result) = result.as_object_mut()
    {
        result.insert("_meta".to_owned(), json!({ mrtr_schema::meta::key::SERVER_INFO: info }));
        if let Some(instructions) = server.get("instructions") {
            result.insert("instructions".to_owned(), instructions.clone());
        }
    }
    result
}
