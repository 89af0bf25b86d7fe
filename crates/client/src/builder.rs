//! Configuration of a client.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::apps;
use mrtr_schema::capabilities::Implementation;
use mrtr_schema::elicitation::{ElicitResult, FormParams, UrlParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress};
use mrtr_schema::roots::Root;
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_schema::tasks;
use mrtr_schema::{Object, PROTOCOL_VERSION};
use mrtr_transport::{BoxError, Transport};

use crate::cache::Cache;
use crate::call_options::CallOptions;
use crate::client::{Client, Shared};
use crate::handlers::{Handlers, boxed};
use crate::input_context::InputContext;
use crate::notifications::LogHandler;
use crate::observer::{CallEvent, Observer};
use crate::policy::{Policy, PolicyDecision};
use crate::request_ids::RequestIds;
use crate::round_limits::RoundLimits;
use crate::tool_info::ToolInfos;
use crate::user_time::UserTime;

/// The default size of the cache: about 4,000 listed tools of 1 KB each.
const DEFAULT_CACHE_BYTES: usize = 4 << 20;

/// Builds a [`Client`].
///
/// The client declares a capability for each kind of handler it has, and no other. Servers only
/// request input that the client declared. Extensions are declared only if
/// [`with_tasks`](Self::with_tasks), [`with_apps`](Self::with_apps) or
/// [`extension`](Self::extension) is called.
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_client::{Client, Transport};
/// use mrtr_schema::elicitation::ElicitResult;
///
/// fn client<T: Transport>(transport: T) -> Client<T> {
///     Client::builder(transport)
///         .on_form(async |_, _| Ok(ElicitResult::decline()))
///         .on_progress(|progress| println!("{}", progress.progress))
///         .call_timeout(Duration::from_secs(60))
///         .exclude_handler_time()
///         .build()
/// }
/// ```
#[must_use = "call `build`"]
pub struct ClientBuilder<T> {
    transport: T,
    handlers: Handlers,
    policy: Policy,
    observer: Observer,
    info: Implementation,
    options: CallOptions,
    cache_bytes: usize,
    extensions: Object,
    result_types: Vec<String>,
}

impl<T: Transport> Client<T> {
    /// Returns a client builder whose client sends its requests over `transport`.
    pub fn builder(transport: T) -> ClientBuilder<T> {
        ClientBuilder {
            transport,
            handlers: Handlers::default(),
            policy: Policy::default(),
            observer: Observer::default(),
            info: Implementation::new("mrtr", env!("CARGO_PKG_VERSION")),
            options: CallOptions::default(),
            cache_bytes: DEFAULT_CACHE_BYTES,
            extensions: Object::new(),
            result_types: Vec::new(),
        }
    }
}

impl<T: Transport> ClientBuilder<T> {
    /// Sets the name and version that the client reports to servers. Default: those of this crate.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Sets the handler of forms, and declares the capability `elicitation.form`.
    ///
    /// The result is validated against the form before it is sent. An error of the handler, or a
    /// result that does not match the form, ends the call with
    /// [`CallError::is_handler`](crate::CallError::is_handler).
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # fn example<T: Transport>(transport: T) -> Client<T> {
    /// use mrtr_schema::elicitation::ElicitResult;
    /// use serde_json::json;
    ///
    /// Client::builder(transport)
    ///     .on_form(async |context, form| {
    ///         println!("{} asks: {}", context.target, form.message);
    ///         if form.requested_schema.field("place").is_none() {
    ///             return Ok(ElicitResult::decline());
    ///         }
    ///         Ok(ElicitResult::accept(json!({ "place": "outside" }))?)
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn on_form<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(InputContext, FormParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, BoxError>> + Send + 'static,
    {
        self.handlers.form = Some(boxed(handler));
        self
    }

    /// Sets the handler of URLs that the user is asked to visit, and declares the capability
    /// `elicitation.url`.
    ///
    /// The handler must show the whole URL and its host, open it only with the user's consent, and
    /// never fetch it itself. It returns when the user consented, without waiting for what happens
    /// at the URL.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # async fn user_consents(host: &str, url: &str) -> bool { false }
    /// # fn example<T: Transport>(transport: T) -> Client<T> {
    /// use mrtr_schema::elicitation::ElicitResult;
    ///
    /// Client::builder(transport)
    ///     .on_url(async |_, params| {
    ///         let consents = user_consents(params.host(), &params.url).await;
    ///         Ok(if consents { ElicitResult::accept_url() } else { ElicitResult::decline() })
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn on_url<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(InputContext, UrlParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, BoxError>> + Send + 'static,
    {
        self.handlers.url = Some(boxed(handler));
        self
    }

    /// Sets the handler that calls a language model, and declares the capability `sampling`, which
    /// is deprecated in this revision.
    ///
    /// Requests with tools or with the context of servers are refused, unless
    /// [`sampling_tools`](Self::sampling_tools) or [`sampling_context`](Self::sampling_context)
    /// accepts them.
    pub fn on_sample<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(InputContext, CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult, BoxError>> + Send + 'static,
    {
        self.handlers.sample = Some(boxed(handler));
        self
    }

    /// Accepts sampling requests with tools, and declares the capability `sampling.tools`.
    ///
    /// Without it, such requests end the call with an error. It has no effect without
    /// [`on_sample`](Self::on_sample). The handler passes the tools to the model, and may return
    /// tool uses; the server runs the tools, and sends their results with its next request.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
    /// # async fn ask_model(params: &CreateMessageParams) -> CreateMessageResult {
    /// #     CreateMessageResult::text("Paris", "model")
    /// # }
    /// # fn example<T: Transport>(transport: T) -> Client<T> {
    /// Client::builder(transport)
    ///     .on_sample(async |_, params| {
    ///         println!("{} tools", params.tools.iter().flatten().count());
    ///         Ok(ask_model(&params).await)
    ///     })
    ///     .sampling_tools()
    ///     .build()
    /// # }
    /// ```
    pub fn sampling_tools(mut self) -> Self {
        self.handlers.sampling_tools = true;
        self
    }

    /// Declares the capability `sampling.context`: the handler of sampling requests gets an
    /// `includeContext` of `thisServer` or `allServers`, and adds the context of these servers to
    /// the messages.
    ///
    /// Without it, `includeContext` is ignored. It has no effect without
    /// [`on_sample`](Self::on_sample).
    pub fn sampling_context(mut self) -> Self {
        self.handlers.sampling_context = true;
        self
    }

    /// Sets the handler that lists roots, and declares the capability `roots`, which is deprecated
    /// in this revision.
    pub fn on_roots<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(InputContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Root>, BoxError>> + Send + 'static,
    {
        self.handlers.roots = Some(boxed(move |context, ()| handler(context)));
        self
    }

    /// Sets the handler of progress notifications, and requests progress with every call.
    /// [`Client::with_progress`] sets another one for some calls.
    pub fn on_progress(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.options.progress = Some(Arc::new(handler));
        self
    }

    /// Sets the handler of log messages, and requests those of `level` and above with every call.
    /// [`Client::with_log`] sets another one for some calls. Deprecated in this revision.
    pub fn on_log(
        mut self,
        level: LogLevel,
        handler: impl Fn(LogMessage) + Send + Sync + 'static,
    ) -> Self {
        self.options.log = Some(Arc::new(LogHandler { level, handle: Box::new(handler) }));
        self
    }

    /// Sets the limits on the rounds of a call. See [`RoundLimits`] for the defaults.
    pub fn round_limits(mut self, limits: RoundLimits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Sets the time that a call may take with all its rounds. Default: unlimited, apart from the
    /// transport's timeout of each request.
    ///
    /// [`Client::with_call_timeout`] sets another one for some calls.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Excludes the time that handlers take from the timeout of a call. Default: included.
    pub fn exclude_handler_time(mut self) -> Self {
        self.options.exclude_handler_time = true;
        self
    }

    /// Excludes the time for which requests wait for the user from the timeout of a call. Default:
    /// included.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use mrtr_client::{Client, Transport, UserTime};
    ///
    /// # fn example(transport: impl Transport) {
    /// let user_time = UserTime::default();
    /// let client = Client::builder(transport)
    ///     .call_timeout(Duration::from_secs(60))
    ///     .exclude_user_time(user_time.clone())
    ///     .build();
    ///
    /// // Where the credentials of the transport ask the user to log in:
    /// let waiting = user_time.begin();
    /// // …
    /// drop(waiting);
    /// # }
    /// ```
    pub fn exclude_user_time(mut self, time: UserTime) -> Self {
        self.options.user_time = Some(time);
        self
    }

    /// Sets the observer, which is called before and after each request and each input request.
    ///
    /// It runs inline, so it should return quickly. A call that is dropped or times out does not
    /// report the end of what was in progress.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # fn example<T: Transport>(transport: T) -> Client<T> {
    /// use mrtr_client::CallEvent;
    ///
    /// Client::builder(transport)
    ///     .on_event(|event| {
    ///         if let CallEvent::RequestFinished { request, elapsed, outcome, .. } = event {
    ///             let outcome = if outcome.is_ok() { "succeeded" } else { "failed" };
    ///             println!("{} {} {outcome} in {elapsed:?}", request.method, request.target);
    ///         }
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn on_event(mut self, observer: impl Fn(CallEvent<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(observer);
        self
    }

    /// Sets the source of trace contexts, so that all rounds of a call belong to one trace across
    /// the client and the server's replicas.
    ///
    /// It is called once for each request, inside the span of the request (if that is enabled), and
    /// the context is sent in `_meta`. With `tracing-opentelemetry`, inject the context of
    /// `tracing::Span::current()`.
    ///
    /// Spans have the target `mrtr::client` and the level DEBUG. Each call has one, and each
    /// request has one inside it, with the fields of OpenTelemetry's semantic conventions for this
    /// protocol (`mcp.method.name`, `gen_ai.tool.name`, `jsonrpc.request.id`, `error.type`),
    /// `otel.name` and `otel.kind`.
    pub fn trace_context(
        mut self,
        source: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.options.trace = Some(Arc::new(source));
        self
    }

    /// Sets the policy, which decides on each input request before its handler sees it. Default:
    /// [`PolicyDecision::Allow`].
    ///
    /// An error of the policy ends the call. Input requests that the application answers itself,
    /// with [`Client::resume`], do not reach the policy.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport};
    /// # fn example<T: Transport>(transport: T) -> Client<T> {
    /// use mrtr_client::PolicyDecision;
    /// use mrtr_schema::input::InputRequest;
    ///
    /// Client::builder(transport)
    ///     .policy(async |context, request| {
    ///         Ok(match request {
    ///             InputRequest::Roots if context.target != "search" => {
    ///                 PolicyDecision::Refuse("only `search` may list roots".to_owned())
    ///             }
    ///             InputRequest::Elicit(_) if context.input_round > 3 => PolicyDecision::Decline,
    ///             _ => PolicyDecision::Allow,
    ///         })
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn policy<F, Fut>(mut self, policy: F) -> Self
    where
        F: Fn(InputContext, InputRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PolicyDecision, BoxError>> + Send + 'static,
    {
        self.policy = Policy::new(policy);
        self
    }

    /// Sets the size of the cache in bytes; 0 disables it. Default: 4 MiB. When the cache is full,
    /// the oldest results are removed.
    ///
    /// The cache belongs to this client and its clones. Call [`Client::clear_cache`] when the
    /// credentials of the transport change.
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Declares the extension for tasks (`io.modelcontextprotocol/tasks`): the server can then turn
    /// a tool call into a task, and complete it after its response. [`Client`] describes how calls
    /// wait for their task. Default: not declared, and a task is an invalid response.
    ///
    /// A client that resumes or cancels a task of another client needs the extension, too. It is
    /// not declared to legacy servers, which do not have it.
    pub fn with_tasks(self) -> Self {
        self.extension(tasks::EXTENSION, Object::new())
    }

    /// Declares MCP Apps (`io.modelcontextprotocol/ui`): the application shows UI
    /// resources of servers. Default: not declared. [`Client::read_ui_resource`] reads one.
    ///
    /// Do not give app-only tools to the model:
    /// [`ToolUiMeta::is_for_model`](mrtr_schema::apps::ToolUiMeta::is_for_model).
    pub fn with_apps(self) -> Self {
        self.extension(apps::EXTENSION, apps::client_settings())
    }

    /// Declares an extension of the protocol, with its settings.
    pub fn extension(mut self, identifier: impl Into<String>, settings: Object) -> Self {
        self.extensions.insert(identifier.into(), settings.into());
        self
    }

    /// Accepts results with a `resultType` that an extension defines. Others are rejected.
    ///
    /// Make such calls with [`Client::request`]: the typed calls read every result as their own
    /// type.
    pub fn accept_result_type(mut self, name: impl Into<String>) -> Self {
        self.result_types.push(name.into());
        self
    }

    /// Builds the client. Nothing is sent yet.
    pub fn build(self) -> Client<T> {
        let mut capabilities = self.handlers.capabilities();
        capabilities.extensions = Some(self.extensions).filter(|all| !all.is_empty());
        let mut meta = RequestMeta::default();
        meta.protocol_version = Some(PROTOCOL_VERSION.to_owned());
        meta.client_capabilities = Some(capabilities);
        meta.client_info = Some(self.info);
        let shared = Shared {
            transport: self.transport,
            handlers: self.handlers,
            policy: self.policy,
            observer: self.observer,
            meta,
            ids: RequestIds::default(),
            cache: Cache::new(self.cache_bytes),
            tools: ToolInfos::default(),
            result_types: self.result_types,
        };
        Client { shared: Arc::new(shared), options: self.options }
    }
}

impl<T> fmt::Debug for ClientBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
