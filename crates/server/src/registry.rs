//! The built server: its tools, prompts and resources by name, and the methods it answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use mrtr_codec::Seal;
use mrtr_schema::capabilities::{ListCapability, ResourcesCapability, ServerCapabilities};
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::{Object, RawJson, method};

use crate::call_options::CallOptions;
use crate::catalog::Catalog;
use crate::changes::ChangeNotifier;
use crate::clock::Clock;
use crate::extension;
use crate::prompt::Prompt;
use crate::request_parts::RequestParts;
use crate::resource::{CacheControl, Resource, ResourceTemplate};
use crate::runtime::Runtime;
use crate::single_use::ErasedStore;
use crate::tasks::{TaskKey, TaskSeal, TaskService};
use crate::template::Template;
use crate::tool::Tool;
use crate::trace_parent::TraceParent;

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
    for<'r> fn(&'r Arc<Registry>, &'r Request, Box<RequestParts>) -> ResponseFuture<'r>;

/// The future of a response.
pub(crate) type ResponseFuture<'r> = Pin<Box<dyn Future<Output = Outcome> + Send + 'r>>;

/// The handler of a method other than `tools/call`.
pub(crate) enum Method {
    Protocol(ProtocolHandler),
    Extension(extension::Method),
}

/// The result of a request as JSON, or its error.
pub(crate) type Outcome = Result<RawJson, ErrorObject>;

/// The parts of a built server. They do not change.
pub(crate) struct Registry {
    pub(crate) instructions: Option<String>,
    pub(crate) tools: Catalog<Tool>,
    pub(crate) prompts: Catalog<Prompt>,
    pub(crate) resources: Catalog<Resource>,
    pub(crate) templates: Catalog<(Template, ResourceTemplate)>,
    pub(crate) list_cache: CacheControl,
    pub(crate) extensions: Object,
    /// All methods but `tools/call`, the most frequent one, which is dispatched without a lookup.
    pub(crate) methods: HashMap<Cow<'static, str>, Method>,
    pub(crate) changes: ChangeNotifier,
    /// True if the application gave the server a notifier, and may publish changes.
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
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) allows_anonymous: bool,
    pub(crate) trace_parent: Option<TraceParent>,
}

impl Registry {
    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        let completes = self.methods.contains_key(method::COMPLETE);
        let published = self.publishes_changes.then_some(true);
        let mut list = ListCapability::default();
        list.list_changed = published;
        let mut resources = ResourcesCapability::default();
        resources.subscribe = published;
        resources.list_changed = published;
        let mut capabilities = ServerCapabilities::default();
        capabilities.tools = (!self.tools.is_empty()).then(|| list.clone());
        capabilities.prompts = (!self.prompts.is_empty()).then_some(list);
        capabilities.resources = self.has_resources().then_some(resources);
        capabilities.completions = completes.then(Object::new);
        capabilities.logging = Some(Object::new());
        capabilities.extensions = (!self.extensions.is_empty()).then(|| self.extensions.clone());
        capabilities
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.get(name)
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.prompts.get(name)
    }

    pub(crate) fn resource(&self, uri: &str) -> Option<&Resource> {
        self.resources.get(uri)
    }

    /// Returns the options of the resource with this URI, or of the first template that matches it.
    pub(crate) fn resource_options(&self, uri: &str) -> Option<&CallOptions> {
        let resource = self.resource(uri).map(|resource| &resource.options);
        let matching =
            || self.templates.iter().find(|(template, _)| template.matches(uri).is_some());
        resource.or_else(|| matching().map(|(_, template)| &template.options))
    }

    /// Returns true if a resource has this URI, or a template matches it.
    pub(crate) fn has_resource(&self, uri: &str) -> bool {
        self.resource(uri).is_some()
            || self.templates.iter().any(|(template, _)| template.matches(uri).is_some())
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
        TaskSeal { sealer: &*self.sealer, now: self.clock.now(), service, key }
    }

    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty()
    }
}
