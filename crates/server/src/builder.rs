//! The builder of servers.

mod stores;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mrtr_codec::{KeyRing, Seal};
use mrtr_schema::Object;
use mrtr_schema::capabilities::Implementation;
use mrtr_schema::meta::{TraceContext, key};
use serde_json::Value;
use tower_layer::Layer;

use crate::build_error::BuildError;
use crate::catalog::raw_json;
use crate::changes::{Change, ChangeNotifier};
use crate::clock::{Clock, SystemClock};
use crate::development;
use crate::dispatch::{discovery, listen, prompts, resources, tools};
use crate::error::Error;
use crate::extension::{self, ExtensionRequest, is_identifier};
use crate::features::{Feature, Features, Provided};
use crate::group::FeatureGroup;
use crate::middleware::{Next, RequestService};
use crate::prompt::Prompt;
use crate::registry::{Constants, Method, PROTOCOL_METHODS, Registry, TaskFunctions, Updatable};
use crate::resource::{CacheControl, Resource, ResourceTemplate};
use crate::runtime::{HandOverPolicy, Runtime};
use crate::server::Server;
use crate::single_use::ErasedStore;
use crate::state::StateMap;
use crate::task_tracker::TaskTracker;
use crate::tasks::{ErasedTaskStore, TaskSubscriptions};
use crate::tool::Tool;
use crate::trace_parent::TraceParent;
use crate::validate::{check_icons, check_unique};

/// Builds a [`Server`].
///
/// ```
/// use std::time::Duration;
///
/// use mrtr_server::{CacheControl, Context, Result, Server, Tool};
///
/// async fn hours(_: Context) -> Result<String> {
///     Ok("9 to 17".to_owned())
/// }
///
/// let server = Server::builder("clinic", "1.0.0")
///     .instructions("Look up the opening hours before you book a visit.")
///     .tool(Tool::new("hours", "Returns the opening hours", hours))
///     .cache_lists(CacheControl::public(Duration::from_secs(60)))
///     .page_size(50)
///     .allow_anonymous()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[must_use = "call `build`"]
pub struct ServerBuilder {
    info: Implementation,
    instructions: Option<String>,
    /// What the server offers, without the rules of a group.
    group: FeatureGroup,
    updatable: Updatable,
    list_cache: CacheControl,
    extensions: Object,
    extension_methods: Vec<(String, extension::Method)>,
    changes: Option<ChangeNotifier>,
    page_size: usize,
    sealer: Option<Arc<dyn Seal>>,
    ephemeral_key: bool,
    store: Option<Box<dyn ErasedStore>>,
    task_store: Option<(Box<dyn ErasedTaskStore>, &'static TaskFunctions)>,
    task_subscriptions: Option<TaskSubscriptions>,
    task_lease: Duration,
    max_running_tasks: usize,
    hand_over: HandOverPolicy,
    clock: Box<dyn Clock>,
    authentication: Option<Authentication>,
    state: StateMap,
    trace_parent: Option<TraceParent>,
    layers: Option<Next>,
}

/// The callers that a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Authentication {
    Anonymous,
    Principal,
}

impl Server {
    /// Creates a builder for a server with this name and version, which clients may show.
    pub fn builder(name: impl Into<String>, version: impl Into<String>) -> ServerBuilder {
        ServerBuilder {
            info: Implementation::new(name, version),
            instructions: None,
            group: FeatureGroup::new().serving(discovery::METHODS).serving(listen::METHODS),
            updatable: Updatable::default(),
            list_cache: CacheControl::default(),
            extensions: Object::new(),
            extension_methods: Vec::new(),
            changes: None,
            page_size: usize::MAX,
            sealer: None,
            ephemeral_key: false,
            store: None,
            task_store: None,
            task_subscriptions: None,
            task_lease: Duration::from_secs(10),
            max_running_tasks: 256,
            hand_over: HandOverPolicy::default(),
            clock: Box::new(SystemClock),
            authentication: None,
            state: StateMap::default(),
            trace_parent: None,
            layers: None,
        }
    }
}

impl ServerBuilder {
    /// Sets all that clients may show about the server: its name and version, a title, a
    /// description, and icons. It replaces the name and version given to [`Server::builder`].
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Sets the instructions: guidance for models on how to use this server.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Adds a tool. Clients see tools in the order in which they were added.
    pub fn tool(self, tool: Tool) -> Self {
        self.with(|group| group.tool(tool))
    }

    /// Adds a prompt.
    pub fn prompt(self, prompt: Prompt) -> Self {
        self.with(|group| group.prompt(prompt))
    }

    /// Adds a resource.
    pub fn resource(self, resource: Resource) -> Self {
        self.with(|group| group.resource(resource))
    }

    /// Adds a family of resources.
    ///
    /// A URI is looked up among the resources first, then among the templates, in the order in
    /// which they were added.
    pub fn resource_template(self, template: ResourceTemplate) -> Self {
        self.with(|group| group.resource_template(template))
    }

    /// Adds the features of a group, which keep its state, rules and layers.
    pub fn merge(self, group: FeatureGroup) -> Self {
        self.with(|all| all.merge(group))
    }

    /// Adds the features of a group under a prefix: see [`FeatureGroup::mount`].
    pub fn mount(self, prefix: &str, group: FeatureGroup) -> Self {
        self.with(|all| all.mount(prefix, group))
    }

    fn with(mut self, edit: impl FnOnce(FeatureGroup) -> FeatureGroup) -> Self {
        self.group = edit(self.group);
        self
    }

    /// Adds a [layer](crate::middleware) around the server. It runs for all requests, and the layer
    /// that is added last runs first. Default: none.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Next, Service: RequestService>,
    {
        self.layers = Some(self.layers.unwrap_or_else(Next::feature).wrapped_by(&layer));
        self
    }

    /// Allows [`Server::update`] to change the features of kind `F` after the server was built:
    /// [`Tool`], [`Prompt`], [`Resource`] or [`ResourceTemplate`]. The last two share one list.
    ///
    /// The server then declares their capability with `listChanged`, even if it has none yet, and
    /// tells clients that subscribe.
    pub fn updatable<F: Feature>(mut self) -> Self {
        let Updatable { tools, prompts, resources } = &mut self.updatable;
        let (list, methods) = match F::CHANGE {
            Change::Tools => (tools, tools::METHODS),
            Change::Prompts => (prompts, prompts::METHODS),
            Change::Resources | Change::Resource(_) => (resources, resources::METHODS),
        };
        *list = true;
        let completes = !matches!(F::CHANGE, Change::Tools);
        self.with(|group| group.serving(methods).serving_completion(completes))
    }

    /// Sets how long, and by which callers, the results of discovery and lists may be reused.
    /// Default: no reuse.
    pub fn cache_lists(mut self, cache: CacheControl) -> Self {
        self.list_cache = cache;
        self
    }

    /// Sets the source of change notifications for clients that subscribe
    /// (`subscriptions/listen`). Publish changes with a clone of `changes`.
    ///
    /// Without it, the server acknowledges subscriptions to tasks and to features that can be
    /// [updated](Server::update) only.
    pub fn changes(mut self, changes: ChangeNotifier) -> Self {
        self.changes = Some(changes);
        self
    }

    /// Returns the source of change notifications, and sets a new one if there is none.
    ///
    /// For crates that add to a server what an application has begun to build.
    pub fn change_notifier(&mut self) -> ChangeNotifier {
        self.changes.get_or_insert_default().clone()
    }

    /// Sets the number of items in one page of a list. Default: all. 0 counts as 1.
    pub fn page_size(mut self, items: usize) -> Self {
        self.page_size = items.max(1);
        self
    }

    /// Sets the keys that seal request states: the same ring on every replica.
    ///
    /// To rotate keys without a restart, give a [`mrtr_codec::SharedKeyRing`] to
    /// [`sealer`](Self::sealer). Building a server without keys fails, unless
    /// [`ephemeral_key`](Self::ephemeral_key) was called.
    pub fn key_ring(self, ring: KeyRing) -> Self {
        self.sealer(ring)
    }

    /// Seals request states with a random key of this process.
    ///
    /// For tests, local tools, and servers over standard streams. Another replica, or this one
    /// after a restart, rejects the request states of such a server. Exception: if the environment
    /// variable `MRTR_DEVELOPMENT_KEYS` is set, as by `mrtr dev`, its keys are used instead of a
    /// random one. Do not set it in production. No effect if a key ring or a sealer is set.
    pub fn ephemeral_key(mut self) -> Self {
        self.ephemeral_key = true;
        self
    }

    /// Sets your own sealer of request states, such as a [`mrtr_codec::SharedKeyRing`] or a KMS.
    pub fn sealer(mut self, sealer: impl Seal + 'static) -> Self {
        self.sealer = Some(Arc::new(sealer));
        self
    }

    /// Hands calls over to other replicas while `overloaded` returns true.
    ///
    /// Between two steps of a call, the server then returns a request state without input requests.
    /// The client's retry reaches another replica; nothing is lost or repeated.
    ///
    /// A call is handed over at most twice. It is not handed over after its sixth round, because
    /// clients give up after nine or ten. With an ephemeral key, calls are never handed over,
    /// because no other replica can continue them.
    ///
    /// `overloaded` is called often, from many threads, and must not block.
    pub fn shed_load_when(mut self, overloaded: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.hand_over.overloaded_when(overloaded);
        self
    }

    /// Accepts unauthenticated callers.
    ///
    /// Anonymous callers are indistinguishable, and can use each other's request states. A
    /// [`mrtr_codec::Principal`] that a layer established is still used and bound.
    pub fn allow_anonymous(mut self) -> Self {
        self.authentication = Some(Authentication::Anonymous);
        self
    }

    /// Rejects requests without a [`mrtr_codec::Principal`] in their extensions.
    ///
    /// A layer in front of the server, such as a tower middleware, authenticates the caller and
    /// inserts the principal. A call's request states work for that principal alone. Building a
    /// server fails unless this or [`allow_anonymous`](Self::allow_anonymous) was called.
    pub fn require_principal(mut self) -> Self {
        self.authentication = Some(Authentication::Principal);
        self
    }

    /// Adds application state that handlers extract with [`State`](crate::State): a connection
    /// pool, a configuration.
    ///
    /// There is one value of each type. Extracting state of a missing type is a build error.
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Declares an extension of the protocol, with its settings. Clients find both in the server's
    /// capabilities.
    ///
    /// The identifier is a reversed domain, a slash and a name, such as `com.example/name`. Any
    /// other is a build error.
    pub fn extension(mut self, identifier: impl Into<String>, settings: Object) -> Self {
        self.extensions.insert(identifier.into(), Value::Object(settings));
        self
    }

    /// Adds the handler of a method that an extension defines.
    ///
    /// The handler returns the result. `resultType` is `complete` unless the handler sets it, and
    /// the server's info is added to `_meta`. An error becomes a JSON-RPC error: -32602 for
    /// [`Error::invalid`](crate::Error::invalid), -32603 for any other.
    ///
    /// A method that the protocol defines for servers is a build error, even if this server does
    /// not serve it.
    pub fn method<F, Fut>(mut self, name: impl Into<String>, answer: F) -> Self
    where
        F: Fn(ExtensionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Object, Error>> + Send + 'static,
    {
        self.extension_methods.push((name.into(), extension::Method::new(answer)));
        self
    }

    /// Sets the hook that joins the span of each request to the client's trace, so that all rounds
    /// of a call belong to one trace across replicas.
    ///
    /// The client sends its trace context in `_meta`: `traceparent`, `tracestate` and `baggage`
    /// (specification: base protocol, "OpenTelemetry trace context"). The server calls `adopt` with
    /// this context and the span, before the span is entered. With `tracing-opentelemetry`, `adopt`
    /// calls `set_parent`. A context that is not valid W3C Trace Context is ignored.
    ///
    /// The span is `request`, with the target `mrtr::server` and the level DEBUG; `adopt` is not
    /// called if a filter disables it. Span and metrics are named after OpenTelemetry's semantic
    /// conventions for MCP; `mrtr::guide::deploying` lists them.
    pub fn trace_parent(
        mut self,
        adopt: impl Fn(&tracing::Span, &TraceContext) + Send + Sync + 'static,
    ) -> Self {
        self.trace_parent = Some(TraceParent::new(adopt));
        self
    }

    /// Sets the clock, which decides when request states expire. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Builds the server.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] names the mistake:
    ///
    /// - duplicate or invalid names, schemas, forms, URIs, templates or icons;
    /// - a completion of an argument that does not exist;
    /// - a tool whose UI resource is missing, or a UI resource with an invalid origin;
    /// - missing or duplicate application state;
    /// - no choice of authentication, or no key ring;
    /// - a timeout or limit below its minimum, or a `min_compatible_version` above the version;
    /// - a single-use handler without a store;
    /// - a task policy without a task store, or for a handler in the manual form;
    /// - no random numbers for the ephemeral key.
    pub fn build(mut self) -> Result<Server, BuildError> {
        let features = self.take_features()?;
        self.check_server()?;
        features.check(&Provided {
            single_use_store: self.store.is_some(),
            task_store: self.task_store.is_some(),
            state: &self.state,
        })?;
        if let Some(duplicate) = self.state.duplicate.or(self.group.duplicate_state) {
            return Err(BuildError::DuplicateState(duplicate));
        }
        let authentication = self.authentication.ok_or(BuildError::NoAuthentication)?;
        let has_handlers = features.options().next().is_some() || self.updatable.any();
        let sealer = match self.sealer.take() {
            Some(sealer) => sealer,
            None if self.ephemeral_key || !has_handlers => {
                self.hand_over = HandOverPolicy::disabled();
                match development::key_ring_from_env()? {
                    Some(ring) => Arc::new(ring),
                    None => Arc::new(KeyRing::ephemeral()?),
                }
            }
            None => return Err(BuildError::NoKeyRing),
        };
        let (tasks, task_functions) = self.task_service()?.unzip();
        let info = serde_json::to_value(&self.info).unwrap_or_default();
        let meta = Object::from_iter([(key::SERVER_INFO.to_owned(), info)]);
        let is_own = |name: &&String| self.group.methods.contains_key(name.as_str());
        if let Some(name) = self.extension_methods.iter().map(|(name, _)| name).find(is_own) {
            return Err(BuildError::Method(name.clone()));
        }
        let own =
            self.group.methods.into_iter().map(|(name, own)| (name.into(), Method::Protocol(own)));
        let added = self
            .extension_methods
            .into_iter()
            .map(|(name, added)| (name.into(), Method::Extension(added)));
        let constants = Constants {
            instructions: self.instructions,
            updatable: self.updatable,
            list_cache: self.list_cache,
            extensions: self.extensions,
            methods: own.chain(added).collect(),
            publishes_changes: self.changes.is_some(),
            changes: self.changes.unwrap_or_default(),
            page_size: self.page_size,
            meta_json: raw_json(&meta),
            meta,
            sealer,
            store: self.store,
            tasks,
            task_functions,
            task_subscriptions: self.task_subscriptions,
            runtime: Arc::new(Runtime {
                hand_over: self.hand_over,
                tasks: TaskTracker::new(),
                state: self.state,
                legacy_versions: OnceLock::new(),
            }),
            clock: self.clock,
            allows_anonymous: authentication == Authentication::Anonymous,
            trace_parent: self.trace_parent,
            layers: self.layers,
            server: OnceLock::new(),
        };
        Ok(Server::new(Registry::new(features, Arc::new(constants))))
    }

    fn take_features(&mut self) -> Result<Features, BuildError> {
        let mut features = Features::default();
        for tool in std::mem::take(&mut self.group.tools) {
            features.add(tool)?;
        }
        for prompt in std::mem::take(&mut self.group.prompts) {
            features.add(prompt)?;
        }
        for resource in std::mem::take(&mut self.group.resources) {
            features.add(resource)?;
        }
        for template in std::mem::take(&mut self.group.templates) {
            features.add(template)?;
        }
        Ok(features)
    }

    /// Checks what concerns the server alone.
    fn check_server(&self) -> Result<(), BuildError> {
        check_methods(self.extension_methods.iter().map(|(name, _)| name))?;
        if let Some(name) = self.extensions.keys().find(|name| !is_identifier(name)) {
            return Err(BuildError::Extension(name.clone()));
        }
        check_icons(&self.info.name, &self.info.icons)
    }
}

/// Checks that extension methods are unique and not methods of the protocol, including those that
/// this server does not serve.
fn check_methods<'a>(
    mut names: impl Iterator<Item = &'a String> + Clone,
) -> Result<(), BuildError> {
    check_unique("method", names.clone().map(String::as_str))?;
    match names.find(|name| PROTOCOL_METHODS.contains(&name.as_str())) {
        Some(name) => Err(BuildError::Method(name.clone())),
        None => Ok(()),
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("info", &self.info).finish_non_exhaustive()
    }
}
