//! Discovery and lists: what a server tells about itself.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::prompt::ListPromptsResult;
use mrtr_schema::resource::{ListResourceTemplatesResult, ListResourcesResult};
use mrtr_schema::tool::{ListParams, ListToolsResult};

use super::{Answer, complete};
use crate::server::Inner;

impl Inner {
    pub(super) fn discover(&self) -> Answer {
        complete(&DiscoverResult {
            supported_versions: vec![PROTOCOL_VERSION.to_owned()],
            capabilities: self.capabilities(),
            instructions: self.instructions.clone(),
            ttl_ms: self.lists.ttl_ms,
            cache_scope: self.lists.scope,
            meta: Some(self.meta.clone()),
            ..DiscoverResult::default()
        })
    }

    pub(super) fn list_tools(&self, list: &ListParams) -> Answer {
        let (tools, next_cursor) = self.page(&self.tools, list, |tool| tool.wire.clone())?;
        let (ttl_ms, cache_scope) = (self.lists.ttl_ms, self.lists.scope);
        let meta = Some(self.meta.clone());
        complete(&ListToolsResult {
            tools,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta,
            ..Default::default()
        })
    }

    pub(super) fn list_prompts(&self, list: &ListParams) -> Answer {
        let (prompts, next_cursor) =
            self.page(&self.prompts, list, |prompt| prompt.wire.clone())?;
        let (ttl_ms, cache_scope) = (self.lists.ttl_ms, self.lists.scope);
        let meta = Some(self.meta.clone());
        complete(&ListPromptsResult {
            prompts,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta,
            ..Default::default()
        })
    }

    pub(super) fn list_resources(&self, list: &ListParams) -> Answer {
        let (resources, next_cursor) = self.page(&self.resources, list, |one| one.wire.clone())?;
        let (ttl_ms, cache_scope) = (self.lists.ttl_ms, self.lists.scope);
        let meta = Some(self.meta.clone());
        complete(&ListResourcesResult {
            resources,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta,
            ..Default::default()
        })
    }

    pub(super) fn list_templates(&self, list: &ListParams) -> Answer {
        let (resource_templates, next_cursor) =
            self.page(&self.templates, list, |(_, template)| template.wire.clone())?;
        let (ttl_ms, cache_scope) = (self.lists.ttl_ms, self.lists.scope);
        complete(&ListResourceTemplatesResult {
            resource_templates,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta: Some(self.meta.clone()),
            ..Default::default()
        })
    }

    /// One page, and the cursor of the next. A cursor is a place in the list, which is the same on every
    /// replica; clients must not read it.
    fn page<T, W>(
        &self,
        all: &[T],
        list: &ListParams,
        wire: impl Fn(&T) -> W,
    ) -> Result<(Vec<W>, Option<String>), ErrorObject> {
        let start = match &list.cursor {
            None => 0,
            Some(cursor) => read_cursor(cursor)
                .filter(|start| (1..all.len()).contains(start))
                .ok_or_else(|| ErrorObject::invalid_params("Invalid params: unknown `cursor`"))?,
        };
        let end = start.saturating_add(self.page_size).min(all.len());
        let items = all.get(start..end).unwrap_or_default().iter().map(wire).collect();
        Ok((items, (end < all.len()).then(|| write_cursor(end))))
    }
}

fn write_cursor(place: usize) -> String {
    URL_SAFE_NO_PAD.encode(format!("at {place}"))
}

fn read_cursor(cursor: &str) -> Option<usize> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let place: usize = text.strip_prefix("at ")?.parse().ok()?;
    (write_cursor(place) == cursor).then_some(place)
}
