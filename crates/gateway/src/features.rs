//! What an upstream offers, as features of the gateway's server.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

use mrtr_client::{CallError, Transport};
use mrtr_schema::prompt::Prompt as PromptDefinition;
use mrtr_schema::resource::{
    Resource as ResourceDefinition, ResourceTemplate as TemplateDefinition,
};
use mrtr_schema::tool::Tool as ToolDefinition;
use mrtr_server::manual::ManualContext;
use mrtr_server::{
    BuildError, Extension, Feature, Prompt, Resource, ResourceTemplate, ResourceUri, Server,
    ServerUpdate, Tool,
};

use crate::arguments::Arguments;
use crate::forward::forward;
use crate::upstream::{Offered, Upstream};

/// The most features of one kind that are taken from an upstream.
const MAX_FEATURES: usize = 1_000;

/// What an upstream offers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Listed {
    tools: Vec<ToolDefinition>,
    prompts: Vec<PromptDefinition>,
    resources: Vec<ResourceDefinition>,
    templates: Vec<TemplateDefinition>,
}

impl Listed {
    /// Lists what the upstream has according to its capabilities.
    pub(crate) async fn read<T: Transport>(upstream: &Upstream<T>) -> Result<Self, CallError> {
        let client = &upstream.client;
        let capabilities = client.discover().await?.capabilities;
        let mut listed = Self::default();
        if capabilities.tools.is_some() {
            listed.tools = client.list_tools().await?;
        }
        if capabilities.prompts.is_some() {
            listed.prompts = client.list_prompts().await?;
        }
        if capabilities.resources.is_some() {
            listed.resources = client.list_resources().await?;
            listed.templates = client.list_resource_templates().await?;
        }
        Ok(listed)
    }

    /// Replaces what the server offers of the upstream.
    pub(crate) fn offer<T: Transport>(
        self,
        upstream: &Arc<Upstream<T>>,
        server: &Server,
    ) -> Result<(), BuildError> {
        let mut offered = upstream.offered.lock().unwrap_or_else(PoisonError::into_inner);
        if offered.listed.as_ref() == Some(&self) {
            return Ok(());
        }
        let mut now = Offered::default();
        let mut clashes = 0;
        server.update(|update| {
            let mut replacing = Replacing { update, upstream: &upstream.name, clashes: 0 };
            let tools = self.tools.iter().filter_map(|definition| tool(upstream, definition));
            now.tools = replacing.replace(&offered.tools, tools);
            let prompts = self.prompts.iter().filter_map(|definition| prompt(upstream, definition));
            now.prompts = replacing.replace(&offered.prompts, prompts);
            let resources = self.resources.iter().map(|definition| resource(upstream, definition));
            now.resources = replacing.replace(&offered.resources, resources);
            let templates = self.templates.iter().map(|definition| template(upstream, definition));
            now.templates = replacing.replace(&offered.templates, templates);
            clashes = replacing.clashes;
            Ok(())
        })?;
        now.listed = (clashes == 0).then_some(self);
        *offered = now;
        Ok(())
    }
}

/// The replacement of what one upstream offers.
struct Replacing<'a> {
    update: &'a mut ServerUpdate,
    upstream: &'a str,
    /// The number of features that were skipped because another one has their key.
    clashes: usize,
}

impl Replacing<'_> {
    /// Replaces the features with the keys `before`, and returns the keys of the new ones.
    ///
    /// A feature that the server cannot have is skipped: the others are not at fault.
    fn replace<F: Feature>(
        &mut self,
        before: &HashSet<String>,
        mut features: impl Iterator<Item = (String, F)>,
    ) -> HashSet<String> {
        let (update, upstream) = (&mut *self.update, self.upstream);
        let mut kept = HashSet::new();
        for (key, feature) in features.by_ref().take(MAX_FEATURES) {
            let is_taken = !before.contains(&key) && update.contains::<F>(&key);
            let skipped = if is_taken || kept.contains(&key) {
                self.clashes += 1;
                "another feature has the same name or URI".to_owned()
            } else {
                match update.replace(feature) {
                    Ok(()) => {
                        kept.insert(key);
                        continue;
                    }
                    Err(error) => error.to_string(),
                }
            };
            tracing::warn!(target: "mrtr::gateway", upstream, key, skipped, "skipping a feature");
        }
        if features.next().is_some() {
            tracing::warn!(
                target: "mrtr::gateway",
                upstream,
                MAX_FEATURES,
                "skipping the features beyond the limit"
            );
        }
        for key in before.difference(&kept) {
            update.remove::<F>(key);
        }
        kept
    }
}

/// Logs that a tool or prompt is named like one of another upstream.
fn offered_name<T: Transport>(upstream: &Upstream<T>, name: &str) -> Option<String> {
    let offered = upstream.offered_name(name);
    if offered.is_none() {
        let upstream = &upstream.name;
        tracing::warn!(
            target: "mrtr::gateway",
            upstream, name,
            "skipping a name that begins with the prefix of another upstream"
        );
    }
    offered
}

fn tool<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &ToolDefinition,
) -> Option<(String, Tool)> {
    let offered = offered_name(upstream, &definition.name)?;
    let name: Arc<str> = definition.name.as_str().into();
    let mut definition = definition.clone();
    definition.name.clone_from(&offered);
    let upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext, arguments: Arguments| {
        let (upstream, name) = (Arc::clone(&upstream), Arc::clone(&name));
        async move {
            forward(&upstream, &cx, async |client| client.begin_tool(&name, arguments).await).await
        }
    };
    Some((offered, Tool::manual("", "", handler).definition(definition)))
}

fn prompt<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &PromptDefinition,
) -> Option<(String, Prompt)> {
    let offered = offered_name(upstream, &definition.name)?;
    let name: Arc<str> = definition.name.as_str().into();
    let mut definition = definition.clone();
    definition.name.clone_from(&offered);
    let upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext, arguments: Arguments| {
        let (upstream, name) = (Arc::clone(&upstream), Arc::clone(&name));
        async move {
            forward(&upstream, &cx, async |client| client.begin_prompt(&name, arguments).await)
                .await
        }
    };
    Some((offered, Prompt::manual("", "", handler).definition(definition)))
}

fn resource<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &ResourceDefinition,
) -> (String, Resource) {
    let uri: Arc<str> = definition.uri.as_str().into();
    let key = definition.uri.clone();
    let upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext| {
        let (upstream, uri) = (Arc::clone(&upstream), Arc::clone(&uri));
        async move { forward(&upstream, &cx, async |client| client.begin_resource(&uri).await).await }
    };
    (key, Resource::manual("", "", handler).definition(definition.clone()))
}

fn template<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &TemplateDefinition,
) -> (String, ResourceTemplate) {
    let key = definition.uri_template.clone();
    let upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext,
                        Extension(ResourceUri(uri)): Extension<ResourceUri>,
                        _: Arguments| {
        let upstream = Arc::clone(&upstream);
        async move {
            let read = async |client: &mrtr_client::Client<T>| client.begin_resource(&uri).await;
            forward(&upstream, &cx, read).await
        }
    };
    (key, ResourceTemplate::manual("", "", handler).definition(definition.clone()))
}
