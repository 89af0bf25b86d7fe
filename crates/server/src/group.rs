//! Groups of tools, prompts, resources and resource templates.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use crate::call_options::CallOptions;
use crate::dispatch::{completion, prompts, resources, tools};
use crate::middleware::{Next, RequestService};
use crate::prompt::Prompt;
use crate::registry::{Methods, ProtocolHandler};
use crate::request_parts::RequestParts;
use crate::resource::{Resource, ResourceTemplate};
use crate::state::StateMap;
use crate::tool::Tool;
use crate::visibility::VisibilityRule;

/// A group of tools, prompts, resources and resource templates, with its own state, visibility
/// rules and [layers](crate::middleware). Typically, each module of an application provides one.
///
/// [`ServerBuilder::merge`](crate::ServerBuilder::merge) adds a group as it is, and
/// [`ServerBuilder::mount`](crate::ServerBuilder::mount) adds it under a prefix. Two features of
/// one kind with the same name or URI are a build error, even in different groups.
///
/// ```
/// use mrtr_server::{Context, FeatureGroup, Server, State, Tool};
///
/// #[derive(Clone)]
/// struct Invoices {
///     open: u32,
/// }
///
/// async fn count(State(invoices): State<Invoices>) -> String {
///     format!("{} open invoices", invoices.open)
/// }
///
/// /// What the module `billing` offers.
/// fn billing() -> FeatureGroup {
///     FeatureGroup::new()
///         .tool(Tool::new("count", "Counts the open invoices", count))
///         .state(Invoices { open: 3 })
///         .requires_scope("billing")
/// }
///
/// // The tool is named `billing__count`.
/// let server = Server::builder("shop", "1.0.0")
///     .mount("billing", billing())
///     .require_principal()
///     .ephemeral_key()
///     .build()?;
/// # Ok::<(), mrtr_server::BuildError>(())
/// ```
#[must_use = "give it to `ServerBuilder::merge` or `ServerBuilder::mount`"]
#[derive(Default)]
pub struct FeatureGroup {
    pub(crate) tools: Vec<Tool>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
    /// The methods that serve them.
    pub(crate) methods: BTreeMap<&'static str, ProtocolHandler>,
    state: StateMap,
    scopes: Vec<String>,
    visibility: Vec<VisibilityRule>,
    layers: Vec<Box<dyn Fn(Next) -> Next + Send + Sync>>,
    /// A type of state that a merged group has twice.
    pub(crate) duplicate_state: Option<&'static str>,
}

impl FeatureGroup {
    /// Separates the prefix of a mounted group from the names in it.
    pub const SEPARATOR: &str = "__";

    /// Creates an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool. Clients see tools in the order in which they were added.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self.serving(tools::METHODS)
    }

    /// Adds a prompt.
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        let completes = !prompt.completers.is_empty();
        self.prompts.push(prompt);
        self.serving(prompts::METHODS).serving_completion(completes)
    }

    /// Adds a resource.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resources.push(resource);
        self.serving(resources::METHODS)
    }

    /// Adds a family of resources.
    ///
    /// A URI is looked up among the resources first, then among the templates, in the order in
    /// which they were added.
    pub fn resource_template(mut self, template: ResourceTemplate) -> Self {
        let completes = !template.completers.is_empty();
        self.templates.push(template);
        self.serving(resources::METHODS).serving_completion(completes)
    }

    /// Adds application state for the handlers and completions of this group, which extract it with
    /// [`State`](crate::State). State of a type that the group does not have is looked up in the
    /// group that contains it, and then in the server.
    ///
    /// There is one value of each type in a group; two are a build error.
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Declares a scope that every request for a feature of this group needs, in addition to those
    /// of the feature itself. See [`Tool::requires_scope`].
    pub fn requires_scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// Hides the features of this group from callers that the rule does not allow, in addition to
    /// the rules of the feature itself. See [`Tool::visible_to`].
    pub fn visible_to(
        mut self,
        rule: impl Fn(&RequestParts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.visibility.push(VisibilityRule::new(rule));
        self
    }

    /// Adds a [layer](crate::middleware) around each feature of this group, and around the layers
    /// of the feature itself. The layer that is added last runs first.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Next, Service: RequestService> + Send + Sync + 'static,
    {
        self.layers.push(Box::new(move |next| next.wrapped_by(&layer)));
        self
    }

    /// Adds another group. Its features keep the state, rules and layers of that group.
    pub fn merge(mut self, mut group: Self) -> Self {
        group.seal();
        self.duplicate_state = self.duplicate_state.or(group.duplicate_state);
        self.tools.append(&mut group.tools);
        self.prompts.append(&mut group.prompts);
        self.resources.append(&mut group.resources);
        self.templates.append(&mut group.templates);
        self.methods.append(&mut group.methods);
        self
    }

    /// Adds another group under a prefix. Its features keep the state, rules and layers of that
    /// group. The names of its tools and prompts become `{prefix}__{name}`. Resources and templates
    /// keep their URIs.
    ///
    /// A prefix with characters that names cannot have is a build error.
    pub fn mount(self, prefix: &str, mut group: Self) -> Self {
        let names = group.tools.iter_mut().map(|tool| &mut tool.wire.name);
        for name in names.chain(group.prompts.iter_mut().map(|prompt| &mut prompt.wire.name)) {
            *name = format!("{prefix}{}{name}", Self::SEPARATOR);
        }
        self.merge(group)
    }

    /// Applies the state, scopes, rules and layers of the group to each feature.
    fn seal(&mut self) {
        let state = std::mem::take(&mut self.state);
        self.duplicate_state = self.duplicate_state.or(state.duplicate);
        let state = (!state.is_empty()).then(|| Arc::new(state));
        let (scopes, visibility) =
            (std::mem::take(&mut self.scopes), std::mem::take(&mut self.visibility));
        let layers = std::mem::take(&mut self.layers);
        for options in self.options_mut() {
            options.group_states.extend(state.clone());
            options.scopes.extend(scopes.iter().cloned());
            options.visibility.extend(visibility.iter().cloned());
            for wrap in &layers {
                options.layers = Some(wrap(options.layers.take().unwrap_or_else(Next::method)));
            }
        }
    }

    fn options_mut(&mut self) -> impl Iterator<Item = &mut CallOptions> {
        let tools = self.tools.iter_mut().map(|tool| &mut tool.options);
        let prompts = self.prompts.iter_mut().map(|prompt| &mut prompt.options);
        let resources = self.resources.iter_mut().map(|resource| &mut resource.options);
        let templates = self.templates.iter_mut().map(|template| &mut template.options);
        tools.chain(prompts).chain(resources).chain(templates)
    }

    pub(crate) fn serving(mut self, methods: Methods) -> Self {
        self.methods.extend(methods.iter().copied());
        self
    }

    pub(crate) fn serving_completion(self, completes: bool) -> Self {
        if completes { self.serving(completion::METHODS) } else { self }
    }
}

impl fmt::Debug for FeatureGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeatureGroup")
            .field("tools", &self.tools)
            .field("prompts", &self.prompts)
            .field("resources", &self.resources)
            .field("templates", &self.templates)
            .finish_non_exhaustive()
    }
}
