//! A legacy server, as a server of the current revision.
//!
//! A request of the server in the middle of a call becomes an input request, and the call is kept
//! here until its answers come. So a client has the same handlers, limits and hooks for both.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::input::InputRequiredResult;
use mrtr_schema::jsonrpc::{ErrorObject, Notification, Params, Request, RequestId, Response};
use mrtr_schema::meta::RequestMeta;
use mrtr_schema::method;
use mrtr_schema::notification::LogLevel;
use mrtr_schema::peer_text::quote;
use mrtr_schema::subscription::{
    Acknowledged, ListenParams, SubscriptionFilter, name, subscription_meta,
};
use mrtr_schema::tasks;
use mrtr_transport::{OutgoingRequest, TransportError};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep};

use super::connection::{self, Connection, ConnectionError, Incoming, Link, StreamEnd, unusable};
use super::open_session::{OpenSession, ResourceSubscription};
use super::pages;
use super::question::{self, Question, respond, respond_error};
use super::request::{ModernRequest, with_token};
use super::running_call::RunningCall;
use super::subscription::{announced, granted_filter};
use super::suspended::{SuspendedCall, SuspendedCalls};
use crate::LegacyVersion;
use crate::handshake::{InitializeParams, InitializeResult};
use crate::legacy_method;

/// How long after a question others are awaited, to be answered together with it.
const JOIN_WINDOW: Duration = Duration::from_millis(5);

/// The pauses before an answer is sent again that may not have arrived.
const ANSWER_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// The pauses before answers are sent again that were not accepted. The first is longer than a
/// server lets its clients wait before they resume a stream, by its default.
const REFUSED_PAUSES: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// How many messages are read in that time. Further ones wait for the next round.
const MAX_JOINED: usize = 64;

/// Maximum time between two questions, as a multiple of the timeout. Each message from the server
/// restarts the timeout, up to this total.
const MAX_WAIT_IN_TIMEOUTS: u32 = 30;

type OnNotification<'a> = dyn Fn(Notification) + Send + Sync + 'a;

pub(super) struct Adapter<C: Connection> {
    connection: Arc<C>,
    session: Mutex<Option<Arc<OpenSession<C>>>>,
    suspended: SuspendedCalls<C>,
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
        let mut capabilities = meta.client_capabilities.clone().unwrap_or_default();
        // The extension for tasks does not exist in legacy revisions.
        if let Some(extensions) = &mut capabilities.extensions {
            extensions.shift_remove(tasks::EXTENSION);
        }
        capabilities.extensions = capabilities.extensions.filter(|all| !all.is_empty());
        Self { capabilities, info: meta.client_info.clone().unwrap_or_else(unknown) }
    }
}

impl<C: Connection> Adapter<C> {
    pub(super) fn new(connection: C) -> Self {
        Self {
            connection: Arc::new(connection),
            session: Mutex::new(None),
            suspended: SuspendedCalls::default(),
        }
    }

    /// Returns the revision of the session, if there is one.
    pub(super) fn version(&self) -> Option<LegacyVersion> {
        let session = self.session.try_lock().ok()?;
        LegacyVersion::from_name(&session.as_ref()?.server.protocol_version)
    }

    /// Returns the session, and opens one if there is none.
    pub(super) async fn open(
        &self,
        client: &ClientFacts,
    ) -> Result<Arc<OpenSession<C>>, TransportError> {
        let mut session = self.session.lock().await;
        if let Some(session) = &*session {
            return Ok(Arc::clone(session));
        }
        let (server, link) = self.initialize(client).await?;
        let opened = Arc::new(OpenSession::open(server, link).await);
        *session = Some(Arc::clone(&opened));
        Ok(opened)
    }

    async fn initialize(
        &self,
        client: &ClientFacts,
    ) -> Result<(InitializeResult, Link<C>), TransportError> {
        let ClientFacts { capabilities, info } = client.clone();
        let params = InitializeParams::new(LegacyVersion::LATEST, capabilities, info);
        let params = Params::new(&params).map_err(|error| unusable(&error))?;
        let request = Request::new(RequestId::Number(0), legacy_method::INITIALIZE, Some(params));
        let (response, session) = self.connection.initialize(request).await?;
        let result = response.outcome.map_err(|error| {
            TransportError::protocol(format!("the server rejected `initialize`: {error}"))
        })?;
        let result: InitializeResult =
            serde_json::from_str(result.get()).map_err(|error| unusable(&error))?;
        if LegacyVersion::from_name(&result.protocol_version).is_none() {
            return Err(TransportError::protocol(format!(
                "the server speaks revision {} only, which this client does not",
                quote(&result.protocol_version)
            )));
        }
        let link = Link { connection: Arc::clone(&self.connection), session };
        let initialized = Notification::from_raw(legacy_method::INITIALIZED, None);
        link.post(connection::notification(&initialized)).await?;
        tracing::debug!(
            target: "mrtr::client",
            version = result.protocol_version,
            "session with a legacy server opened"
        );
        Ok((result, link))
    }

    /// Forgets a session, so that the next request opens another.
    async fn forget(&self, ended: &Arc<OpenSession<C>>) {
        ended.end();
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, ended)) {
            *session = None;
        }
    }

    /// Sends a request of the current revision.
    pub(super) async fn send(
        &self,
        outgoing: OutgoingRequest<'_>,
    ) -> Result<Response, TransportError> {
        let OutgoingRequest { request, on_notification, caller, .. } = outgoing;
        let id = request.id.clone();
        let modern = match ModernRequest::parse(request, caller) {
            Ok(modern) => modern,
            Err(error) => return Ok(Response::error(Some(id), error)),
        };
        let client = ClientFacts::of(&modern.meta);
        let open = async || {
            let session = self.open(&client).await?;
            if caller.is_some() {
                session.routes.set_shared();
            }
            Ok::<_, TransportError>(session)
        };
        let session = open().await?;
        match self.send_in(&session, &modern, on_notification).await {
            Err(ConnectionError::SessionEnded) => {
                // The server has not acted on the request (2025-11-25, transports: sessions).
                self.forget(&session).await;
                let session = open().await?;
                Ok(self.send_in(&session, &modern, on_notification).await?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Sends a request in a session. The error is [`ConnectionError::SessionEnded`] only if the
    /// server has not acted on the request.
    async fn send_in(
        &self,
        session: &Arc<OpenSession<C>>,
        modern: &ModernRequest,
        on_notification: &OnNotification<'_>,
    ) -> Result<Response, ConnectionError> {
        match modern.legacy.method.as_str() {
            method::DISCOVER => {
                let discovered = session.server.clone().into_discovery();
                let result = to_raw_value(&discovered).map_err(|error| unusable(&error))?;
                return Ok(Response { id: Some(modern.legacy.id.clone()), outcome: Ok(result) });
            }
            method::LISTEN => return self.listen(session, modern, on_notification).await,
            _ => {}
        }
        self.set_log_level(session, modern.meta.log_level).await?;
        match modern.state.as_deref() {
            Some(pages::STATE) if !pages::were_visited(&modern.responses) => {
                let id = Some(modern.legacy.id.clone());
                return Ok(Response::error(id, pages::not_visited()));
            }
            None | Some(pages::STATE) => {}
            Some(_) => {
                let resumed = self.resume(modern, on_notification).await;
                return resumed.map_err(|error| lost(error).into());
            }
        }
        if session.routes.end().is_some_and(|end| end != StreamEnd::Final) {
            // The server may ask there.
            session.listen_again().await;
        }
        let routes = Some(Arc::clone(&session.routes));
        let running = RunningCall::start(session.link.clone(), routes, modern.legacy.clone());
        self.follow(running, modern, on_notification).await
    }

    /// Continues a call with the answers to its questions, in the session in which it began.
    async fn resume(
        &self,
        modern: &ModernRequest,
        on_notification: &OnNotification<'_>,
    ) -> Result<Response, TransportError> {
        let state = modern.state.as_deref().unwrap_or_default();
        let call = match self.suspended.take(state, &modern.target) {
            Ok(call) => call,
            Err(message) => {
                let error = ErrorObject::invalid_params(message)
                    .with_data(json!({ "reason": "invalid_request_state" }));
                return Ok(Response::error(Some(modern.legacy.id.clone()), error));
            }
        };
        let messages = call.answers(&modern.responses).map(|(question, answer)| match answer {
            Some(result) => respond(question, "result", result),
            None => respond_error(question, &ErrorObject::internal("the client did not answer")),
        });
        let mut messages = messages.collect::<Vec<_>>().into_iter();
        let mut refused = Vec::new();
        for message in messages.by_ref() {
            match post_answer(&call.running.link, &message).await {
                Ok(()) => {}
                Err(ended @ ConnectionError::SessionEnded) => return Err(ended.into()),
                // The replica that asked may be gone, or may not have the session any more. What
                // comes next tells: the question again, or an error.
                Err(ConnectionError::Transport(error)) => {
                    tracing::warn!(target: "mrtr::client", %error, "an answer was not accepted");
                    refused.push(message);
                    if error.is_transient() {
                        break;
                    }
                }
            }
        }
        if !refused.is_empty() {
            call.running.reconnect().notify_one();
        }
        // The server cannot be reached, and each attempt may take the timeout of a request.
        let others = messages.map(|message| async {
            let posted = call.running.link.post(message.clone()).await;
            posted.is_err().then_some(message)
        });
        refused.extend(join_all(others).await.into_iter().flatten());
        let (link, stream) = (call.running.link.clone(), call.running.reconnect());
        let followed = self.follow(call.running, modern, on_notification);
        tokio::select! {
            followed = followed => Ok(followed?),
            never = insist(&link, &stream, refused) => match never {},
        }
    }

    /// Reads the messages of a call until its response, or until the server asks something.
    async fn follow(
        &self,
        mut running: RunningCall<C>,
        modern: &ModernRequest,
        on_notification: &OnNotification<'_>,
    ) -> Result<Response, ConnectionError> {
        let id = Some(modern.legacy.id.clone());
        let mut questions = Vec::new();
        let read = read(&mut running, modern, on_notification, &mut questions).await;
        if !matches!(read, Ok(None)) {
            let unanswered = questions.drain(..).map(|(id, _)| id);
            question::reject_all(&running.link, unanswered.collect());
        }
        if let Some(Response { outcome, .. }) = read? {
            let capabilities = modern.meta.client_capabilities.clone().unwrap_or_default();
            let pages = outcome
                .as_ref()
                .err()
                .and_then(|error| to_raw_value(&pages::required(error, &capabilities)?).ok());
            return Ok(Response { id, outcome: pages.map_or(outcome, Ok) });
        }
        let (keys, requests): (Vec<_>, Vec<_>) = questions
            .into_iter()
            .enumerate()
            .map(|(n, (question, request))| {
                let key = format!("{}-{}", request.method().replace('/', "-"), n + 1);
                ((key.clone(), question), (key, request))
            })
            .unzip();
        let target = modern.target.clone();
        let call = SuspendedCall { running, target, questions: keys };
        let state = self.suspended.insert(call).map_err(|error| {
            TransportError::interrupted(format!("the system has no random numbers: {error}"))
        })?;
        let result = InputRequiredResult::new(requests, Some(state));
        let result = to_raw_value(&result).map_err(|error| unusable(&error))?;
        Ok(Response { id, outcome: Ok(result) })
    }

    /// Tells the server the least severe level of log messages, if it has changed.
    async fn set_log_level(
        &self,
        session: &OpenSession<C>,
        level: Option<LogLevel>,
    ) -> Result<(), ConnectionError> {
        let accepted = || session.log_level.lock().unwrap_or_else(PoisonError::into_inner);
        let has_logging = session.server.capabilities.logging.is_some();
        if level.is_none() || !has_logging || *accepted() == level {
            return Ok(());
        }
        session.request(legacy_method::SET_LEVEL, &json!({ "level": level })).await?;
        *accepted() = level;
        Ok(())
    }

    /// Serves `subscriptions/listen` by what the server announces to its session.
    async fn listen(
        &self,
        session: &Arc<OpenSession<C>>,
        modern: &ModernRequest,
        on_notification: &OnNotification<'_>,
    ) -> Result<Response, ConnectionError> {
        let id = &modern.legacy.id;
        let asked = match ListenParams::from_request(&modern.legacy) {
            Ok(params) => params.notifications,
            Err(error) => return Ok(Response::error(Some(id.clone()), error)),
        };
        if session.routes.end().is_some() {
            // The stream may have ended with the session. An answer shows that it has not.
            session.request(legacy_method::PING, &json!({})).await?;
        }
        session.listen_again().await;
        let (mut granted, mut changes) = if session.routes.end() == Some(StreamEnd::Final) {
            // The server has no such stream.
            (SubscriptionFilter::new(), session.routes.subscribe_idle())
        } else {
            (granted_filter(asked, &session.server), session.routes.subscribe())
        };
        let mut subscriptions = Vec::new();
        for uri in std::mem::take(&mut granted.resource_subscriptions) {
            if let Some(subscription) = ResourceSubscription::begin(session, &uri).await? {
                subscriptions.push(subscription);
                granted.resource_subscriptions.push(uri);
            }
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
        Err(TransportError::interrupted("the stream of changes has ended").into())
    }
}

/// Makes the error of a resumed call permanent. No retry can help: the call has ended at the
/// server, or its messages can no longer be read.
fn lost(error: TransportError) -> TransportError {
    if !error.is_transient() {
        return error;
    }
    TransportError::interrupted("the suspended call is lost and cannot be resumed: call again")
        .with_source(error)
        .permanent()
}

/// Sends an answer, and repeats it if it may not have arrived. The server accepts it once.
async fn post_answer<C: Connection>(link: &Link<C>, message: &str) -> Result<(), ConnectionError> {
    for pause in ANSWER_PAUSES {
        match link.post(message.to_owned()).await {
            Err(ConnectionError::Transport(error)) if error.is_transient() => sleep(pause).await,
            outcome => return outcome,
        }
    }
    link.post(message.to_owned()).await
}

/// Resumes the stream of a call whose answers were not accepted, and sends these again.
///
/// The replica at which the stream is resumed continues the call, and asks again if it does not
/// know the questions. It may also be the one that asked, if only the answers went to another: that
/// one waits for them.
async fn insist<C: Connection>(
    link: &Link<C>,
    stream: &Notify,
    mut refused: Vec<String>,
) -> Infallible {
    for pause in REFUSED_PAUSES {
        if refused.is_empty() {
            break;
        }
        stream.notify_one();
        sleep(pause).await;
        let mut still_refused = Vec::new();
        for answer in refused {
            if link.post(answer.clone()).await.is_err() {
                still_refused.push(answer);
            }
        }
        refused = still_refused;
    }
    // What comes next, if anything does, is read from the stream.
    std::future::pending().await
}

/// Reads the messages of a call until its response, or until the server has asked `questions`.
async fn read<C: Connection>(
    running: &mut RunningCall<C>,
    modern: &ModernRequest,
    on_notification: &OnNotification<'_>,
    questions: &mut Vec<Question>,
) -> Result<Option<Response>, ConnectionError> {
    let capabilities = modern.meta.client_capabilities.clone().unwrap_or_default();
    let mut window_end = None;
    let mut joined = 0;
    let limit = running.link.connection.timeout();
    let total = limit.saturating_mul(MAX_WAIT_IN_TIMEOUTS);
    let end = Instant::now().checked_add(total);
    // A message that has arrived is read even if the time is over, and there may always be one.
    let is_over = |end: Option<Instant>| end.is_some_and(|end| Instant::now() >= end);
    loop {
        let next = match window_end {
            None => {
                let late = || {
                    TransportError::interrupted(format!(
                        "the server did not answer the request within {total:?}"
                    ))
                };
                if is_over(end) {
                    return Err(late().into());
                }
                let silence = tokio::time::timeout(limit, running.next());
                let next = match end {
                    Some(end) => tokio::time::timeout_at(end, silence).await.map_err(|_| late())?,
                    None => silence.await,
                };
                next.map_err(|_| {
                    let why = format!("the server sent nothing about the request for {limit:?}");
                    TransportError::interrupted(why)
                })?
            }
            Some(_) if joined == MAX_JOINED || is_over(window_end) => return Ok(None),
            // Questions that were asked together are answered together.
            Some(end) => match tokio::time::timeout_at(end, running.next()).await {
                Ok(next) => next,
                Err(_) => return Ok(None),
            },
        };
        match next {
            Some(Incoming::Notification(notification)) => {
                on_notification(with_token(notification, modern.meta.progress_token.as_ref()));
            }
            Some(Incoming::Request(request)) => {
                let question = question::receive(&running.link, request, &capabilities).await;
                questions.extend(question);
            }
            Some(Incoming::Response(response)) => return Ok(Some(response?)),
            None => {
                let why = "the connection ended before the response";
                return Err(TransportError::interrupted(why).into());
            }
        }
        if window_end.is_some() {
            joined += 1;
        } else if !questions.is_empty() {
            window_end = Some(Instant::now() + JOIN_WINDOW);
        }
    }
}
