//! What an upstream lists, and what the gateway offers of it.

use std::collections::HashSet;

use mrtr_client::{CallError, Client, Transport};
use mrtr_schema::prompt::Prompt;
use mrtr_schema::resource::{Resource, ResourceTemplate};
use mrtr_schema::tasks;
use mrtr_schema::tool::Tool;

/// What an upstream lists.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Listed {
    pub(crate) tools: Vec<Tool>,
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) resources: Vec<Resource>,
    pub(crate) templates: Vec<ResourceTemplate>,
    /// True if it suggests values for arguments of prompts and variables of templates.
    pub(crate) completes: bool,
    /// True if it makes tasks of calls.
    pub(crate) has_tasks: bool,
}

impl Listed {
    /// Lists what the upstream has according to its capabilities.
    pub(crate) async fn read<T: Transport>(client: &Client<T>) -> Result<Self, CallError> {
        let capabilities = client.discover().await?.capabilities;
        let mut listed = Self {
            completes: capabilities.completions.is_some(),
            has_tasks: capabilities.has_extension(tasks::EXTENSION),
            ..Self::default()
        };
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
}

/// What the gateway offers of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Offered {
    /// What the features were made from; `None` if the next listing may change them even if it is
    /// the same, since another feature had the same name or URI.
    pub(crate) listed: Option<Listed>,
    pub(crate) keys: Keys,
}

/// The names and URIs of features.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) tools: HashSet<String>,
    pub(crate) prompts: HashSet<String>,
    pub(crate) resources: HashSet<String>,
    pub(crate) templates: HashSet<String>,
}
