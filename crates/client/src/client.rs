//! The client handle and the state that its clones share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::capabilities::ClientCapabilities;
use mrtr_schema::jsonrpc::RequestId;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress};
use mrtr_transport::Transport;

use crate::cache::Cache;
use crate::call_options::CallOptions;
use crate::handlers::Handlers;
use crate::notifications::LogHandler;
use crate::observer::Observer;
use crate::policy::Policy;
use crate::request_ids::RequestIds;
use crate::round_limits::RoundLimits;
use crate::tool_info::{ToolInfo, ToolInfos};

/// A client of one server.
///
/// A call may take several rounds: while the server requests input, the client's handlers answer
/// all input requests of a round concurrently, and the call is sent again with their responses.
/// Dropping the future of a call cancels it, including its handlers.
///
/// A client built [`with_tasks`](crate::ClientBuilder::with_tasks) lets the server turn a tool
/// call into a task and complete it later. The client then polls the task
/// at the interval that the server states, and sends these requests again if a connection fails.
/// Dropping the future does not cancel the task; see
/// [`with_cancel_on_drop`](Self::with_cancel_on_drop) and [`Client::cancel`].
///
/// Lists, `server/discover` and resources are cached for as long as the server says they are
/// fresh, unless they took more than one round or a [`Subscription`](crate::Subscription) of this
/// client reports that they changed. See [`ClientBuilder::cache`](crate::ClientBuilder::cache).
///
/// Clones are cheap, and share the transport, the handlers and the cache. Methods named `with_…`
/// return a clone with other options for its calls.
///
/// ```
/// use mrtr_client::{CallError, Client, Transport};
/// use mrtr_schema::elicitation::ElicitResult;
/// use serde_json::json;
///
/// async fn book(transport: impl Transport) -> Result<String, CallError> {
///     let client = Client::builder(transport)
///         .on_form(async |_, _| Ok(ElicitResult::accept(json!({ "place": "outside" }))?))
///         .build();
///     for tool in client.list_tools().await? {
///         println!("{}", tool.name);
///     }
///     Ok(client.call_tool("book", json!({ "people": 2 })).await?.text())
/// }
/// ```
pub struct Client<T> {
    pub(crate) shared: Arc<Shared<T>>,
    pub(crate) options: CallOptions,
}

/// The state that clones of a client share.
pub(crate) struct Shared<T> {
    pub(crate) transport: T,
    pub(crate) handlers: Handlers,
    pub(crate) policy: Policy,
    pub(crate) observer: Observer,
    pub(crate) meta: RequestMeta,
    pub(crate) ids: RequestIds,
    pub(crate) cache: Cache,
    pub(crate) tools: ToolInfos,
    /// Result types of extensions that complete a call.
    pub(crate) result_types: Vec<String>,
}

impl<T> Client<T> {
    /// Returns the `_meta` that every request has.
    pub(crate) fn common_meta(&self) -> RequestMeta {
        let mut meta = self.shared.meta.clone();
        if let Some(capabilities) = &self.options.capabilities {
            meta.client_capabilities = Some((**capabilities).clone());
        }
        meta
    }

    /// Returns the `_meta` of a call's requests.
    pub(crate) fn request_meta(&self) -> RequestMeta {
        let mut meta = self.common_meta();
        meta.log_level = self.options.log.as_ref().map(|log| log.level);
        // A placeholder: the machine replaces it with the id of each request.
        meta.progress_token = self.options.progress.as_ref().map(|_| RequestId::Number(0));
        meta
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut CallOptions)) -> Self {
        let mut client = self.clone();
        change(&mut client.options);
        client
    }

    /// Returns a tool of the last listing, unless its results are not validated.
    pub(crate) fn validating(&self, tool: &str) -> Option<Arc<ToolInfo>> {
        self.shared.tools.get(tool).filter(|_| !self.options.unvalidated_results)
    }
}

impl<T: Transport> Client<T> {
    /// Returns the transport that this client sends its requests over.
    pub fn transport(&self) -> &T {
        &self.shared.transport
    }

    /// Returns the revision that is spoken with the server; `None` if the transport does not know
    /// it yet, before the first request.
    pub fn protocol_version(&self) -> Option<&'static str> {
        self.shared.transport.protocol_version()
    }

    /// Removes all results from the cache, so that the next calls reach the server.
    ///
    /// Call it to read lists that must be consistent with each other, and when the credentials
    /// become those of another user: a transport tells of other credentials
    /// ([`Transport::authorization_epoch`](crate::Transport::authorization_epoch)) only when it has
    /// sent them, and a cached result needs no request.
    pub fn clear_cache(&self) {
        self.shared.cache.clear();
    }

    /// Returns a client whose calls time out after `timeout`, with all their rounds.
    ///
    /// It replaces the timeout of
    /// [`ClientBuilder::call_timeout`](crate::ClientBuilder::call_timeout). A call that times out
    /// fails with [`CallError::is_timeout`](crate::CallError::is_timeout).
    ///
    /// ```
    /// # use mrtr_client::{CallError, Client, Transport};
    /// # async fn example<T: Transport>(client: Client<T>) -> Result<(), CallError> {
    /// use std::time::Duration;
    ///
    /// let quick = client.with_call_timeout(Duration::from_secs(5));
    /// match quick.list_tools().await {
    ///     Err(error) if error.is_timeout() => println!("{error}"),
    ///     listed => println!("{} tools", listed?.len()),
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_call_timeout(&self, timeout: Duration) -> Self {
        self.with(|options| options.timeout = Some(timeout))
    }

    /// Returns a client with other limits on the rounds of each call.
    ///
    /// They replace those of [`ClientBuilder::round_limits`](crate::ClientBuilder::round_limits).
    #[must_use]
    pub fn with_round_limits(&self, limits: RoundLimits) -> Self {
        self.with(|options| options.limits = limits)
    }

    /// Returns the limits on the rounds of each call.
    pub fn round_limits(&self) -> RoundLimits {
        self.options.limits
    }

    /// Returns a client whose calls carry a label, such as the name of a window, a conversation or
    /// a job.
    ///
    /// Handlers and the policy receive it in [`InputContext::label`](crate::InputContext::label),
    /// the observer in [`RequestInfo::label`](crate::RequestInfo::label). It is not sent to the
    /// server.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # async fn example<T: Transport>(client: Client<T>) {
    /// let first = client.with_label("window 1");
    /// let second = client.with_label("window 2");
    /// let arguments = serde_json::json!({ "people": 2 });
    /// let _both =
    ///     tokio::join!(first.call_tool("book", &arguments), second.call_tool("book", &arguments));
    /// # }
    /// ```
    #[must_use]
    pub fn with_label(&self, label: impl Into<Arc<str>>) -> Self {
        self.with(|options| options.label = Some(label.into()))
    }

    /// Returns a client that passes the progress of its calls to `handler`.
    ///
    /// It replaces the handler of
    /// [`ClientBuilder::on_progress`](crate::ClientBuilder::on_progress).
    #[must_use]
    pub fn with_progress(&self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.with(|options| options.progress = Some(Arc::new(handler)))
    }

    /// Returns a client that requests log messages of `level` and above, and passes those of its
    /// calls to `handler`. Deprecated in this revision.
    ///
    /// It replaces the handler of [`ClientBuilder::on_log`](crate::ClientBuilder::on_log).
    #[must_use]
    pub fn with_log(
        &self,
        level: LogLevel,
        handler: impl Fn(LogMessage) + Send + Sync + 'static,
    ) -> Self {
        let log = LogHandler { level, handle: Box::new(handler) };
        self.with(|options| options.log = Some(Arc::new(log)))
    }

    /// Returns a client whose calls belong to the trace of `context`.
    ///
    /// It replaces the source of
    /// [`ClientBuilder::trace_context`](crate::ClientBuilder::trace_context). A context that is not
    /// valid W3C Trace Context is not sent, and a warning is logged.
    #[must_use]
    pub fn with_trace_context(&self, context: TraceContext) -> Self {
        self.with(|options| options.trace = Some(Arc::new(move || Some(context.clone()))))
    }

    /// Returns a client whose calls and subscriptions declare these capabilities, instead of those
    /// that follow from its handlers.
    ///
    /// For clients that forward questions to others, such as gateways: start calls with
    /// [`Client::begin_tool`], which needs no handlers. A session with a server of a legacy
    /// revision has the capabilities of the request that opens it.
    #[must_use]
    pub fn with_capabilities(&self, capabilities: ClientCapabilities) -> Self {
        self.with(|options| options.capabilities = Some(Arc::new(capabilities)))
    }

    /// Returns a client whose [`begin_tool`](Client::begin_tool) and the like, and whose
    /// [`resume`](Client::resume), also return after a round without input requests: when the
    /// server has returned a request state alone. The outcome is
    /// [`Working`](crate::CallOutcome::Working), with a call that is no task. `resume` it without
    /// responses: that waits for a moment, and sends the state back.
    ///
    /// For clients that pass each round on, such as gateways. Methods that run a call until it is
    /// complete continue it by themselves.
    #[must_use]
    pub fn with_pause_in_every_round(&self) -> Self {
        self.with(|options| options.pause_in_every_round = true)
    }

    /// Returns a client that does not validate results of tools against the `outputSchema` of the
    /// last listing. Default: it does, with the feature `validate`.
    ///
    /// For clients that pass results on to others, which validate them.
    #[must_use]
    pub fn with_unvalidated_results(&self) -> Self {
        self.with(|options| options.unvalidated_results = true)
    }

    /// Returns a client for one of several callers that share the connection, such as the callers
    /// of a gateway. The key identifies the caller in this process, and is not sent to the server.
    /// Default: all calls are those of one caller.
    ///
    /// A server of a legacy revision may ask a question without naming the call: over stdio always,
    /// and over HTTP on the stream of the session. By default, such a question belongs to the call
    /// that began last. Once a call of this client is sent, such questions are refused for the rest
    /// of the session, since it is not known whose call asks.
    ///
    /// A call of a legacy server that waits for answers is kept in memory, at most 256 on one
    /// connection. A further one cancels a call: the oldest one of the caller that has the most.
    #[must_use]
    pub fn with_caller(&self, key: impl Into<Arc<str>>) -> Self {
        let key = key.into();
        self.with(|options| options.caller = Some(key))
    }

    /// Returns a client that sends a request again after a transient transport error, up to
    /// `retries` times in one call. Default: 0.
    ///
    /// Transient are a failed or interrupted connection, and the HTTP statuses 429, 502, 503 and
    /// 504. The server may have acted on the first request, so use this only for calls that may run
    /// twice: reads, and tools whose annotations have `idempotentHint`.
    ///
    /// A retry has the same request state, the same input responses and a new id. It is sent after
    /// 50 to 100 ms, twice as long for each further retry, plus the server's `Retry-After`. The
    /// call fails at once if `Retry-After` is longer than 30 s, or the delay is longer than the
    /// rest of the call's timeout.
    ///
    /// ```
    /// # use mrtr_client::{CallError, Client, Transport};
    /// # async fn example<T: Transport>(client: Client<T>) -> Result<(), CallError> {
    /// let contents = client.with_retries(3).read_resource("file:///notes.md").await?.contents;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_retries(&self, retries: u32) -> Self {
        self.with(|options| options.retries = retries)
    }
}

impl<T> Clone for Client<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), options: self.options.clone() }
    }
}

impl<T> fmt::Debug for Client<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("handlers", &self.shared.handlers).finish_non_exhaustive()
    }
}
