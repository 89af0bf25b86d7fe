//! One upstream server.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mrtr_client::{CallError, Client, Transport};
use mrtr_schema::capabilities::{
    ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability,
};
use mrtr_schema::input::InputRequests;
use mrtr_schema::jsonrpc::{ErrorObject, code};
use mrtr_schema::peer_text::{quote, truncate};
use mrtr_schema::{Object, tasks};
use mrtr_server::manual::ManualContext;
use mrtr_server::{Error, RequestParts, retry_after};
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use crate::listed::{Keys, Offered, Ranks};
use crate::task_ids::TaskIds;

/// An upstream server, and what the gateway offers of it.
pub(crate) struct Upstream<T> {
    /// For logs and error messages.
    pub(crate) name: String,
    /// Its place among the upstreams.
    pub(crate) index: usize,
    prefix: String,
    /// The longer prefixes of other upstreams, which names of this one must not begin with.
    foreign: Vec<String>,
    pub(crate) client: Client<T>,
    /// The longest time for one round of a call, and for one request about a task.
    pub(crate) request_timeout: Duration,
    pub(crate) offered: Mutex<Offered>,
    /// What was disabled when its upstream stopped listing it. It stays disabled if it is listed
    /// again. Shared by all upstreams: one may list what another one listed before.
    pub(crate) disabled: Arc<Mutex<Keys>>,
    pub(crate) ranks: Arc<Mutex<Ranks>>,
    /// True if it makes tasks of calls, according to the last listing.
    pub(crate) has_tasks: AtomicBool,
    /// The ids of tasks; `None` if the gateway's server has tasks of its own.
    pub(crate) tasks: Option<TaskIds>,
    /// Permits of subscriptions to its tasks.
    pub(crate) task_watches: Arc<Semaphore>,
    /// Notified when what any upstream offers has changed.
    pub(crate) relisted: Arc<Notify>,
}

/// What all upstreams of a gateway have in common: see the fields of [`Upstream`].
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) request_timeout: Duration,
    pub(crate) tasks: Option<TaskIds>,
    pub(crate) disabled: Arc<Mutex<Keys>>,
    pub(crate) ranks: Arc<Mutex<Ranks>>,
    pub(crate) relisted: Arc<Notify>,
}

/// The most subscriptions to tasks of one upstream that are open at a time. Together with the 128
/// watched resources, they stay below the 256 requests that our servers accept at a time over
/// stdio.
const MAX_TASK_WATCHES: usize = 64;

const TIMED_OUT: &str = "did not answer in time";

impl<T: Transport> Upstream<T> {
    pub(crate) fn new(
        name: String,
        index: usize,
        prefix: String,
        foreign: Vec<String>,
        client: &Client<T>,
        shared: Shared,
    ) -> Self {
        let Shared { request_timeout, tasks, disabled, ranks, relisted } = shared;
        // Requests of the gateway's own open the session with a legacy server, for all callers.
        let declared = ClientCapabilities::new()
            .with_elicitation(ElicitationCapability::form())
            .with_sampling(SamplingCapability::new().with_tools(Object::new()))
            .with_roots(RootsCapability::default());
        let client = client.with_capabilities(declared).with_unvalidated_results();
        // The caller limits the rounds, as if it called the upstream itself.
        let limits = client.round_limits();
        let client = client
            .with_round_limits(limits.with_input_rounds(u32::MAX).with_state_rounds(u32::MAX));
        Self {
            name,
            index,
            prefix,
            foreign,
            client,
            request_timeout,
            offered: Mutex::default(),
            disabled,
            ranks,
            has_tasks: AtomicBool::default(),
            tasks,
            task_watches: Arc::new(Semaphore::new(MAX_TASK_WATCHES)),
            relisted,
        }
    }

    /// Returns the name under which the gateway offers a tool or prompt; `None` if it belongs to
    /// another upstream.
    pub(crate) fn offered_name(&self, name: &str) -> Option<String> {
        let offered = format!("{}{name}", self.prefix);
        (!self.foreign.iter().any(|foreign| offered.starts_with(foreign))).then_some(offered)
    }

    /// Returns true if the gateway offers the resource or the template with this key from here.
    pub(crate) fn offers_resource(&self, key: &str) -> bool {
        let offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        offered.keys.resources.contains(key) || offered.keys.templates.contains(key)
    }

    /// Returns the time that the gateway's server allows for a round: the request to the upstream
    /// times out first, so that the caller learns whose fault it is.
    pub(crate) fn handler_timeout(&self) -> Duration {
        self.request_timeout.saturating_add(Duration::from_secs(10))
    }

    /// Waits for the outcome of a request within the timeout, and converts its error.
    pub(crate) async fn outcome<R>(
        &self,
        request: impl Future<Output = Result<R, CallError>>,
    ) -> Result<R, Error> {
        self.outcome_within(self.request_timeout, request).await
    }

    /// Like [`outcome`](Self::outcome), within the shorter of both timeouts.
    pub(crate) async fn outcome_within<R>(
        &self,
        time: Duration,
        request: impl Future<Output = Result<R, CallError>>,
    ) -> Result<R, Error> {
        let time = time.min(self.request_timeout);
        let Ok(outcome) = timeout(time, request).await else {
            tracing::warn!(
                target: "mrtr::gateway",
                upstream = self.name,
                timeout = ?time,
                "upstream request timed out"
            );
            return Err(fault(TIMED_OUT));
        };
        outcome.map_err(|error| self.error(&error))
    }

    /// Returns a client for one round of a caller: it forwards progress and log messages.
    pub(crate) fn client_for(&self, cx: &ManualContext) -> Client<T> {
        let mut client = self.client_of(cx.parts()).with_pause_in_every_round();
        // Otherwise the questions and messages of one caller could reach another one. Callers
        // without an identity count as one caller.
        if let Some(principal) = cx.parts().principal() {
            client = client.with_caller(format!("{:?}", (principal.issuer(), principal.subject())));
        }
        let level = cx.parts().log_level().filter(|_| self.client.transport().correlates_logs());
        if let Some(level) = level {
            let cx = cx.clone();
            client = client.with_log(level, move |message| cx.log(&message));
        }
        if cx.parts().wants_progress() {
            let cx = cx.clone();
            client = client.with_progress(move |progress| {
                cx.progress(progress.progress, progress.total, progress.message.as_deref());
            });
        }
        client
    }

    /// Returns a client for one request of a caller: it declares the caller's capabilities, and
    /// continues its trace.
    pub(crate) fn client_of(&self, caller: &RequestParts) -> Client<T> {
        self.client_declaring(caller, self.declared(caller))
    }

    /// Returns a client for a request about a task. It declares the extension, even if the upstream
    /// has not been listed yet.
    pub(crate) fn client_of_task(&self, caller: &RequestParts) -> Client<T> {
        let declared = self.declared(caller);
        self.client_declaring(caller, declared.with_extension(tasks::EXTENSION, Object::new()))
    }

    /// Checks that an upstream asks only for what was declared on behalf of the caller.
    pub(crate) fn check_questions(
        &self,
        requests: &InputRequests,
        caller: &RequestParts,
    ) -> Result<(), Error> {
        let declared = self.declared(caller);
        for (key, request) in &requests.0 {
            if let Some(capability) = request.undeclared_capability(&declared) {
                tracing::warn!(
                    target: "mrtr::gateway",
                    upstream = self.name,
                    key = quote(key),
                    capability,
                    "the upstream asks for what was not declared"
                );
                return Err(Error::response(ErrorObject::internal(
                    "The upstream server sent an input request that the gateway does not forward",
                )));
            }
        }
        Ok(())
    }

    /// Returns the capabilities that are declared to the upstream on behalf of a caller.
    fn declared(&self, caller: &RequestParts) -> ClientCapabilities {
        let mut capabilities = caller.capabilities().clone();
        // Extensions are between the caller and the server that implements them: only tasks are
        // forwarded.
        let has_tasks = capabilities.has_extension(tasks::EXTENSION) && self.forwards_tasks();
        capabilities.extensions = None;
        if has_tasks {
            capabilities = capabilities.with_extension(tasks::EXTENSION, Object::new());
        }
        // A page would link an account to the gateway's identity, and so to all callers.
        if let Some(elicitation) = &mut capabilities.elicitation
            && elicitation.url.take().is_some()
            && elicitation.form.is_none()
        {
            // Without modes, it would declare forms.
            capabilities.elicitation = None;
        }
        capabilities
    }

    fn client_declaring(
        &self,
        caller: &RequestParts,
        capabilities: ClientCapabilities,
    ) -> Client<T> {
        let client = self.client.with_capabilities(capabilities);
        match caller.trace_context() {
            Some(mut context) => {
                // It may name the user, or the tenant.
                context.baggage = None;
                client.with_trace_context(context)
            }
            None => client,
        }
    }

    /// Converts the error of a call. The caller gets an upstream's own error as it is, unless it is
    /// about the gateway's request, or names a capability that the gateway does not forward.
    /// Everything else is only logged, since it may contain addresses.
    pub(crate) fn error(&self, error: &CallError) -> Error {
        let response = error.as_server_error();
        if let Some(response) = response.filter(|error| self.is_for_caller(error)) {
            return Error::response(response.clone());
        }
        if error.is_handler() {
            return Error::response(ErrorObject::invalid_params(format!(
                "Invalid params: {error}"
            )));
        }
        tracing::warn!(
            target: "mrtr::gateway",
            upstream = self.name,
            error = error as &dyn std::error::Error,
            "upstream call failed"
        );
        let why = match (error.is_timeout(), error.as_transport_error(), response) {
            (true, ..) => TIMED_OUT,
            (_, Some(transport), _) if transport.status() == Some(429) => OVERLOADED,
            (.., Some(response)) => self.refusal(response),
            (_, Some(_), _) => "is unreachable",
            _ => "cannot complete the call",
        };
        fault(why)
    }

    /// Converts the error of a task that has failed, as [`Upstream::error`] does.
    pub(crate) fn task_error(&self, error: ErrorObject) -> ErrorObject {
        if self.is_for_caller(&error) {
            return error;
        }
        let why = error.to_string();
        let why = &*truncate(&why);
        tracing::warn!(target: "mrtr::gateway", upstream = self.name, why, "upstream task failed");
        fault_response(self.refusal(&error))
    }

    /// Returns false if an error is about the gateway's request, or names a capability that the
    /// gateway does not forward.
    fn is_for_caller(&self, error: &ErrorObject) -> bool {
        !is_about_request(error) && !self.requires_unforwarded_capability(error)
    }

    /// Describes an error that is not for the caller.
    fn refusal(&self, error: &ErrorObject) -> &'static str {
        if retry_after(error).is_some() {
            OVERLOADED
        } else if self.requires_unforwarded_capability(error) {
            "requires a client capability that the gateway does not forward"
        } else {
            "refused the gateway's request"
        }
    }

    fn forwards_tasks(&self) -> bool {
        self.tasks.is_some() && self.has_tasks.load(Ordering::Relaxed)
    }

    /// Returns true if the upstream requires a capability that the gateway does not declare,
    /// whatever its caller declares.
    fn requires_unforwarded_capability(&self, error: &ErrorObject) -> bool {
        if error.code == URL_ELICITATION_REQUIRED {
            return true;
        }
        let required = error.data.as_ref().and_then(|data| data.get("requiredCapabilities"));
        let Some(required) = required else { return false };
        let extensions = required.get("extensions").and_then(Value::as_object);
        let is_forwarded = |name| name == tasks::EXTENSION && self.forwards_tasks();
        required.pointer("/elicitation/url").is_some()
            || extensions.is_some_and(|all| !all.keys().all(is_forwarded))
    }
}

/// The code of a legacy server whose user has to visit pages (2025-11-25, client: elicitation). The
/// user is that of the gateway's credentials.
const URL_ELICITATION_REQUIRED: i64 = -32_042;

/// Returns the error of a call that the upstream could not complete.
pub(crate) fn fault(why: &str) -> Error {
    Error::response(fault_response(why))
}

fn fault_response(why: &str) -> ErrorObject {
    ErrorObject::internal(format!("The upstream server {why}"))
}

const OVERLOADED: &str = "is overloaded";

/// Returns true if an error is about the request of the gateway itself: its form, headers, version,
/// method, scopes or rate. A transport would take it for one about the caller's request.
fn is_about_request(error: &ErrorObject) -> bool {
    let of_request = [
        code::PARSE_ERROR,
        code::INVALID_REQUEST,
        code::HEADER_MISMATCH,
        code::UNSUPPORTED_PROTOCOL_VERSION,
        code::METHOD_NOT_FOUND,
    ];
    let data = error.data.as_ref();
    let is_about_scopes =
        data.is_some_and(|data| data.get("reason") == Some(&"insufficient_scope".into()));
    let is_about_rate = retry_after(error).is_some();
    of_request.contains(&error.code) || is_about_scopes || is_about_rate
}

impl<T> fmt::Debug for Upstream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("name", &self.name).finish_non_exhaustive()
    }
}
