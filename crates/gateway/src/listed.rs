//! What an upstream lists, and what the gateway offers of it.

use std::collections::{HashMap, HashSet};

use mrtr_client::{CallError, Client, Transport};
use mrtr_schema::peer_text::quote;
use mrtr_schema::{prompt, resource, tasks, tool};
use mrtr_server::{Prompt, Resource, ResourceTemplate, ServerUpdate, Tool};
use serde::Serialize;

/// The longest definition of one feature, and of all features of one kind that are taken from an
/// upstream, in bytes.
const MAX_DEFINITION: usize = 64 * 1024;
const MAX_LIST: usize = 2 * 1024 * 1024;

/// How many of the features that are left out are counted.
const MAX_NAMED: usize = 1_000;

/// What an upstream lists.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Listed {
    pub(crate) tools: Vec<tool::Tool>,
    pub(crate) prompts: Vec<prompt::Prompt>,
    pub(crate) resources: Vec<resource::Resource>,
    pub(crate) templates: Vec<resource::ResourceTemplate>,
    /// True if it suggests values for arguments of prompts and variables of templates.
    pub(crate) completes: bool,
    /// True if it reports changes of single resources.
    pub(crate) reports_updates: bool,
    /// True if it makes tasks of calls.
    pub(crate) has_tasks: bool,
    /// The names and URIs of what is left out because it is too long.
    too_long: Vec<String>,
}

impl Listed {
    /// Lists what the upstream has according to its capabilities.
    pub(crate) async fn read<T: Transport>(client: &Client<T>) -> Result<Self, CallError> {
        let capabilities = client.discover().await?.capabilities;
        let mut listed = Self {
            completes: capabilities.completions.is_some(),
            has_tasks: capabilities.has_extension(tasks::EXTENSION),
            reports_updates: capabilities
                .resources
                .as_ref()
                .is_some_and(|resources| resources.subscribe == Some(true)),
            ..Self::default()
        };
        let too_long = &mut listed.too_long;
        if capabilities.tools.is_some() {
            listed.tools = bounded(client.list_tools().await?, too_long, |tool| &tool.name);
        }
        if capabilities.prompts.is_some() {
            let prompts = client.list_prompts().await?;
            listed.prompts = bounded(prompts, too_long, |prompt| &prompt.name);
        }
        if capabilities.resources.is_some() {
            let resources = client.list_resources().await?;
            listed.resources = bounded(resources, too_long, |resource| &resource.uri);
            let templates = client.list_resource_templates().await?;
            listed.templates = bounded(templates, too_long, |template| &template.uri_template);
        }
        Ok(listed)
    }

    /// Logs what is left out because it is too long.
    pub(crate) fn warn_of_too_long(&self, upstream: &str) {
        if let Some(first) = self.too_long.first() {
            let (first, count) = (quote(first), self.too_long.len());
            tracing::warn!(
                target: "mrtr::gateway",
                upstream, first, count, MAX_DEFINITION, MAX_LIST,
                "skipping features whose definitions are too long, by themselves or together"
            );
        }
    }
}

/// Leaves out what is too long to be listed together with what the other upstreams offer: clients
/// limit the length of a response.
fn bounded<D: Serialize>(
    listed: Vec<D>,
    too_long: &mut Vec<String>,
    key: fn(&D) -> &str,
) -> Vec<D> {
    let mut room = MAX_LIST;
    let fits = |definition: &D| {
        let bytes = serde_json::to_string(definition).map_or(usize::MAX, |json| json.len());
        let fits = bytes <= MAX_DEFINITION.min(room);
        if fits {
            room -= bytes;
        } else if too_long.len() < MAX_NAMED {
            too_long.push(key(definition).to_owned());
        }
        fits
    };
    listed.into_iter().filter(fits).collect()
}

/// What the gateway offers of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// What the features were made from; `None` if the next listing may change them even if it is
    /// the same, since another feature had the same name or URI.
    pub(crate) listed: Option<Listed>,
    pub(crate) keys: Keys,
}

/// The places of features in a list, by name or URI: the index of their upstream, and the position
/// in its own list.
pub(crate) type Ranking = HashMap<String, (usize, usize)>;

/// The places of the features of all upstreams: those of the same features are the same at every
/// replica, whichever upstream answers first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranks {
    pub(crate) tools: Ranking,
    pub(crate) prompts: Ranking,
    pub(crate) resources: Ranking,
    pub(crate) templates: Ranking,
}

impl Ranks {
    /// Sorts the lists. What the server itself offers comes first.
    pub(crate) fn sort(&self, update: &mut ServerUpdate) {
        update.sort_by_key::<Tool, _>(|key| self.tools.get(key).copied());
        update.sort_by_key::<Prompt, _>(|key| self.prompts.get(key).copied());
        update.sort_by_key::<Resource, _>(|key| self.resources.get(key).copied());
        update.sort_by_key::<ResourceTemplate, _>(|key| self.templates.get(key).copied());
    }
}

/// The names and URIs of features.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) tools: HashSet<String>,
    pub(crate) prompts: HashSet<String>,
    pub(crate) resources: HashSet<String>,
    pub(crate) templates: HashSet<String>,
}
