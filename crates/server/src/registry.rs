//! The built server: its tools, prompts and resources by name, and the methods it answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use arc_swap::ArcSwap;
use mrtr_codec::Seal;
use mrtr_schema::capabilities::{ListCapability, ResourcesCapability, ServerCapabilities};
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::{Object, RawJson, apps, method};

use crate::build_error::BuildError;
use crate::call_options::CallOptions;
use crate::catalog::Catalog;
use crate::changes::{Change, ChangeNotifier};
use crate::clock::Clock;
use crate::extension;
use crate::features::{Features, ParsedTemplate, Provided};
use crate::handler::BoxFuture;
use crate::middleware::Next;
use crate::prompt::Prompt;
use crate::request_parts::RequestParts;
use crate::resource::{CacheControl, Resource};
use crate::runtime::Runtime;
use crate::single_use::ErasedStore;
use crate::tasks::{
    TaskHandler, TaskKey, TaskSeal, TaskService, TaskSubscriptions, TaskUpdates, task_handler,
};
use crate::tool::Tool;
use crate::trace_parent::TraceParent;
use crate::uri_guards::UriGuards;

/// The methods that the protocol defines for servers.
pub(crate) const PROTOCOL_METHODS: [&str; 10] = [
    method::DISCOVER,
    method::TOOLS_LIST,
    method::TOOLS_CALL,
    method::PROMPTS_LIST,
    method::PROMPTS_GET,
    method::RESOURCES_LIST,
    method::RESOURCE_TEMPLATES_LIST,
    method::RESOURCES_READ,
    method::COMPLETE,
    method::LISTEN,
];

/// Methods of the protocol, each with its handler.
///
/// The builder adds those that its server needs, so that a program contains no code of the others.
/// `tools/call` is not among them: nearly every server has it.
pub(crate) type Methods = &'static [(&'static str, ProtocolHandler)];

/// The handler of one method of the protocol.
pub(crate) type ProtocolHandler =
    for<'r> fn(Arc<Registry>, &'r Request, Box<RequestParts>) -> ResponseFuture<'r>;

/// The functions of a server with a task store, besides the [methods](Methods) of tasks. Only
/// `ServerBuilder::task_store` refers to them, so that other programs contain no code of tasks.
pub(crate) struct TaskFunctions {
    /// Answers a call of a tool that has a policy for tasks.
    pub(crate) call: ProtocolHandler,
    /// Subscribes a caller to the given tasks, except those of other callers.
    pub(crate) subscribe: fn(Arc<Registry>, Vec<String>, Arc<RequestParts>) -> TaskSubscription,
    /// Runs due tasks until the server shuts down.
    pub(crate) run: fn(Arc<Registry>) -> BoxFuture<()>,
}

/// The future of a subscription to tasks, or of its error response.
pub(crate) type TaskSubscription = BoxFuture<Result<TaskUpdates, ErrorObject>>;

/// The future of a response.
pub(crate) type ResponseFuture<'r> = Pin<Box<dyn Future<Output = Outcome> + Send + 'r>>;

/// The handler of a method other than `tools/call`.
pub(crate) enum Method {
    Protocol(ProtocolHandler),
    Extension(extension::Method),
}

/// The result of a request as JSON, or its error.
pub(crate) type Outcome = Result<RawJson, ErrorObject>;

/// What a server is made of at one time. It does not change: an update makes another one, and a
/// request ends on the one that it began with.
pub(crate) struct Registry {
    pub(crate) tools: Catalog<Tool>,
    pub(crate) prompts: Catalog<Prompt>,
    pub(crate) resources: Catalog<Resource>,
    pub(crate) templates: Catalog<ParsedTemplate>,
    uri_guards: UriGuards,
    /// The tools whose tasks this server can continue.
    pub(crate) task_handlers: Arc<[TaskHandler]>,
    /// True if there are layers around the server, or around a feature.
    pub(crate) has_layers: bool,
    pub(crate) constants: Arc<Constants>,
}

/// What all clones of a server share.
pub(crate) struct ServerParts {
    pub(crate) current: ArcSwap<Registry>,
    /// Held by the update in progress.
    pub(crate) updating: Mutex<()>,
}

/// The parts that an update does not change.
pub(crate) struct Constants {
    pub(crate) instructions: Option<String>,
    /// The lists that may change.
    pub(crate) updatable: Updatable,
    pub(crate) list_cache: CacheControl,
    pub(crate) extensions: Object,
    /// All methods but `tools/call`, the most frequent one, which is dispatched without a lookup.
    pub(crate) methods: HashMap<Cow<'static, str>, Method>,
    pub(crate) changes: ChangeNotifier,
    /// True if the application gave the server a notifier, and may publish any change.
    pub(crate) publishes_changes: bool,
    pub(crate) page_size: usize,
    /// The `_meta` of every result.
    pub(crate) meta: Object,
    /// `meta` as JSON.
    pub(crate) meta_json: RawJson,
    pub(crate) sealer: Arc<dyn Seal>,
    pub(crate) store: Option<Box<dyn ErasedStore>>,
    /// The tasks, if the server has a store of them.
    pub(crate) tasks: Option<Box<TaskService>>,
    pub(crate) task_functions: Option<&'static TaskFunctions>,
    /// Subscriptions to tasks of other servers.
    pub(crate) task_subscriptions: Option<TaskSubscriptions>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) allows_anonymous: bool,
    pub(crate) trace_parent: Option<TraceParent>,
    /// The layers around the server.
    pub(crate) layers: Option<Next>,
    /// The server, for what outlives updates. Set when the server is created.
    pub(crate) server: OnceLock<Weak<ServerParts>>,
}

/// The lists that [`Server::update`](crate::Server::update) may change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Updatable {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
}

impl Updatable {
    /// Returns true if any list may change.
    pub(crate) fn any(self) -> bool {
        self.tools || self.prompts || self.resources
    }
}

impl Constants {
    /// Returns the registry that the server has now. `None` if the server was dropped.
    pub(crate) fn registry(&self) -> Option<Arc<Registry>> {
        let server = self.server.get().and_then(Weak::upgrade)?;
        Some(server.current.load_full())
    }
}

impl Deref for Registry {
    type Target = Constants;

    fn deref(&self) -> &Constants {
        &self.constants
    }
}

impl Registry {
    /// Creates the registry of features that were checked.
    pub(crate) fn new(features: Features, constants: Arc<Constants>) -> Self {
        let has_layers = constants.layers.is_some()
            || features.options().any(|(.., options)| options.layers.is_some());
        let tools = Catalog::new(features.tools);
        let continued = tools.iter().filter(|tool| !tool.options.manual);
        let task_handlers =
            continued.map(|tool| task_handler(&tool.wire.name, tool.options.version)).collect();
        let resources = Catalog::new(features.resources);
        let templates = Catalog::new(features.templates);
        Self {
            uri_guards: UriGuards::new(&resources, &templates),
            tools,
            prompts: Catalog::new(features.prompts),
            resources,
            templates,
            task_handlers,
            has_layers,
            constants,
        }
    }

    /// Returns the features, with those that are disabled.
    pub(crate) fn features(&self) -> Features {
        Features {
            tools: self.tools.all().to_vec(),
            prompts: self.prompts.all().to_vec(),
            resources: self.resources.all().to_vec(),
            templates: self.templates.all().to_vec(),
        }
    }

    /// Creates the registry of the same server with other features.
    ///
    /// # Errors
    ///
    /// If the features are not valid.
    pub(crate) fn with_features(&self, features: Features) -> Result<Self, BuildError> {
        features.check(&Provided {
            single_use_store: self.store.is_some(),
            task_store: self.tasks.is_some(),
            state: &self.runtime.state,
        })?;
        Ok(Self::new(features, Arc::clone(&self.constants)))
    }

    /// Returns the lists that differ in `other`.
    pub(crate) fn changed_lists(&self, other: &Self) -> Vec<Change> {
        let resources = self.resources.is_same_list(&other.resources)
            && self.templates.is_same_list(&other.templates);
        let is_same = [
            (Change::Tools, self.tools.is_same_list(&other.tools)),
            (Change::Prompts, self.prompts.is_same_list(&other.prompts)),
            (Change::Resources, resources),
        ];
        is_same.into_iter().filter_map(|(change, is_same)| (!is_same).then_some(change)).collect()
    }

    /// Returns true if the server has tools, or may get some.
    pub(crate) fn has_tools(&self) -> bool {
        !self.tools.is_empty() || self.updatable.tools
    }

    /// Returns true if the server has prompts, or may get some.
    pub(crate) fn has_prompts(&self) -> bool {
        !self.prompts.is_empty() || self.updatable.prompts
    }

    /// Returns true if the server has resources or templates, or may get some.
    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty() || self.updatable.resources
    }

    /// Returns true if a tool has a UI resource, or is not for the model (MCP Apps).
    fn has_apps(&self) -> bool {
        self.tools.iter().any(|tool| tool.has_ui())
    }

    /// Returns the lists whose changes clients are told, if they subscribe to them.
    pub(crate) fn announced(&self) -> Updatable {
        let Updatable { tools, prompts, resources } = self.updatable;
        let all = self.publishes_changes;
        Updatable {
            tools: self.has_tools() && (all || tools),
            prompts: self.has_prompts() && (all || prompts),
            resources: self.has_resources() && (all || resources),
        }
    }

    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        let completes = self.methods.contains_key(method::COMPLETE);
        let announced = self.announced();
        let list = |is_announced: bool| {
            let mut list = ListCapability::default();
            list.list_changed = is_announced.then_some(true);
            list
        };
        let mut resources = ResourcesCapability::default();
        resources.subscribe = self.publishes_changes.then_some(true);
        resources.list_changed = announced.resources.then_some(true);
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = self.has_tools().then(|| list(announced.tools));
        capabilities.prompts = self.has_prompts().then(|| list(announced.prompts));
        capabilities.resources = self.has_resources().then_some(resources);
        capabilities.completions = completes.then(Object::new);
        capabilities.logging = Some(Object::new());
        let mut extensions = self.extensions.clone();
        if self.has_apps() {
            extensions.entry(apps::EXTENSION).or_insert_with(|| Object::new().into());
        }
        capabilities.extensions = (!extensions.is_empty()).then_some(extensions);
        capabilities
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.find(name)
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.prompts.find(name)
    }

    pub(crate) fn resource(&self, uri: &str) -> Option<&Resource> {
        self.resources.find(uri)
    }

    /// Returns the options of the resource with this URI, or of the first template that matches it.
    pub(crate) fn resource_options(&self, uri: &str) -> Option<&CallOptions> {
        let resource = self.resource(uri).map(|resource| &resource.options);
        resource.or_else(|| Some(&self.matching_template(uri)?.1.options))
    }

    pub(crate) fn matching_template(&self, uri: &str) -> Option<&ParsedTemplate> {
        self.templates.iter().map(|found| &**found).find(|found| found.0.matches(uri).is_some())
    }

    /// Returns true if a URI belongs to a resource or a template that is hidden from the caller.
    pub(crate) fn hides_uri(&self, uri: &str, caller: &RequestParts) -> bool {
        self.is_uri_hidden(uri, |options| !options.is_visible_to(caller))
    }

    /// Returns true if the resource or template with these options, which serves a URI, is not for
    /// all callers.
    pub(crate) fn is_restricted(&self, uri: &str, options: &CallOptions) -> bool {
        !options.scopes.is_empty() || self.is_uri_hidden(uri, CallOptions::has_rules)
    }

    /// Returns true if a URI belongs to a resource or a template whose options `is_hidden` selects.
    fn is_uri_hidden(&self, uri: &str, is_hidden: impl Fn(&CallOptions) -> bool) -> bool {
        if self.uri_guards.are_empty() {
            return false;
        }
        match self.resource(uri) {
            Some(resource) => is_hidden(&resource.options),
            None => self.matching_template(uri).is_some_and(|served| {
                is_hidden(&served.1.options) || self.uri_guards.hides(uri, served, is_hidden)
            }),
        }
    }

    /// Returns the registry that the server has now.
    pub(crate) fn current(self: &Arc<Self>) -> Arc<Self> {
        self.constants.registry().unwrap_or_else(|| Arc::clone(self))
    }

    /// Returns the tasks of the server.
    ///
    /// # Errors
    ///
    /// An error response, if the server has none. The methods of tasks are not served then.
    pub(crate) fn task_service(&self) -> Result<&TaskService, ErrorObject> {
        self.tasks.as_deref().ok_or_else(|| ErrorObject::internal("Internal error"))
    }

    /// Returns what seals the parts of a task.
    pub(crate) fn task_seal(&self, key: TaskKey) -> TaskSeal<'_> {
        let service = self.tasks.as_ref().map_or("", |tasks| &*tasks.binding);
        TaskSeal { sealer: &*self.sealer, service, key }
    }
}
