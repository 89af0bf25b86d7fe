//! What an upstream lists, as features of the gateway's server.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mrtr_client::Transport;
use mrtr_schema::apps::{self, ToolUiMeta, ToolVisibility};
use mrtr_schema::completion::{CompleteArgument, CompleteContext, Completion, Reference};
use mrtr_schema::content::Annotations;
use mrtr_schema::peer_text::quote;
use mrtr_schema::prompt::Prompt as PromptDefinition;
use mrtr_schema::resource::{
    Resource as ResourceDefinition, ResourceTemplate as TemplateDefinition,
};
use mrtr_schema::tool::Tool as ToolDefinition;
use mrtr_server::manual::ManualContext;
use mrtr_server::{
    BuildError, CompletionRequest, Error, Extension, Feature, Prompt, Resource, ResourceTemplate,
    ResourceUri, Server, ServerUpdate, Tool,
};

use crate::arguments::Arguments;
use crate::forward::forward;
use crate::listed::{Keys, Listed, Offered, Ranking};
use crate::upstream::Upstream;

/// The longest time for suggestions, less than the 30 s that the gateway's server allows: the
/// caller then learns that it is the upstream that is slow.
const MAX_COMPLETION_TIME: Duration = Duration::from_secs(25);

/// The time that the state of a forwarded call is valid, for each question and in all. The
/// upstream's own state in it has the upstream's limits.
const MAX_CALL_TIME: Duration = Duration::from_hours(30 * 24);

/// The most features of one kind that are taken from an upstream.
const MAX_FEATURES: usize = 1_000;

/// Sets the limits of a forwarded feature, whose kinds share no trait with these setters.
macro_rules! with_limits {
    ($feature:expr, $upstream:expr) => {
        $feature
            .request_timeout($upstream.handler_timeout())
            .answer_timeout(MAX_CALL_TIME)
            .call_timeout(MAX_CALL_TIME)
            .max_rounds(u32::MAX)
    };
}

/// Replaces what the server offers of the upstream.
pub(crate) fn offer<T: Transport>(
    listed: Listed,
    upstream: &Arc<Upstream<T>>,
    server: &Server,
) -> Result<(), BuildError> {
    let mut offered = upstream.offered.lock().unwrap_or_else(PoisonError::into_inner);
    if offered.listed.as_ref() == Some(&listed) {
        return Ok(());
    }
    listed.warn_of_too_long(&upstream.name);
    let mut disabled = upstream.disabled.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, mut now, mut off) = (&offered.keys, Keys::default(), disabled.clone());
    let mut has_clashes = false;
    let mut shared_ranks = upstream.ranks.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ranks = shared_ranks.clone();
    server.update(|update| {
        let (upstream_name, has_clashes) = (&*upstream.name, &mut has_clashes);
        let index = upstream.index;
        let mut replacing = Replacing { update, upstream: upstream_name, index, has_clashes };
        let tools = listed.tools.iter().filter_map(|definition| tool(upstream, definition));
        now.tools = replacing.replace(&before.tools, &mut off.tools, &mut ranks.tools, tools);
        let completes = listed.completes;
        let prompts = listed.prompts.iter();
        let prompts = prompts.filter_map(|definition| prompt(upstream, definition, completes));
        now.prompts =
            replacing.replace(&before.prompts, &mut off.prompts, &mut ranks.prompts, prompts);
        let resources = listed.resources.iter();
        let resources = resources.filter(|found| is_forwarded(upstream_name, &found.uri));
        let reports_updates = listed.reports_updates;
        let resources = resources.map(|definition| resource(upstream, definition, reports_updates));
        now.resources = replacing.replace(
            &before.resources,
            &mut off.resources,
            &mut ranks.resources,
            resources,
        );
        let templates = listed.templates.iter();
        let templates = templates.filter(|found| is_forwarded(upstream_name, &found.uri_template));
        let templates = templates.map(|definition| template(upstream, definition, &listed));
        now.templates = replacing.replace(
            &before.templates,
            &mut off.templates,
            &mut ranks.templates,
            templates,
        );
        ranks.sort(update);
        Ok(())
    })?;
    upstream.has_tasks.store(listed.has_tasks, Ordering::Relaxed);
    *offered = Offered { listed: (!has_clashes).then_some(listed), keys: now };
    *disabled = off;
    *shared_ranks = ranks;
    upstream.relisted.notify_one();
    Ok(())
}

/// The replacement of what one upstream offers.
struct Replacing<'a> {
    update: &'a mut ServerUpdate,
    upstream: &'a str,
    index: usize,
    /// Set if a feature is skipped because another one has its key.
    has_clashes: &'a mut bool,
}

impl Replacing<'_> {
    /// Replaces the features with the keys `before`, and returns the keys of the new ones, which
    /// get their places in `ranks`. What the operator has disabled stays disabled, even if the
    /// upstream does not list it for a while.
    ///
    /// A feature that the server cannot have is skipped: the others are not at fault.
    fn replace<F: Feature>(
        &mut self,
        before: &HashSet<String>,
        disabled: &mut HashSet<String>,
        ranks: &mut Ranking,
        mut features: impl Iterator<Item = (String, F)>,
    ) -> HashSet<String> {
        let (update, upstream) = (&mut *self.update, self.upstream);
        let mut kept = HashSet::new();
        ranks.retain(|key, _| !before.contains(key));
        for (key, feature) in features.by_ref().take(MAX_FEATURES) {
            let is_taken = !before.contains(&key) && update.contains::<F>(&key);
            let skipped = if is_taken || kept.contains(&key) {
                *self.has_clashes = true;
                "another feature has the same name or URI".to_owned()
            } else {
                match update.replace(feature) {
                    Ok(()) => {
                        if disabled.remove(&key) {
                            update.disable::<F>(&key);
                        }
                        ranks.insert(key.clone(), (self.index, kept.len()));
                        kept.insert(key);
                        continue;
                    }
                    Err(error) => error.to_string(),
                }
            };
            let key = quote(&key);
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
            if update.is_disabled::<F>(key) {
                disabled.insert(key.clone());
            }
            update.remove::<F>(key);
        }
        kept
    }
}

/// Replaces the name of a tool or prompt by the one that the gateway offers. Returns the offered
/// name and the upstream's own; `None`, with a warning, if another upstream has such names.
fn rename<T: Transport>(upstream: &Upstream<T>, name: &mut String) -> Option<(String, Arc<str>)> {
    let Some(offered) = upstream.offered_name(name) else {
        let (upstream, name) = (&upstream.name, quote(name));
        tracing::warn!(
            target: "mrtr::gateway",
            upstream, name,
            "skipping a name that begins with the prefix of another upstream"
        );
        return None;
    };
    let own = std::mem::replace(name, offered.clone());
    Some((offered, own.into()))
}

fn tool<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &ToolDefinition,
) -> Option<(String, Tool)> {
    let mut definition = definition.clone();
    if !is_for_model(&upstream.name, &definition) {
        return None;
    }
    remove_ui(&mut definition);
    let (offered, name) = rename(upstream, &mut definition.name)?;
    let of_upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext, arguments: Arguments| {
        let (upstream, name) = (Arc::clone(&of_upstream), Arc::clone(&name));
        async move {
            forward(&upstream, &cx, async |client| client.begin_tool(&name, arguments).await).await
        }
    };
    let tool = Tool::manual("", "", handler).definition(definition).skip_validation();
    Some((offered, with_limits!(tool, upstream)))
}

/// Returns true if a tool is not app-only (MCP Apps). One with invalid metadata may be.
fn is_for_model(upstream: &str, definition: &ToolDefinition) -> bool {
    match ToolUiMeta::of(definition) {
        Ok(ui) => ui.is_for_model(),
        Err(error) => {
            let (tool, why) = (quote(&definition.name), error.to_string());
            tracing::warn!(target: "mrtr::gateway", upstream, tool, why, "skipping a tool");
            false
        }
    }
}

/// Removes the UI resource that shows the results of a tool, and keeps the tool from views that it
/// is not for.
///
/// A host would let the view call all tools of the gateway, with those of other upstreams.
fn remove_ui(definition: &mut ToolDefinition) {
    let is_for_app = ToolUiMeta::of(definition).is_ok_and(|ui| ui.is_for_app());
    let Some(meta) = &mut definition.meta else { return };
    meta.retain(|key, _| key != apps::META_KEY && key != apps::RESOURCE_URI_KEY);
    if !is_for_app {
        ToolUiMeta::default().with_visibility([ToolVisibility::Model]).write_to(meta);
    }
    definition.meta = definition.meta.take().filter(|meta| !meta.is_empty());
}

/// Returns true unless the URI is that of a UI resource, which could be taken for one of the
/// gateway's own.
fn is_forwarded(upstream: &str, uri: &str) -> bool {
    let is_ui = uri.starts_with(apps::URI_PREFIX);
    if is_ui {
        let uri = quote(uri);
        tracing::debug!(target: "mrtr::gateway", upstream, uri, "skipping a UI resource");
    }
    !is_ui
}

fn prompt<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &PromptDefinition,
    completes: bool,
) -> Option<(String, Prompt)> {
    let mut definition = definition.clone();
    let (offered, name) = rename(upstream, &mut definition.name)?;
    let reference = Reference::Prompt { name: name.to_string() };
    let of_upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext, arguments: Arguments| {
        let (upstream, name) = (Arc::clone(&of_upstream), Arc::clone(&name));
        async move {
            forward(&upstream, &cx, async |client| client.begin_prompt(&name, arguments).await)
                .await
        }
    };
    let prompt = Prompt::manual("", "", handler).definition(definition);
    let prompt = with_limits!(prompt, upstream);
    if !completes {
        return Some((offered, prompt));
    }
    Some((offered, prompt.complete_others(suggest(Arc::clone(upstream), reference))))
}

/// Removes annotations that the server would refuse. They are hints only.
fn remove_invalid(annotations: &mut Option<Annotations>) {
    annotations.take_if(|annotations| annotations.validate().is_err());
}

fn resource<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &ResourceDefinition,
    reports_updates: bool,
) -> (String, Resource) {
    let uri: Arc<str> = definition.uri.as_str().into();
    let key = definition.uri.clone();
    let of_upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext| {
        let (upstream, uri) = (Arc::clone(&of_upstream), Arc::clone(&uri));
        async move { forward(&upstream, &cx, async |client| client.begin_resource(&uri).await).await }
    };
    let mut definition = definition.clone();
    remove_invalid(&mut definition.annotations);
    let resource = Resource::manual("", "", handler).definition(definition);
    let resource = resource.subscribable(reports_updates);
    (key, with_limits!(resource, upstream))
}

fn template<T: Transport>(
    upstream: &Arc<Upstream<T>>,
    definition: &TemplateDefinition,
    listed: &Listed,
) -> (String, ResourceTemplate) {
    let key = definition.uri_template.clone();
    let of_upstream = Arc::clone(upstream);
    let handler = move |cx: ManualContext,
                        Extension(ResourceUri(uri)): Extension<ResourceUri>,
                        _: Arguments| {
        let upstream = Arc::clone(&of_upstream);
        async move {
            if !is_forwarded(&upstream.name, &uri) {
                return Err(Error::invalid("Resource not found"));
            }
            let read = async |client: &mrtr_client::Client<T>| client.begin_resource(&uri).await;
            forward(&upstream, &cx, read).await
        }
    };
    let mut definition = definition.clone();
    remove_invalid(&mut definition.annotations);
    // It does not count as a UI resource of the gateway's tools.
    definition.mime_type = definition.mime_type.filter(|mime_type| mime_type != apps::MIME_TYPE);
    let template = ResourceTemplate::manual("", "", handler).definition(definition);
    let template = with_limits!(template.subscribable(listed.reports_updates), upstream);
    if !listed.completes {
        return (key, template);
    }
    let reference = Reference::Resource { uri: key.clone() };
    (key, template.complete_others(suggest(Arc::clone(upstream), reference)))
}

/// Returns a function that forwards requests for suggestions.
fn suggest<T: Transport>(
    upstream: Arc<Upstream<T>>,
    reference: Reference,
) -> impl Fn(CompletionRequest) -> BoxFuture<'static, Result<Completion, Error>> {
    move |request| {
        let (upstream, reference) = (Arc::clone(&upstream), reference.clone());
        Box::pin(async move {
            let client = upstream.client_of(request.parts());
            let argument = CompleteArgument::new(request.argument, request.value);
            let context = CompleteContext::new(request.arguments);
            let completion = client.complete(&reference, &argument, &context);
            upstream.outcome_within(MAX_COMPLETION_TIME, completion).await
        })
    }
}
