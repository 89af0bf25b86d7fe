//! Lists, read page by page.

use std::collections::HashMap;
use std::sync::Arc;

use mrtr_schema::icon::Icon;
use mrtr_schema::jsonrpc;
use mrtr_schema::method;
use mrtr_schema::peer_text::quote;
use mrtr_schema::prompt::{ListPromptsResult, Prompt};
use mrtr_schema::resource::{
    ListResourceTemplatesResult, ListResourcesResult, Resource, ResourceTemplate,
};
use mrtr_schema::tool::{ListToolsResult, Tool};
use mrtr_transport::Transport;
use serde::de::DeserializeOwned;

use crate::call_timer::CallTimer;
use crate::client::Client;
use crate::error::CallError;
use crate::json::encode_param;
use crate::tool_info::ToolInfo;

// The limits on one list: a server that returns cursors without end must not exhaust the client's
// memory.
const MAX_PAGES: usize = 1_000;
const MAX_ITEMS: usize = 100_000;
const MAX_BYTES: usize = 64 << 20;

impl<T: Transport> Client<T> {
    /// Lists the server's tools, with all pages (`tools/list`).
    ///
    /// Tools with an invalid `x-mcp-header` are left out, with a warning in the log. Icons with a
    /// URI that is unsafe to show are removed, here and in the other lists.
    ///
    /// The client remembers the tools for later calls: which arguments to mirror in headers, and
    /// the `outputSchema` to validate results against.
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_tools(&self) -> Result<Vec<Tool>, CallError> {
        let page = |page: ListToolsResult| (page.tools, page.next_cursor);
        let mut tools = self.all_pages(method::TOOLS_LIST, page).await?;
        let mut infos = HashMap::new();
        tools.retain_mut(|tool| match ToolInfo::from_tool(tool) {
            Ok(info) => {
                tool.icons.retain(Icon::is_safe);
                infos.insert(tool.name.clone(), Arc::new(info));
                true
            }
            Err(why) => {
                let tool = quote(&tool.name);
                tracing::warn!(target: "mrtr::client", tool, why, "ignoring invalid tool");
                false
            }
        });
        self.shared.tools.replace(infos);
        Ok(tools)
    }

    /// Lists the server's prompts, with all pages (`prompts/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_prompts(&self) -> Result<Vec<Prompt>, CallError> {
        let page = |page: ListPromptsResult| (page.prompts, page.next_cursor);
        let mut prompts = self.all_pages(method::PROMPTS_LIST, page).await?;
        for prompt in &mut prompts {
            prompt.icons.retain(Icon::is_safe);
        }
        Ok(prompts)
    }

    /// Lists the server's resources, with all pages (`resources/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_resources(&self) -> Result<Vec<Resource>, CallError> {
        let page = |page: ListResourcesResult| (page.resources, page.next_cursor);
        let mut resources = self.all_pages(method::RESOURCES_LIST, page).await?;
        for resource in &mut resources {
            resource.icons.retain(Icon::is_safe);
        }
        Ok(resources)
    }

    /// Lists the server's resource templates, with all pages (`resources/templates/list`).
    ///
    /// # Errors
    ///
    /// See [`CallError`].
    pub async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplate>, CallError> {
        let page = |page: ListResourceTemplatesResult| (page.resource_templates, page.next_cursor);
        let mut templates = self.all_pages(method::RESOURCE_TEMPLATES_LIST, page).await?;
        for template in &mut templates {
            template.icons.retain(Icon::is_safe);
        }
        Ok(templates)
    }

    /// Reads all pages of a list within the client's timeout.
    async fn all_pages<P: DeserializeOwned, I>(
        &self,
        method: &str,
        split: impl Fn(P) -> (Vec<I>, Option<String>),
    ) -> Result<Vec<I>, CallError> {
        let (timeout, user_time) = (self.options.timeout, self.options.user_time.clone());
        let pages = self.read_pages(method, split);
        CallTimer::new(timeout, user_time).within(pages).await.unwrap_or_else(|| {
            let timeout = timeout.unwrap_or_default();
            let why = format!("{method} with all its pages timed out after {timeout:?}");
            Err(CallError::timeout(why))
        })
    }

    async fn read_pages<P: DeserializeOwned, I>(
        &self,
        method: &str,
        split: impl Fn(P) -> (Vec<I>, Option<String>),
    ) -> Result<Vec<I>, CallError> {
        let mut all = Vec::new();
        let mut bytes = 0;
        let mut cursor: Option<String> = None;
        let mut restarted = false;
        for _ in 0..MAX_PAGES {
            let params = match &cursor {
                Some(cursor) => vec![("cursor", encode_param(cursor)?)],
                None => Vec::new(),
            };
            let page = match self.cached_call::<P>(method, &params).await {
                // The server may no longer know a cursor from a cached page. Once, the list is
                // read from its beginning.
                Err(error) if is_invalid_params(&error) && cursor.is_some() && !restarted => {
                    restarted = true;
                    self.shared.cache.remove(&[method]);
                    (bytes, cursor) = (0, None);
                    all.clear();
                    continue;
                }
                page => page?,
            };
            bytes += page.bytes;
            if bytes > MAX_BYTES {
                return Err(too_long(method, MAX_BYTES, "bytes"));
            }
            let (items, next_cursor) = split(page.result);
            all.extend(items);
            if all.len() > MAX_ITEMS {
                return Err(too_long(method, MAX_ITEMS, "items"));
            }
            if next_cursor.is_none() {
                return Ok(all);
            }
            cursor = next_cursor;
        }
        Err(too_long(method, MAX_PAGES, "pages"))
    }
}

fn too_long(method: &str, limit: usize, unit: &str) -> CallError {
    CallError::protocol(format!("the result of {method} has more than {limit} {unit}"))
}

fn is_invalid_params(error: &CallError) -> bool {
    error.as_server_error().is_some_and(|error| error.code == jsonrpc::code::INVALID_PARAMS)
}
