//! Discovery and lists: what a server tells about itself.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mrtr_schema::PROTOCOL_VERSION;
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::jsonrpc::ErrorObject;
use mrtr_schema::prompt::ListPromptsResult;
use mrtr_schema::resource::{ListResourceTemplatesResult, ListResourcesResult};
use mrtr_schema::result::{CacheScope, ResultType};
use mrtr_schema::tool::{ListParams, ListToolsResult};

use super::Answer;
use crate::server::Inner;

impl Inner {
    pub(super) fn discover(&self) -> Answer {
        self.complete(&DiscoverResult {
            supported_versions: vec![PROTOCOL_VERSION.to_owned()],
            capabilities: self.capabilities(),
            instructions: self.instructions.clone(),
            ttl_ms: self.lists.ttl_ms,
            cache_scope: self.lists.scope,
            ..DiscoverResult::default()
        })
    }

    pub(super) fn list_tools(&self, list: &ListParams) -> Answer {
        let Page { items: tools, next_cursor, ttl_ms, cache_scope } =
            self.page(&self.tools, list, |tool| tool.wire.clone())?;
        let result_type = ResultType::Complete;
        self.complete(&ListToolsResult {
            result_type,
            tools,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta: None,
        })
    }

    pub(super) fn list_prompts(&self, list: &ListParams) -> Answer {
        let Page { items: prompts, next_cursor, ttl_ms, cache_scope } =
            self.page(&self.prompts, list, |prompt| prompt.wire.clone())?;
        let result_type = ResultType::Complete;
        self.complete(&ListPromptsResult {
            result_type,
            prompts,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta: None,
        })
    }

    pub(super) fn list_resources(&self, list: &ListParams) -> Answer {
        let Page { items: resources, next_cursor, ttl_ms, cache_scope } =
            self.page(&self.resources, list, |resource| resource.wire.clone())?;
        let result_type = ResultType::Complete;
        self.complete(&ListResourcesResult {
            result_type,
            resources,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta: None,
        })
    }

    pub(super) fn list_templates(&self, list: &ListParams) -> Answer {
        let Page { items: resource_templates, next_cursor, ttl_ms, cache_scope } =
            self.page(&self.templates, list, |(_, template)| template.wire.clone())?;
        let result_type = ResultType::Complete;
        self.complete(&ListResourceTemplatesResult {
            result_type,
            resource_templates,
            next_cursor,
            ttl_ms,
            cache_scope,
            meta: None,
        })
    }

    /// One page. A cursor is a place in the list, which is the same on every
    /// replica; clients must not read it.
    fn page<T, W>(
        &self,
        all: &[T],
        list: &ListParams,
        wire: impl Fn(&T) -> W,
    ) -> Result<Page<W>, ErrorObject> {
        let start = match &list.cursor {
            None => 0,
            Some(cursor) => read_cursor(cursor)
                .filter(|start| (1..all.len()).contains(start))
                .ok_or_else(|| ErrorObject::invalid_params("Invalid params: unknown `cursor`"))?,
        };
        let end = start.saturating_add(self.page_size).min(all.len());
        let items = all.get(start..end).unwrap_or_default().iter().map(wire).collect();
        Ok(Page {
            items,
            next_cursor: (end < all.len()).then(|| write_cursor(end)),
            ttl_ms: self.lists.ttl_ms,
            cache_scope: self.lists.scope,
        })
    }
}

/// What the results of all lists have in common.
struct Page<W> {
    items: Vec<W>,
    next_cursor: Option<String>,
    ttl_ms: u64,
    cache_scope: CacheScope,
}

fn write_cursor(place: usize) -> String {
    URL_SAFE_NO_PAD.encode(format!("at {place}"))
}

fn read_cursor(cursor: &str) -> Option<usize> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let place: usize = text.strip_prefix("at ")?.parse().ok()?;
    (write_cursor(place) == cursor).then_some(place)
}
