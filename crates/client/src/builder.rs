//! How a client is put together.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mrtr_schema::capabilities::Implementation;
use mrtr_schema::elicitation::{ElicitResult, FormParams, UrlParams};
use mrtr_schema::input::InputRequest;
use mrtr_schema::meta::{RequestMeta, TraceContext};
use mrtr_schema::notification::{LogLevel, LogMessage, Progress};
use mrtr_schema::roots::Root;
use mrtr_schema::sampling::{CreateMessageParams, CreateMessageResult};
use mrtr_schema::{Object, PROTOCOL_VERSION};
use mrtr_transport::{BoxError, Transport};

use crate::cache::Cache;
use crate::call_options::Options;
use crate::client::{Client, Inner};
use crate::handlers::{Handlers, Question, boxed};
use crate::machine::{RequestIds, RoundLimits};
use crate::notifications::Log;
use crate::observer::{CallEvent, PolicyDecision, Watch};

/// Builds a [`Client`].
#[must_use = "call `build`"]
pub struct ClientBuilder<X> {
    exchange: X,
    handlers: Handlers,
    info: Implementation,
    limits: RoundLimits,
    options: Options,
    watch: Watch,
    log: Option<Log>,
    cache: usize,
    extensions: Object,
    result_types: Vec<String>,
}

impl<X: Transport> ClientBuilder<X> {
    pub(crate) fn new(exchange: X) -> Self {
        Self {
            exchange,
            handlers: Handlers::default(),
            info: Implementation::new("mrtr", env!("CARGO_PKG_VERSION")),
            limits: RoundLimits::default(),
            options: Options::default(),
            watch: Watch::default(),
            log: None,
            cache: 4 << 20,
            extensions: Object::new(),
            result_types: Vec::new(),
        }
    }

    /// Who this client says it is. Default: this crate.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Answers forms. Declares the capability `elicitation.form`.
    ///
    /// What it returns is held against the form before it is sent. An error ends the call.
    pub fn on_form<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question, FormParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, BoxError>> + Send + 'static,
    {
        self.handlers.form = Some(boxed(handler));
        self
    }

    /// Takes people to URLs. Declares the capability `elicitation.url`.
    ///
    /// Show the whole URL and its host, and open it only with the person's consent; never fetch it.
    pub fn on_url<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question, UrlParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ElicitResult, BoxError>> + Send + 'static,
    {
        self.handlers.url = Some(boxed(handler));
        self
    }

    /// Calls a language model. Declares the capability `sampling`, which is deprecated in this revision.
    pub fn on_sample<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question, CreateMessageParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<CreateMessageResult, BoxError>> + Send + 'static,
    {
        self.handlers.sample = Some(boxed(handler));
        self
    }

    /// Lists roots. Declares the capability `roots`, which is deprecated in this revision.
    pub fn on_roots<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Question) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<Root>, BoxError>> + Send + 'static,
    {
        self.handlers.roots = Some(boxed(move |question, ()| handler(question)));
        self
    }

    /// Hears how far calls have come. Asks servers for progress with every request. [`Client::with_progress`] is for some calls.
    pub fn on_progress(mut self, hear: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.options.progress = Some(Arc::new(hear));
        self
    }

    /// Hears log messages from `level` on. Asks servers for them with every request; deprecated in this
    /// revision.
    pub fn on_log(
        mut self,
        level: LogLevel,
        hear: impl Fn(LogMessage) + Send + Sync + 'static,
    ) -> Self {
        self.log = Some((level, Box::new(hear)));
        self
    }

    /// How often a server may ask back. Default: 10 rounds with questions and 10 without.
    pub fn round_limits(mut self, limits: RoundLimits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a whole call may take, with all its rounds. Default: no limit; each request has the
    /// transport's. [`Client::with_call_timeout`] sets another for some calls.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.options.deadline = Some(time);
        self
    }

    /// Lets the deadline stand still while handlers answer: it is for the server, and not for people.
    pub fn exclude_handler_time(mut self) -> Self {
        self.options.exclude_handler_time = true;
        self
    }

    /// Looks on: sees every leg of every call, and every question that goes to a handler, before and after. A call that is dropped, or
    /// whose deadline passes, shows no end. It is called in line, so it should be quick.
    pub fn watch(mut self, watcher: impl Fn(CallEvent<'_>) + Send + Sync + 'static) -> Self {
        self.watch.watcher = Some(Box::new(watcher));
        self
    }

    /// Says which trace each request belongs to, so that all rounds of a call are one trace across client and replicas. It is called in
    /// the request's own span, once for each request, and what it gives goes into `_meta`. With `tracing-opentelemetry`, inject
    /// the context of `tracing::Span::current()`.
    ///
    /// Spans have the target `mrtr::client`: one for the call, and in it one for each request, whose fields are those of the
    /// semantic conventions of OpenTelemetry for this protocol (`mcp.method.name`, `gen_ai.tool.name`, `jsonrpc.request.id`,
    /// `error.type`), with `otel.name` and `otel.kind`.
    pub fn trace_context(
        mut self,
        tracer: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.watch.tracer = Some(Box::new(tracer));
        self
    }

    /// Decides what becomes of each question before its handler sees it: by its kind, the tool, the round, or by asking
    /// somebody. An error of it ends the call. Whoever answers by [`Client::resume`] decides for themselves.
    ///
    /// ```
    /// # use mrtr_client::{Client, Transport, PolicyDecision};
    /// # use mrtr_schema::input::InputRequest;
    /// # fn example<X: Transport>(connection: X) -> Client<X> {
    /// Client::builder(connection)
    ///     .policy(async |question, request| {
    ///         Ok(match request {
    ///             InputRequest::Roots if question.target != "search" => {
    ///                 PolicyDecision::Refuse("only `search` may know our folders".to_owned())
    ///             }
    ///             _ => PolicyDecision::Allow,
    ///         })
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn policy<F, Fut>(mut self, policy: F) -> Self
    where
        F: Fn(Question, InputRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<PolicyDecision, BoxError>> + Send + 'static,
    {
        self.watch.judge_by(policy);
        self
    }

    /// How many bytes of results may be kept for reuse, while the server says they are fresh. 0 keeps none.
    /// Default: 4 MiB; the oldest give way.
    ///
    /// What is kept is for this client and its clones alone. A connection whose credentials change needs
    /// [`Client::clear_cache`].
    pub fn cache(mut self, bytes: usize) -> Self {
        self.cache = bytes;
        self
    }

    /// Says that this client has an extension of the protocol, with its settings.
    pub fn extension(mut self, identifier: impl Into<String>, settings: Object) -> Self {
        self.extensions.insert(identifier.into(), settings.into());
        self
    }

    /// Takes results of a type that an extension defines for done, where they would be refused. They are for
    /// [`Client::request`]: the typed calls read them as what they expect.
    pub fn result_type(mut self, name: impl Into<String>) -> Self {
        self.result_types.push(name.into());
        self
    }

    /// Makes the client. Nothing is sent yet.
    pub fn build(self) -> Client<X> {
        let mut capabilities = self.handlers.capabilities();
        capabilities.extensions = Some(self.extensions).filter(|all| !all.is_empty());
        let mut meta = RequestMeta::new(PROTOCOL_VERSION, capabilities).with_client_info(self.info);
        meta.log_level = self.log.as_ref().map(|(level, _)| *level);
        let Self { exchange, handlers, limits, watch, log, cache, result_types, .. } = self;
        Client {
            inner: Arc::new(Inner {
                exchange,
                handlers,
                watch,
                meta,
                ids: RequestIds::default(),
                limits,
                log,
                cache: Cache::new(cache),
                result_types,
                known: Mutex::default(),
            }),
            options: self.options,
        }
    }
}

impl<X> fmt::Debug for ClientBuilder<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
