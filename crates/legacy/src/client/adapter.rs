//! A legacy server, as a server of the current revision.
//!
//! A request of the server in the middle of a call becomes an input request, and the call is kept
//! here until its answers come. So a client has the same handlers, limits and hooks for both.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::input::{InputRequest, InputRequiredResult};
use mrtr_schema::json::ObjectWriter;
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId, Response};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::notification::LogLevel;
use mrtr_schema::subscription::{
    Acknowledged, ListenParams, SubscriptionFilter, name, subscription_meta,
};
use mrtr_schema::{RawJson, method};
use mrtr_transport::{OutgoingRequest, TransportError};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{Mutex, mpsc};

use super::connection::{self, Connection, ConnectionError, Incoming, MAX_UNREAD};
use super::request::{ModernRequest, with_token};
use super::routes::Routes;
use super::running_call::RunningCall;
use super::suspended::{SuspendedCall, SuspendedCalls};
use crate::LegacyVersion;
use crate::handshake::{InitializeParams, InitializeResult};
use crate::legacy_method;

/// How long questions that a server asks together may be apart.
const JOIN_WINDOW: Duration = Duration::from_millis(5);

pub(super) struct Adapter<C: Connection> {
    connection: Arc<C>,
    routes: Arc<Routes>,
    session: Mutex<Option<Session>>,
    suspended: SuspendedCalls<C>,
}

struct Session {
    server: Arc<InitializeResult>,
    log_level: Option<LogLevel>,
    /// Reads what the server sends outside of calls.
    _listener: AbortOnDrop,
}

/// What a client declares with its requests.
#[derive(Clone)]
pub(super) struct ClientFacts {
    pub(super) capabilities: ClientCapabilities,
    pub(super) info: Implementation,
}

impl ClientFacts {
    pub(super) fn of(meta: &RequestMeta) -> Self {
        let unknown = || Implementation::new("mrtr", env!("CARGO_PKG_VERSION"));
        Self {
            capabilities: meta.client_capabilities.clone().unwrap_or_default(),
            info: meta.client_info.clone().unwrap_or_else(unknown),
        }
    }
}

impl<C: Connection> Adapter<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection: Arc::new(connection),
            routes: Arc::default(),
            session: Mutex::new(None),
            suspended: SuspendedCalls::default(),
        }
    }

    /// Returns the revision of the session, if there is one.
    pub(super) fn version(&self) -> Option<LegacyVersion> {
        let session = self.session.try_lock().ok()?;
        LegacyVersion::from_name(&session.as_ref()?.server.protocol_version)
    }

    /// Opens a session if there is none, and returns what the server has said of itself.
    pub(super) async fn open(
        &self,
        client: &ClientFacts,
    ) -> Result<Arc<InitializeResult>, TransportError> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session {
            return Ok(Arc::clone(&session.server));
        }
        let server = Arc::new(self.initialize(client).await?);
        let listening = listen(Arc::clone(&self.connection), Arc::clone(&self.routes));
        let listener = AbortOnDrop(tokio::spawn(listening).abort_handle());
        let opened = Arc::clone(&server);
        *session = Some(Session { server: opened, log_level: None, _listener: listener });
        Ok(server)
    }

    async fn initialize(&self, client: &ClientFacts) -> Result<InitializeResult, TransportError> {
        let ClientFacts { capabilities, info } = client.clone();
        let params = InitializeParams::new(LegacyVersion::LATEST, capabilities, info);
        let params = Params::new(&params).map_err(|error| unusable(&error))?;
        let request = Request::new(RequestId::Number(0), legacy_method::INITIALIZE, Some(params));
        let response = self.connection.initialize(request).await.map_err(into_transport)?;
        let result = response.outcome.map_err(|error| {
            TransportError::protocol(format!("the server rejected `initialize`: {error}"))
        })?;
        let result: InitializeResult =
            serde_json::from_str(result.get()).map_err(|error| unusable(&error))?;
        if LegacyVersion::from_name(&result.protocol_version).is_none() {
            return Err(TransportError::protocol(format!(
                "the server speaks revision {:.32?} only, which this client does not",
                result.protocol_version
            )));
        }
        let initialized = Notification::from_raw(legacy_method::INITIALIZED, None);
        self.post(connection::notification(&initialized)).await?;
        tracing::debug!(
            target: "mrtr::client",
            version = result.protocol_version,
            "session with a legacy server opened"
        );
        Ok(result)
    }

    async fn post(&self, message: String) -> Result<(), TransportError> {
        self.connection.post(message).await.map_err(into_transport)
    }

    /// Forgets the session, so that the next request opens another.
    async fn forget(&self, ended: &Arc<InitializeResult>) {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(&session.server, ended)) {
            *session = None;
        }
    }

    /// Sends a request of the current revision.
    pub(super) async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<Response, TransportError> {
        let OutgoingRequest { request, on_notification, .. } = outgoing;
        let id = request.id.clone();
        let modern = match ModernRequest::parse(request) {
            Ok(modern) => modern,
            Err(error) => return Ok(Response::error(Some(id), error)),
        };
        let client = ClientFacts::of(&modern.meta);
        let server = self.open(&client).await?;
        match modern.legacy.method.as_str() {
            method::DISCOVER => {
                let discovered = InitializeResult::clone(&server).into_discovery();
                let result = to_raw_value(&discovered).map_err(|error| unusable(&error))?;
                return Ok(Response { id: Some(id), outcome: Ok(result) });
            }
            method::LISTEN => return self.listen(&id, &modern, &server, on_notification).await,
            _ => {}
        }
        self.set_log_level(&client, modern.meta.log_level).await?;
        if modern.state.is_some() {
            return self.resume(id, modern, on_notification).await;
        }
        let running = RunningCall::start(&self.connection, &self.routes, modern.legacy.clone());
        match self.follow(running, &id, &modern.meta, on_notification).await {
            Err(ConnectionError::SessionEnded) => {
                // The server has not acted on the request (2025-11-25, transports: sessions).
                self.forget(&server).await;
                self.open(&client).await?;
                let running = RunningCall::start(&self.connection, &self.routes, modern.legacy);
                let again = self.follow(running, &id, &modern.meta, on_notification).await;
                again.map_err(into_transport)
            }
            outcome => outcome.map_err(into_transport),
        }
    }

    /// Continues a call with the answers to its questions.
    async fn resume(
        &self,
        id: RequestId,
        modern: ModernRequest,
        on_notification: &(dyn Fn(Notification) + Send + Sync),
    ) -> Result<Response, TransportError> {
        let state = modern.state.as_deref().unwrap_or_default();
        let Some(call) = self.suspended.take(state) else {
            let message =
                "a call with a legacy server can be resumed only by the client that began it";
            let error = ErrorObject::invalid_params(message)
                .with_data(json!({ "reason": "invalid_request_state" }));
            return Ok(Response::error(Some(id), error));
        };
        for (question, answer) in call.answers(&modern.responses) {
            let message = match answer {
                Some(result) => respond(question, "result", result),
                None => {
                    let error = ErrorObject::internal("the client did not answer");
                    respond(question, "error", &json!(error).to_string())
                }
            };
            if let Err(error) = self.connection.post(message).await {
                // The server may have lost the question, with the replica that asked it. What
                // comes next on the stream tells: the question again, or an error.
                tracing::warn!(target: "mrtr::client", ?error, "an answer was not accepted");
            }
        }
        let followed = self.follow(call.running, &id, &modern.meta, on_notification).await;
        followed.map_err(into_transport)
    }

    /// Reads the messages of a call until its response, or until the server asks something.
    async fn follow(
        &self,
        mut running: RunningCall<C>,
        id: &RequestId,
        meta: &RequestMeta,
        on_notification: &(dyn Fn(Notification) + Send + Sync),
    ) -> Result<Response, ConnectionError> {
        let capabilities = meta.client_capabilities.clone().unwrap_or_default();
        let mut questions = Vec::new();
        loop {
            let next = if questions.is_empty() {
                let limit = self.connection.timeout();
                tokio::time::timeout(limit, running.next()).await.map_err(|_| {
                    let why = format!("the server sent nothing about the request for {limit:?}");
                    TransportError::interrupted(why)
                })?
            } else {
                // Questions that were asked together are answered together.
                match running.next_ready() {
                    Some(next) => Some(next),
                    None => match tokio::time::timeout(JOIN_WINDOW, running.next()).await {
                        Ok(next) => next,
                        Err(_) => break,
                    },
                }
            };
            match next {
                Some(Incoming::Notification(notification)) => {
                    on_notification(with_token(notification, meta.progress_token.as_ref()));
                }
                Some(Incoming::Request(request)) => {
                    questions.extend(self.question(request, &capabilities).await?);
                }
                Some(Incoming::Response(response)) => {
                    let outcome = response?.outcome;
                    return Ok(Response { id: Some(id.clone()), outcome });
                }
                None => {
                    let why = "the connection ended before the response";
                    return Err(TransportError::interrupted(why).into());
                }
            }
        }
        let (keys, requests): (Vec<_>, Vec<_>) = questions
            .into_iter()
            .enumerate()
            .map(|(n, (question, request))| {
                let key = format!("{}-{}", request.method().replace('/', "-"), n + 1);
                ((key.clone(), question), (key, request))
            })
            .unzip();
        let state = self.suspended.insert(SuspendedCall { running, questions: keys });
        let result = InputRequiredResult::new(requests, Some(state));
        let result = to_raw_value(&result).map_err(|error| unusable(&error))?;
        Ok(Response { id: Some(id.clone()), outcome: Ok(result) })
    }

    /// Returns the question in a request of the server; `None` if it is answered here.
    async fn question(
        &self,
        request: Request,
        capabilities: &ClientCapabilities,
    ) -> Result<Option<(RequestId, InputRequest)>, ConnectionError> {
        match read_question(&request, capabilities) {
            Ok(Some(question)) => Ok(Some((request.id, question))),
            Ok(None) => {
                self.connection.post(respond(&request.id, "result", "{}")).await?;
                Ok(None)
            }
            Err(error) => {
                reject(&*self.connection, &request, &error).await?;
                Ok(None)
            }
        }
    }

    /// Tells the server the least severe level of log messages, if it has changed.
    async fn set_log_level(
        &self,
        client: &ClientFacts,
        level: Option<LogLevel>,
    ) -> Result<(), TransportError> {
        let Some(level) = level else { return Ok(()) };
        let server = self.open(client).await?;
        {
            let mut session = self.session.lock().await;
            let Some(session) = session.as_mut() else { return Ok(()) };
            if server.capabilities.logging.is_none() || session.log_level == Some(level) {
                return Ok(());
            }
            session.log_level = Some(level);
        }
        self.request(legacy_method::SET_LEVEL, &json!({ "level": level })).await.map(drop)
    }

    /// Sends a request of our own, and waits for its result.
    async fn request(
        &self,
        method: &str,
        params: &serde_json::Value,
    ) -> Result<Box<RawValue>, TransportError> {
        let params = Params::new(params).map_err(|error| unusable(&error))?;
        let id = RequestId::String(format!("{method} {}", params.as_str()));
        let mut running = RunningCall::start(
            &self.connection,
            &self.routes,
            Request::new(id, method, Some(params)),
        );
        while let Some(message) = running.next().await {
            if let Incoming::Response(response) = message {
                return response.map_err(into_transport)?.outcome.map_err(|error| {
                    TransportError::protocol(format!("the server rejected {method}: {error}"))
                });
            }
        }
        Err(TransportError::interrupted("the connection ended before the response"))
    }

    /// Serves `subscriptions/listen` by what the server announces to its session.
    async fn listen(
        &self,
        id: &RequestId,
        modern: &ModernRequest,
        server: &InitializeResult,
        on_notification: &(dyn Fn(Notification) + Send + Sync),
    ) -> Result<Response, TransportError> {
        let asked = match ListenParams::from_request(&modern.legacy) {
            Ok(params) => params.notifications,
            Err(error) => return Ok(Response::error(Some(id.clone()), error)),
        };
        let granted = granted_filter(asked, server);
        let mut changes = self.routes.subscribe();
        for uri in &granted.resource_subscriptions {
            self.request(legacy_method::SUBSCRIBE, &json!({ "uri": uri })).await?;
        }
        let acknowledged = Acknowledged::new(granted.clone(), subscription_meta(id));
        if let Ok(acknowledged) = Notification::new(name::ACKNOWLEDGED, &acknowledged) {
            on_notification(acknowledged);
        }
        while let Some(notification) = changes.recv().await {
            if let Some(change) = announced(&notification, &granted, id) {
                on_notification(change);
            }
        }
        Err(TransportError::interrupted("the stream of changes has ended"))
    }
}

/// Reads what the server sends outside of calls, until it sends nothing more.
async fn listen<C: Connection>(connection: Arc<C>, routes: Arc<Routes>) {
    let (sender, mut messages) = mpsc::channel(MAX_UNREAD);
    let _reading = AbortOnDrop(tokio::spawn(Arc::clone(&connection).listen(sender)).abort_handle());
    while let Some(message) = messages.recv().await {
        let answered = match message {
            Incoming::Notification(notification) => {
                routes.announce(&notification);
                Ok(())
            }
            Incoming::Request(request) if request.method == legacy_method::PING => {
                connection.post(respond(&request.id, "result", "{}")).await
            }
            Incoming::Request(request) => match routes.ask(request) {
                Ok(()) => Ok(()),
                Err(request) => {
                    let error = ErrorObject::method_not_found(&request.method);
                    reject(&*connection, &request, &error).await
                }
            },
            Incoming::Response(_) => Ok(()),
        };
        if let Err(error) = answered {
            tracing::debug!(target: "mrtr::client", ?error, "a request of the server got no answer");
        }
    }
    routes.end_subscriptions();
}

/// Answers a request of the server with an error.
async fn reject<C: Connection>(
    connection: &C,
    request: &Request,
    error: &ErrorObject,
) -> Result<(), ConnectionError> {
    let method = &request.method;
    tracing::warn!(target: "mrtr::client", method, %error, "request of the server rejected");
    connection.post(respond(&request.id, "error", &json!(error).to_string())).await
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads a question; `None` for a `ping`.
fn read_question(
    request: &Request,
    capabilities: &ClientCapabilities,
) -> Result<Option<InputRequest>, ErrorObject> {
    if request.method == legacy_method::PING {
        return Ok(None);
    }
    let known = [method::ELICITATION_CREATE, method::SAMPLING_CREATE_MESSAGE, method::ROOTS_LIST];
    if !known.contains(&request.method.as_str()) {
        return Err(ErrorObject::method_not_found(&request.method));
    }
    let params = request.params.as_ref().map_or("{}", Params::as_str);
    let params = RawValue::from_string(params.to_owned())
        .map_err(|error| ErrorObject::invalid_params(error.to_string()))?;
    let object = ObjectWriter::with_capacity(params.get().len() + 64)
        .string("method", &request.method)
        .raw("params", &RawJson::from(params))
        .end();
    let question: InputRequest = serde_json::from_str(object.as_str())
        .map_err(|error| ErrorObject::invalid_params(format!("Invalid params: {error}")))?;
    let is_declared = match &question {
        InputRequest::Elicit(params) => match params {
            mrtr_schema::elicitation::ElicitParams::Url(_) => capabilities.has_url(),
            _ => capabilities.has_form(),
        },
        InputRequest::Sample(_) => capabilities.has_sampling(),
        _ => capabilities.has_roots(),
    };
    if is_declared {
        Ok(Some(question))
    } else {
        Err(ErrorObject::method_not_found(&request.method))
    }
}

/// Returns the part of a filter that the server announces.
fn granted_filter(mut asked: SubscriptionFilter, server: &InitializeResult) -> SubscriptionFilter {
    let capabilities = &server.capabilities;
    let announces = |list: &Option<mrtr_schema::capabilities::ListCapability>| {
        list.as_ref().is_some_and(|list| list.list_changed == Some(true))
    };
    let resources = capabilities.resources.as_ref();
    asked.tools_list_changed &= announces(&capabilities.tools);
    asked.prompts_list_changed &= announces(&capabilities.prompts);
    asked.resources_list_changed &= resources.is_some_and(|all| all.list_changed == Some(true));
    if resources.is_none_or(|all| all.subscribe != Some(true)) {
        asked.resource_subscriptions.clear();
    }
    asked
}

/// Returns a notification as one of a subscription, if it was asked for.
fn announced(
    notification: &Notification,
    filter: &SubscriptionFilter,
    id: &RequestId,
) -> Option<Notification> {
    let mut changed: mrtr_schema::subscription::Changed = notification.decode_params().ok()?;
    let is_wanted = match notification.method.as_str() {
        name::TOOLS => filter.tools_list_changed,
        name::PROMPTS => filter.prompts_list_changed,
        name::RESOURCES => filter.resources_list_changed,
        name::RESOURCE_UPDATED => {
            changed.uri.as_ref().is_some_and(|uri| filter.resource_subscriptions.contains(uri))
        }
        _ => false,
    };
    changed.meta = subscription_meta(id);
    let renamed = is_wanted.then(|| Notification::new(&*notification.method, &changed));
    renamed?.ok()
}

/// Returns the text of a response to a request of the server.
fn respond(id: &RequestId, member: &str, value: &str) -> String {
    let id = json!(id);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

fn into_transport(error: ConnectionError) -> TransportError {
    match error {
        ConnectionError::SessionEnded => {
            TransportError::interrupted("the server has ended the session")
        }
        ConnectionError::Transport(error) => error,
    }
}

fn unusable(error: &serde_json::Error) -> TransportError {
    TransportError::protocol(format!("the server sent a message that cannot be used: {error}"))
}
