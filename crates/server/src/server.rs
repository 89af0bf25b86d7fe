//! A server, and how it is put together.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use mrtr_codec::{KeyRing, Seal};
use mrtr_schema::capabilities::{
    Implementation, ListCapability, ResourcesCapability, ServerCapabilities,
};
use mrtr_schema::json::RawJson;
use mrtr_schema::meta::{TraceContext, key};
use mrtr_schema::{Object, method, uri};
use mrtr_transport::headers::ParamHeader;
use serde_json::{Value, json};

use crate::catalog::{Catalog, written};
use crate::changes::ChangeNotifier;
use crate::clock::{Clock, SystemClock};
use crate::completion::Completer;
use crate::dispatch::methods::{Method, Methods, Own};
use crate::dispatch::{completion, discovery, listen, prompts, resources, tools};
use crate::error::Error;
use crate::extension::{self, ExtensionRequest, is_identifier};
use crate::prompt::Prompt;
use crate::resource::{CacheControl, Resource, ResourceTemplate};
use crate::runtime::{Pressure, Runtime};
use crate::schema_validation::Schemas;
use crate::single_use::{ErasedStore, SingleUseStore};
use crate::task_tracker::Running;
use crate::telemetry::TraceParent;
use crate::template::Template;
use crate::tool::{CallOptions, Tool};
use crate::validate::{
    BuildError, check_dialect, check_icons, check_methods, check_names, check_rules, check_unique,
};

/// A server: tools, prompts, and the keys that seal the state of their flows. It keeps nothing
/// between requests. Cheap to clone.
///
/// It implements [`mrtr_transport::RequestHandler`], by which a transport calls it.
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) instructions: Option<String>,
    pub(crate) tools: Catalog<Tool>,
    pub(crate) prompts: Catalog<Prompt>,
    pub(crate) resources: Catalog<Resource>,
    pub(crate) templates: Catalog<(Template, ResourceTemplate)>,
    pub(crate) lists: CacheControl,
    extensions: Object,
    /// But for `tools/call`, which is called most.
    pub(crate) methods: HashMap<Cow<'static, str>, Method>,
    pub(crate) changes: ChangeNotifier,
    /// Whether anybody will publish to `changes`.
    pub(crate) announces: bool,
    pub(crate) page_size: usize,
    /// `_meta` of every result.
    pub(crate) meta: Object,
    /// As JSON.
    pub(crate) written_meta: RawJson,
    pub(crate) sealer: Box<dyn Seal>,
    pub(crate) guard: Option<Box<dyn ErasedStore>>,
    pub(crate) replica: Arc<Runtime>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) anonymous: bool,
    pub(crate) trace_parent: Option<TraceParent>,
}

/// Builds a [`Server`].
#[must_use = "call `build`"]
pub struct ServerBuilder {
    info: Implementation,
    instructions: Option<String>,
    tools: Vec<Tool>,
    prompts: Vec<Prompt>,
    resources: Vec<Resource>,
    templates: Vec<ResourceTemplate>,
    lists: CacheControl,
    extensions: Object,
    own_methods: BTreeMap<&'static str, Own>,
    added_methods: Vec<(String, extension::Method)>,
    changes: Option<ChangeNotifier>,
    page_size: usize,
    sealer: Option<Box<dyn Seal>>,
    guard: Option<Box<dyn ErasedStore>>,
    pressure: Pressure,
    clock: Box<dyn Clock>,
    anonymous: bool,
    provided: http::Extensions,
    trace_parent: Option<TraceParent>,
}

impl Server {
    /// Begins a shutdown: ends what would otherwise stay open, the subscriptions of clients, and lets flows move on to
    /// other replicas, as one that is [overloaded](ServerBuilder::overloaded) does. `mrtr::serve` calls it on SIGTERM.
    pub fn close(&self) {
        self.inner.replica.pressure.close();
        self.inner.changes.close();
    }

    /// Waits until what goes on without its client has ended: legs of what is for [single use](crate::Tool::single_use), and steps that
    /// are to [finish](crate::StepFuture::finish_on_disconnect). Call it after a transport has stopped and before the process ends, within
    /// a time of your choice: what is cut off leaves a state that was used, and nobody who knows what came of it. `mrtr::serve`
    /// and `mrtr::serve_stdio` wait for it up to 10 s.
    pub fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        self.inner.replica.running.none()
    }

    /// Starts a server with a name and a version for clients to show.
    pub fn builder(name: impl Into<String>, version: impl Into<String>) -> ServerBuilder {
        ServerBuilder {
            info: Implementation::new(name, version),
            instructions: None,
            tools: Vec::new(),
            prompts: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            lists: CacheControl::default(),
            extensions: Object::new(),
            own_methods: [discovery::METHODS, listen::METHODS].concat().into_iter().collect(),
            added_methods: Vec::new(),
            changes: None,
            page_size: usize::MAX,
            sealer: None,
            guard: None,
            pressure: Pressure::default(),
            clock: Box::new(SystemClock),
            anonymous: false,
            provided: http::Extensions::new(),
            trace_parent: None,
        }
    }
}

impl Inner {
    pub(crate) fn capabilities(&self) -> ServerCapabilities {
        let completes = self.methods.contains_key(method::COMPLETE);
        let told = self.announces.then_some(true);
        let list = ListCapability { list_changed: told };
        let resources = ResourcesCapability { subscribe: told, list_changed: told };
        ServerCapabilities {
            tools: (!self.tools.is_empty()).then(|| list.clone()),
            prompts: (!self.prompts.is_empty()).then_some(list),
            resources: self.has_resources().then_some(resources),
            completions: completes.then(Object::new),
            logging: Some(Object::new()),
            extensions: (!self.extensions.is_empty()).then(|| self.extensions.clone()),
            ..ServerCapabilities::default()
        }
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

    /// What holds for the flows of the resource with this URI, or of the template for it.
    pub(crate) fn rules_of(&self, uri: &str) -> Option<&CallOptions> {
        let resource = self.resource(uri).map(|resource| &resource.rules);
        let matching =
            || self.templates.iter().find(|(template, _)| template.matches(uri).is_some());
        resource.or_else(|| matching().map(|(_, template)| &template.rules))
    }

    /// Whether there is a resource with this URI, or a template for it.
    pub(crate) fn has_resource(&self, uri: &str) -> bool {
        self.resource(uri).is_some()
            || self.templates.iter().any(|(template, _)| template.matches(uri).is_some())
    }

    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.templates.is_empty()
    }
}

impl ServerBuilder {
    /// A name for people, a description, icons: all that clients may show.
    pub fn info(mut self, info: Implementation) -> Self {
        self.info = info;
        self
    }

    /// Guidance for models on how to use this server.
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = Some(text.into());
        self
    }

    /// Adds a tool. Clients see tools in the order in which they were added.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self.answering(tools::METHODS)
    }

    /// Adds a prompt.
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        let completes = !prompt.completers.is_empty();
        self.prompts.push(prompt);
        self.answering(prompts::METHODS).completing(completes)
    }

    /// Adds a resource.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self.answering(resources::METHODS)
    }

    /// Adds a family of resources. Resources of their own come first, then templates in the order in
    /// which they were added.
    pub fn resource_template(mut self, template: ResourceTemplate) -> Self {
        let completes = !template.completers.is_empty();
        self.templates.push(template);
        self.answering(resources::METHODS).completing(completes)
    }

    fn answering(mut self, methods: Methods) -> Self {
        self.own_methods.extend(methods.iter().copied());
        self
    }

    fn completing(self, completes: bool) -> Self {
        if completes { self.answering(completion::METHODS) } else { self }
    }

    /// For how long clients may reuse what discovery and lists tell. Default: not at all.
    pub fn cache_lists(mut self, cache: CacheControl) -> Self {
        self.lists = cache;
        self
    }

    /// Announces changes to clients that listen (`subscriptions/listen`). Publish them with a clone of
    /// `changes`. Without, subscriptions are acknowledged for nothing.
    pub fn changes(mut self, changes: ChangeNotifier) -> Self {
        self.changes = Some(changes);
        self
    }

    /// How many items a page of a list has. Default: all. At least one.
    pub fn page_size(mut self, items: usize) -> Self {
        self.page_size = items.max(1);
        self
    }

    /// The keys that seal the state of flows: the same ring on every replica. Default: a key of this
    /// process alone, which no other replica can open. To replace it without a restart, give a
    /// [`mrtr_codec::SharedKeyRing`] to [`ServerBuilder::sealer`].
    pub fn key_ring(self, ring: KeyRing) -> Self {
        self.sealer(ring)
    }

    /// Something else that seals.
    pub fn sealer(mut self, sealer: impl Seal + 'static) -> Self {
        self.sealer = Some(Box::new(sealer));
        self
    }

    /// When this replica has too much to do. While it has, a call that has done a step and comes to another goes back to its
    /// client with a state and without a question, and so to some other replica; nothing is lost or done again. It happens
    /// at most twice in a call, and not after its sixth round, since clients give up after nine or ten; and never where no
    /// key was given, since no other replica could go on.
    ///
    /// `overloaded` is asked often, from many threads, and must not wait.
    pub fn shed_load_when(mut self, overloaded: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.pressure.overloaded_when(overloaded);
        self
    }

    /// What remembers which states were used, for all that is for [single use](crate::Tool::single_use).
    pub fn single_use_store(mut self, guard: impl SingleUseStore) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Serves callers of whom nobody has established who they are.
    ///
    /// Without this, a request is served only if something in front of the server, such as a tower
    /// layer, has put a [`mrtr_codec::Principal`] into its extensions. A flow's state is bound to that
    /// principal; anonymous callers all look the same, and can use each other's states.
    pub fn allow_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Gives `value` to all handlers, which get it by its type from [`crate::Context::get`]: a pool of
    /// connections, a configuration. Something of the same type from a layer in front comes first.
    pub fn provide<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.provided.insert(value);
        self
    }

    /// Says that this server has an extension of the protocol, with its settings: what clients find among the
    /// capabilities. The identifier is a reversed domain, a slash and a name.
    pub fn extension(mut self, identifier: impl Into<String>, settings: Object) -> Self {
        self.extensions.insert(identifier.into(), Value::Object(settings));
        self
    }

    /// Answers a method that an extension adds, which is none of those that the protocol has for servers, whether this one answers
    /// them or not. What it returns is the result; where that has no `resultType`, it is `complete`, and `serverInfo` goes into
    /// its `_meta`. An error is one of JSON-RPC: -32602 by [`Error::invalid`](crate::Error::invalid), else -32603.
    pub fn method<F, Fut>(mut self, name: impl Into<String>, answer: F) -> Self
    where
        F: Fn(ExtensionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Object, Error>> + Send + 'static,
    {
        self.added_methods.push((name.into(), extension::Method::new(answer)));
        self
    }

    /// Takes the span of each request into the trace that its client says it belongs to (`traceparent` and its like in
    /// `_meta`; specification: base protocol, "OpenTelemetry trace context"), so that all rounds of a call are one trace,
    /// whichever replicas they come to. `adopt` is given the span before it is entered; with `tracing-opentelemetry` it calls
    /// `set_parent`. A context that has not the form of W3C Trace Context is passed over.
    ///
    /// The span, `request` with the target `mrtr::server`, and the metrics are named as OpenTelemetry's semantic conventions for MCP
    /// have it; `docs/deploying.md` lists them.
    pub fn trace_parent(
        mut self,
        adopt: impl Fn(&tracing::Span, &TraceContext) + Send + Sync + 'static,
    ) -> Self {
        self.trace_parent = Some(TraceParent::new(adopt));
        self
    }

    /// What tells the time. Default: [`SystemClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Puts the server together.
    ///
    /// # Errors
    ///
    /// If names are repeated or unfit, a tool's arguments are no struct, an extension's method is the protocol's own, or there
    /// are no random numbers for the default key.
    pub fn build(mut self) -> Result<Server, BuildError> {
        check_names("tool", self.tools.iter().map(|tool| &tool.wire.name))?;
        check_names("prompt", self.prompts.iter().map(|prompt| &prompt.wire.name))?;
        for tool in &mut self.tools {
            tool.param_headers =
                ParamHeader::from_schema(&tool.wire.input_schema).map_err(|e| {
                    BuildError::Header { tool: tool.wire.name.clone(), why: e.to_string() }
                })?;
            if tool.wire.input_schema.get("type") != Some(&json!("object")) {
                return Err(BuildError::Arguments(tool.wire.name.clone()));
            }
            check_icons(&tool.wire.name, &tool.wire.icons)?;
            let mut schemas =
                std::iter::once(&tool.wire.input_schema).chain(&tool.wire.output_schema);
            schemas
                .try_for_each(check_dialect)
                .and_then(|()| Schemas::of(&tool.wire, tool.by_hand))
                .map(|schemas| tool.schemas = schemas)
                .map_err(|why| BuildError::Schema { tool: tool.wire.name.clone(), why })?;
        }
        for prompt in &self.prompts {
            check_icons(&prompt.wire.name, &prompt.wire.icons)?;
        }
        for template in &self.templates {
            check_icons(&template.wire.name, &template.wire.icons)?;
        }
        check_icons(&self.info.name, &self.info.icons)?;
        check_unique("resource", self.resources.iter().map(|resource| &resource.wire.uri))?;
        for resource in &self.resources {
            check_icons(&resource.wire.name, &resource.wire.icons)?;
            let uri = &resource.wire.uri;
            uri::check(uri).map_err(|why| BuildError::Uri { uri: uri.clone(), why })?;
        }
        let templates = std::mem::take(&mut self.templates).into_iter().map(|template| {
            let uri_template = &template.wire.uri_template;
            let parsed = Template::parse(uri_template)
                .map_err(|why| BuildError::Template { template: uri_template.clone(), why })?;
            Ok((parsed, template))
        });
        let templates = templates.collect::<Result<Vec<_>, BuildError>>()?;
        for (what, declared, completers) in completers(&self.prompts, &templates) {
            if let Some((name, _)) = completers.iter().find(|(name, _)| !declared.contains(name)) {
                return Err(BuildError::Completion { of: what, argument: name.clone() });
            }
        }
        for (kind, name, rules) in rules(&self, &templates) {
            check_rules(rules, self.guard.is_some(), || format!("the {kind} {name:?}"))?;
        }
        if let Some(wrong) = self.extensions.keys().find(|name| !is_identifier(name)) {
            return Err(BuildError::Extension(wrong.clone()));
        }
        check_methods(self.added_methods.iter().map(|(name, _)| name))?;
        let info = serde_json::to_value(&self.info).unwrap_or_default();
        let meta = Object::from_iter([(key::SERVER_INFO.to_owned(), info)]);
        let written_meta = written(&meta);
        let sealer = match self.sealer {
            Some(sealer) => sealer,
            None => {
                tracing::info!(
                    target: "mrtr::state",
                    "no key ring was given: flows can only be continued by this process, until it ends"
                );
                self.pressure = Pressure::ignored();
                Box::new(KeyRing::ephemeral()?)
            }
        };
        let own = self.own_methods.into_iter().map(|(name, own)| (name.into(), Method::Own(own)));
        let added =
            self.added_methods.into_iter().map(|(name, added)| (name.into(), Method::Added(added)));
        let inner = Inner {
            instructions: self.instructions,
            tools: Catalog::new(self.tools),
            prompts: Catalog::new(self.prompts),
            resources: Catalog::new(self.resources),
            templates: Catalog::new(templates),
            lists: self.lists,
            extensions: self.extensions,
            methods: own.chain(added).collect(),
            announces: self.changes.is_some(),
            changes: self.changes.unwrap_or_default(),
            page_size: self.page_size,
            written_meta,
            meta,
            sealer,
            guard: self.guard,
            replica: Arc::new(Runtime {
                pressure: self.pressure,
                running: Running::new(),
                provided: self.provided,
            }),
            clock: self.clock,
            anonymous: self.anonymous,
            trace_parent: self.trace_parent,
        };
        Ok(Server { inner: Arc::new(inner) })
    }
}

/// What holds for each thing that runs a handler.
fn rules<'a>(
    builder: &'a ServerBuilder,
    templates: &'a [(Template, ResourceTemplate)],
) -> impl Iterator<Item = (&'static str, &'a String, &'a CallOptions)> {
    let tools = builder.tools.iter().map(|tool| ("tool", &tool.wire.name, &tool.rules));
    let prompts = builder.prompts.iter().map(|prompt| ("prompt", &prompt.wire.name, &prompt.rules));
    let resources =
        builder.resources.iter().map(|found| ("resource", &found.wire.uri, &found.rules));
    let templates = templates
        .iter()
        .map(|(_, found)| ("resource template", &found.wire.uri_template, &found.rules));
    tools.chain(prompts).chain(resources).chain(templates)
}

/// Everything that can have suggestions: what it is, the arguments it has, and its suggestions.
fn completers<'a>(
    prompts: &'a [Prompt],
    templates: &'a [(Template, ResourceTemplate)],
) -> impl Iterator<Item = (String, Vec<String>, &'a [(String, Completer)])> {
    let prompts = prompts.iter().map(|prompt| {
        let names = prompt.wire.arguments.iter().map(|argument| argument.name.clone()).collect();
        (format!("the prompt {:?}", prompt.wire.name), names, prompt.completers.as_slice())
    });
    let templates = templates.iter().map(|(parsed, template)| {
        let names = parsed.names().map(str::to_owned).collect();
        let what = format!("the resource template {:?}", template.wire.uri_template);
        (what, names, template.completers.as_slice())
    });
    prompts.chain(templates)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("meta", &self.inner.meta)
            .field("tools", &self.inner.tools)
            .field("prompts", &self.inner.prompts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder").field("info", &self.info).finish_non_exhaustive()
    }
}
