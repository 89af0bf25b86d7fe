//! The features of a server: its tools, prompts, resources and resource templates, before they are
//! in catalogs.

use std::sync::Arc;
use std::time::Duration;

use mrtr_schema::{apps, uri};
use mrtr_transport::headers::ParamHeader;
use serde_json::json;

use crate::apps::ui_of_resource;
use crate::build_error::BuildError;
use crate::call_options::CallOptions;
use crate::catalog::{CatalogEntry, Entry};
use crate::changes::Change;
use crate::completion::Completers;
use crate::prompt::Prompt;
use crate::resource::{Resource, ResourceTemplate};
use crate::schema_validation::Schemas;
use crate::state::StateMap;
use crate::template::Template;
use crate::tool::Tool;
use crate::validate::{
    check_annotations, check_dialect, check_icons, check_options, check_tool_name, check_unique,
};

/// What a server offers, in the order in which it was added.
#[derive(Clone, Default)]
pub(crate) struct Features {
    pub(crate) tools: Vec<Entry<Tool>>,
    pub(crate) prompts: Vec<Entry<Prompt>>,
    pub(crate) resources: Vec<Entry<Resource>>,
    pub(crate) templates: Vec<Entry<ParsedTemplate>>,
}

/// A resource template, and its parsed URI template.
pub(crate) type ParsedTemplate = (Template, ResourceTemplate);

/// What handlers may need from their server.
pub(crate) struct Provided<'a> {
    pub(crate) single_use_store: bool,
    pub(crate) task_store: bool,
    pub(crate) state: &'a StateMap,
}

impl Features {
    /// Adds a feature. [`check`](Self::check) finds duplicates.
    pub(crate) fn add<F: Feature>(&mut self, feature: F) -> Result<(), BuildError> {
        let item = Arc::new(feature.prepare()?);
        F::entries(self).push(Entry { item, is_enabled: true });
        Ok(())
    }

    /// Checks everything that concerns single features and their names.
    pub(crate) fn check(&self, provided: &Provided<'_>) -> Result<(), BuildError> {
        self.check_keys()?;
        self.check_ui_resources()?;
        for (of, declared, completers) in self.completers() {
            if let Some((name, _)) =
                completers.named.iter().find(|(name, _)| !declared.contains(name))
            {
                return Err(BuildError::Completion { of, argument: name.clone() });
            }
        }
        for (kind, name, options) in self.options() {
            let of = || format!("the {kind} {name:?}");
            check_options(options, provided.single_use_store, provided.state, of)?;
        }
        for tool in self.tools.iter().map(|tool| &tool.item) {
            let Some(policy) = &tool.task else { continue };
            if tool.options.manual {
                return Err(BuildError::ManualTask(tool.wire.name.clone()));
            }
            if !provided.task_store {
                return Err(BuildError::NoTaskStore(tool.wire.name.clone()));
            }
            // The task would be deleted before it has a result.
            if policy.ttl.is_some_and(|ttl| ttl < Duration::from_secs(1)) {
                let of = format!("the tool {:?}", tool.wire.name);
                return Err(BuildError::Timeout { of, option: "ttl", minimum: "1 s" });
            }
        }
        Ok(())
    }

    /// Checks that the UI resources of tools exist (MCP Apps).
    fn check_ui_resources(&self) -> Result<(), BuildError> {
        for tool in self.tools.iter().filter(|tool| tool.is_enabled) {
            let Some(uri) = &tool.item.ui_resource else { continue };
            if !self.has_ui_resource(uri) {
                return Err(BuildError::App {
                    of: format!("the tool {:?}", tool.item.wire.name),
                    why: format!("no resource {uri:?} has the media type {:?}", apps::MIME_TYPE),
                });
            }
        }
        Ok(())
    }

    /// Returns true if what a read of this URI finds is a UI resource.
    fn has_ui_resource(&self, uri: &str) -> bool {
        let mut resources = self.resources.iter().filter(|found| found.is_enabled);
        let mut templates = self.templates.iter().filter(|found| found.is_enabled);
        let resource = resources.find(|Entry { item, .. }| item.wire.uri == uri);
        let mime_type = match resource {
            Some(resource) => resource.item.wire.mime_type.as_deref(),
            None => templates
                .find(|found| found.item.0.matches(uri).is_some())
                .and_then(|found| found.item.1.wire.mime_type.as_deref()),
        };
        mime_type == Some(apps::MIME_TYPE)
    }

    fn check_keys(&self) -> Result<(), BuildError> {
        check_unique(Tool::KIND, self.tools.iter().map(|tool| tool.item.key()))?;
        check_unique(Prompt::KIND, self.prompts.iter().map(|prompt| prompt.item.key()))?;
        check_unique(Resource::KIND, self.resources.iter().map(|found| found.item.key()))?;
        check_unique(ResourceTemplate::KIND, self.templates.iter().map(|found| found.item.key()))
    }

    /// Returns the options of each handler, with its kind and name.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&'static str, &str, &CallOptions)> {
        let tools = self.tools.iter().map(|tool| &*tool.item);
        let tools = tools.map(|tool| (Tool::KIND, tool.key(), &tool.options));
        let prompts = self.prompts.iter().map(|prompt| &*prompt.item);
        let prompts = prompts.map(|prompt| (Prompt::KIND, prompt.key(), &prompt.options));
        let resources = self.resources.iter().map(|resource| &*resource.item);
        let resources = resources.map(|found| (Resource::KIND, found.key(), &found.options));
        let templates = self.templates.iter().map(|template| &*template.item);
        let templates =
            templates.map(|found| (ResourceTemplate::KIND, found.key(), &found.1.options));
        tools.chain(prompts).chain(resources).chain(templates)
    }

    /// Returns everything that can have completions: its name, its arguments, and its completers.
    fn completers(&self) -> impl Iterator<Item = (String, Vec<String>, &Completers)> {
        let prompts = self.prompts.iter().map(|prompt| &*prompt.item).map(|prompt| {
            let arguments = prompt.wire.arguments.iter();
            let names = arguments.map(|argument| argument.name.clone()).collect();
            (format!("the prompt {:?}", prompt.wire.name), names, &prompt.completers)
        });
        let templates = self.templates.iter().map(|template| &*template.item);
        let templates = templates.map(|(parsed, template)| {
            let names = parsed.names().map(str::to_owned).collect();
            let what = format!("the resource template {:?}", template.wire.uri_template);
            (what, names, &template.completers)
        });
        prompts.chain(templates)
    }
}

/// Something that a server offers to clients: a [`Tool`], a [`Prompt`], a [`Resource`] or a
/// [`ResourceTemplate`] (specification: server features). Other crates cannot implement it.
#[expect(private_bounds, reason = "other crates cannot implement this trait")]
pub trait Feature: Sealed {}

impl Feature for Tool {}
impl Feature for Prompt {}
impl Feature for Resource {}
impl Feature for ResourceTemplate {}

/// What a [`Feature`] is to this crate.
pub(crate) trait Sealed: Sized {
    /// What a catalog has of it.
    type Item: CatalogEntry;

    const KIND: &'static str;

    /// The change of the list that has it.
    const CHANGE: Change;

    /// Checks it, and reads what is read once.
    fn prepare(self) -> Result<Self::Item, BuildError>;

    fn entries(features: &mut Features) -> &mut Vec<Entry<Self::Item>>;

    fn entries_of(features: &Features) -> &[Entry<Self::Item>];
}

impl Sealed for Tool {
    type Item = Self;

    const KIND: &'static str = "tool";
    const CHANGE: Change = Change::Tools;

    /// Reads the schemas: for header mirroring, and for validation.
    fn prepare(mut self) -> Result<Self, BuildError> {
        let name = &self.wire.name;
        check_tool_name(name)?;
        check_icons(name, &self.wire.icons)?;
        self.prepare_ui()?;
        let name = &self.wire.name;
        self.param_headers = ParamHeader::from_schema(&self.wire.input_schema)
            .map_err(|why| BuildError::Header { tool: name.clone(), why: why.to_string() })?;
        if self.wire.input_schema.get("type") != Some(&json!("object")) {
            return Err(BuildError::Arguments(name.clone()));
        }
        if self.skip_validation {
            return Ok(self);
        }
        self.schemas = std::iter::once(&self.wire.input_schema)
            .chain(&self.wire.output_schema)
            .try_for_each(check_dialect)
            .and_then(|()| Schemas::new(&self.wire, self.custom_schema))
            .map_err(|why| BuildError::Schema { tool: name.clone(), why })?;
        Ok(self)
    }

    fn entries(features: &mut Features) -> &mut Vec<Entry<Self>> {
        &mut features.tools
    }

    fn entries_of(features: &Features) -> &[Entry<Self>] {
        &features.tools
    }
}

impl Sealed for Prompt {
    type Item = Self;

    const KIND: &'static str = "prompt";
    const CHANGE: Change = Change::Prompts;

    fn prepare(self) -> Result<Self, BuildError> {
        // Only names of tools have a rule; others are encoded in the header.
        if self.wire.name.is_empty() {
            return Err(BuildError::PromptName);
        }
        check_icons(&self.wire.name, &self.wire.icons)?;
        Ok(self)
    }

    fn entries(features: &mut Features) -> &mut Vec<Entry<Self>> {
        &mut features.prompts
    }

    fn entries_of(features: &Features) -> &[Entry<Self>] {
        &features.prompts
    }
}

impl Sealed for Resource {
    type Item = Self;

    const KIND: &'static str = "resource";
    const CHANGE: Change = Change::Resources;

    fn prepare(mut self) -> Result<Self, BuildError> {
        let uri = &self.wire.uri;
        uri::validate(uri)
            .map_err(|why| BuildError::Uri { uri: uri.clone(), why: why.to_string() })?;
        let mime_type = self.wire.mime_type.as_deref();
        self.contents_ui = ui_of_resource(Self::KIND, uri, mime_type, self.wire.meta.as_ref())?;
        check_annotations(uri, self.wire.annotations.as_ref())?;
        check_icons(&self.wire.name, &self.wire.icons)?;
        Ok(self)
    }

    fn entries(features: &mut Features) -> &mut Vec<Entry<Self>> {
        &mut features.resources
    }

    fn entries_of(features: &Features) -> &[Entry<Self>] {
        &features.resources
    }
}

impl Sealed for ResourceTemplate {
    type Item = ParsedTemplate;

    const KIND: &'static str = "resource template";
    const CHANGE: Change = Change::Resources;

    fn prepare(mut self) -> Result<ParsedTemplate, BuildError> {
        let template = &self.wire.uri_template;
        let parsed = Template::parse(template)
            .map_err(|why| BuildError::Template { template: template.clone(), why })?;
        let mime_type = self.wire.mime_type.as_deref();
        self.contents_ui =
            ui_of_resource(Self::KIND, template, mime_type, self.wire.meta.as_ref())?;
        check_annotations(template, self.wire.annotations.as_ref())?;
        check_icons(&self.wire.name, &self.wire.icons)?;
        Ok((parsed, self))
    }

    fn entries(features: &mut Features) -> &mut Vec<Entry<ParsedTemplate>> {
        &mut features.templates
    }

    fn entries_of(features: &Features) -> &[Entry<ParsedTemplate>] {
        &features.templates
    }
}
