//! The parts of a request that handlers and extractors read.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Extensions, HeaderMap};
use mrtr_codec::Principal;
use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::capabilities::{ClientCapabilities, Implementation};
use mrtr_schema::jsonrpc::Notification;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress, name};
use mrtr_transport::{
    GrantedScopes, NotificationSender, ProofKey, ProtocolVersion, WithoutParamHeaders,
};
use serde::Serialize;

use crate::runtime::Runtime;
use crate::state::StateMap;

/// A request as its handler sees it: the caller, and everything that arrived with the request.
///
/// [Extractors](crate::extract) create handler parameters from it.
///
/// Its [`Debug`](fmt::Debug) form has no headers, which may contain credentials.
pub struct RequestParts {
    pub(crate) meta: Arc<RequestMeta>,
    pub(crate) principal: Option<Principal>,
    pub(crate) headers: HeaderMap,
    pub(crate) notifier: Notifier,
    pub(crate) extensions: Extensions,
    pub(crate) runtime: Arc<Runtime>,
    /// The application state of the groups that contain the handler, the innermost first.
    pub(crate) group_states: Vec<Arc<StateMap>>,
    /// True if what the request names was hidden when its layers were chosen. It stays hidden, also
    /// if the rule allows it meanwhile: its layers would be missing.
    pub(crate) hides_target: bool,
}

impl RequestParts {
    /// Returns the authenticated caller, if a layer in front of the server established one.
    pub fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// Returns the HTTP headers of this request; empty for other transports. The headers of another
    /// round of the call may differ.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the extensions that layers in front of the server inserted into the request.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns application state given to [`ServerBuilder::state`](crate::ServerBuilder::state),
    /// or, in handlers and completions, to the [group](crate::FeatureGroup::state) of the feature.
    ///
    /// Handlers extract it with [`State`](crate::State), which is checked when the server is built.
    pub fn state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let of_group = self.group_states.iter().find_map(|state| state.get());
        of_group.or_else(|| self.runtime.state.get())
    }

    /// Returns the name and version that the client claims. Unverified: for display and logs.
    pub fn client(&self) -> Option<&Implementation> {
        self.meta.client_info.as_ref()
    }

    /// Returns the protocol revision that the client speaks: 2026-07-28, or a legacy one such as
    /// 2025-11-25 (feature `legacy` of `mrtr`).
    pub fn protocol_version(&self) -> &'static str {
        self.legacy_version().map_or(PROTOCOL_VERSION, |ProtocolVersion(version)| version)
    }

    fn legacy_version(&self) -> Option<&ProtocolVersion> {
        self.extensions.get()
    }

    /// Returns true if the client speaks a legacy revision.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy_version().is_some()
    }

    /// Returns true if the client mirrors arguments in headers: legacy revisions, and other wire
    /// formats than that of this revision, do not.
    pub(crate) fn mirrors_arguments(&self) -> bool {
        !self.headers.is_empty()
            && !self.is_legacy()
            && self.extensions.get::<WithoutParamHeaders>().is_none()
    }

    /// Returns the capabilities that the client declared with this request.
    pub fn capabilities(&self) -> &ClientCapabilities {
        capabilities(&self.meta)
    }

    /// Returns true if the client asked for progress notifications with this request.
    pub fn wants_progress(&self) -> bool {
        self.meta.progress_token.is_some()
    }

    /// Returns the least severe level of the log messages that the client asked for with this
    /// request. `None` if it asked for none. Deprecated in this revision.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.meta.log_level
    }

    /// Returns true if the client asked for log messages of this level.
    pub(crate) fn wants_log(&self, level: LogLevel) -> bool {
        self.log_level().is_some_and(|wanted| level >= wanted)
    }

    /// Sends a log message to the client, if it asked for its level.
    pub(crate) fn log(&self, message: &LogMessage) {
        if self.wants_log(message.level) {
            self.notifier.send(name::MESSAGE, message);
        }
    }

    /// Returns the trace context that the client sent with this request, if it is valid W3C Trace
    /// Context (specification: basic, "OpenTelemetry trace context").
    pub fn trace_context(&self) -> Option<TraceContext> {
        TraceContext::from_meta(&self.meta.other)
    }

    /// Returns true if the access token of this request has a scope (specification: authorization).
    /// A request over HTTP without a token has none. A request over stdio has all: the user has
    /// started the server.
    pub fn has_scope(&self, scope: &str) -> bool {
        match self.extensions.get::<GrantedScopes>() {
            Some(granted) => granted.contains(scope),
            None => self.has_all_scopes(),
        }
    }

    /// Returns true if the request may do everything: it came without HTTP.
    pub(crate) fn has_all_scopes(&self) -> bool {
        self.extensions.get::<GrantedScopes>().is_none() && self.headers.is_empty()
    }

    /// Returns the thumbprint of the key that the caller proves to have, if a layer in front of the
    /// server has checked a proof.
    pub(crate) fn proof_key(&self) -> Option<&str> {
        self.extensions.get::<ProofKey>().map(ProofKey::thumbprint)
    }

    /// Sends progress to the client, if the client asked for it. `muted` is true if an earlier
    /// round sent it.
    pub(crate) fn progress(
        &self,
        progress: f64,
        total: Option<f64>,
        message: Option<&str>,
        muted: bool,
    ) {
        let Some(token) = &self.meta.progress_token else { return };
        let mut params = Progress::new(token.clone(), progress);
        params.total = total.filter(|total| total.is_finite());
        params.message = message.map(str::to_owned);
        self.notifier.progress(&params, muted);
    }
}

impl fmt::Debug for RequestParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestParts")
            .field("principal", &self.principal)
            .field("client", &self.client())
            .field("protocol_version", &self.protocol_version())
            .finish_non_exhaustive()
    }
}

/// Returns the declared capabilities. Requests without them were already rejected.
pub(crate) fn capabilities(meta: &RequestMeta) -> &ClientCapabilities {
    static NONE: ClientCapabilities = ClientCapabilities::new();
    meta.client_capabilities.as_ref().unwrap_or(&NONE)
}

/// The notifications that are sent before the response.
#[derive(Debug)]
pub(crate) struct Notifier {
    state: Mutex<NotifierState>,
}

#[derive(Debug)]
struct NotifierState {
    outbox: NotificationSender,
    /// The last reported progress, including muted reports.
    last: Option<f64>,
}

impl Notifier {
    pub(crate) fn new(outbox: NotificationSender) -> Self {
        Self { state: Mutex::new(NotifierState { outbox, last: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, NotifierState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sender of notifications.
    pub(crate) fn outbox(&self) -> NotificationSender {
        self.lock().outbox.clone()
    }

    /// Returns true if a notification was sent.
    pub(crate) fn has_sent(&self) -> bool {
        self.lock().outbox.has_sent()
    }

    /// Drops all further notifications. The request then no longer counts as in flight, although
    /// its handler continues as a task.
    pub(crate) fn close(&self) {
        let outbox = std::mem::replace(&mut self.lock().outbox, NotificationSender::closed());
        // The lock is released first: this may wake the transport.
        drop(outbox);
    }

    /// Records progress if it is greater than the last, and sends it unless it is `muted`.
    fn progress(&self, params: &Progress, muted: bool) {
        // Locked until the notification is queued, so that concurrent tasks queue in order.
        let mut state = self.lock();
        let grows = state.last.is_none_or(|last| params.progress > last);
        if grows && params.progress.is_finite() {
            state.last = Some(params.progress);
            if !muted {
                send(&state.outbox, name::PROGRESS, params);
            }
        }
    }

    /// Waits for room in the queue, and queues a notification. Returns `false` if the client has
    /// disconnected.
    pub(crate) async fn send_waiting(&self, method: &str, params: &impl Serialize) -> bool {
        match Notification::new(method, params) {
            Ok(notification) => self.outbox().send(notification).await,
            Err(_) => false,
        }
    }

    /// Queues a notification. It is dropped if the queue is full or closed.
    pub(crate) fn send(&self, method: &str, params: &impl Serialize) {
        send(&self.outbox(), method, params);
    }
}

fn send(outbox: &NotificationSender, method: &str, params: &impl Serialize) {
    let sent = Notification::new(method, params).is_ok_and(|n| outbox.try_send(n));
    if !sent {
        tracing::debug!(target: "mrtr::server", method, "notification dropped");
    }
}
