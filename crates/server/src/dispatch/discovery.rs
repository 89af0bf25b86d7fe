//! `server/discover`, and the pages of lists.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mrtr_schema::discover::DiscoverResult;
use mrtr_schema::json::{ObjectWriter, RawJson};
use mrtr_schema::jsonrpc::{ErrorObject, Request};
use mrtr_schema::result::CacheScope;
use mrtr_schema::tool::ListParams;
use mrtr_schema::{PROTOCOL_VERSION, method};

use super::serialization_error;
use crate::catalog::{Catalog, CatalogEntry};
use crate::registry::{Methods, Outcome, Registry, ResponseFuture};
use crate::request_parts::RequestParts;

pub(crate) const METHODS: Methods = &[(method::DISCOVER, discover)];

fn discover(server: Arc<Registry>, _: &Request, _: Box<RequestParts>) -> ResponseFuture<'_> {
    Box::pin(async move { server.discover() })
}

impl Registry {
    /// Returns the names of all revisions that the server serves, the latest first.
    pub(super) fn supported_versions(&self) -> Vec<&'static str> {
        let legacy = self.runtime.legacy_versions.get().into_iter().flatten();
        [PROTOCOL_VERSION].into_iter().chain(legacy.copied()).collect()
    }

    fn discover(&self) -> Outcome {
        let versions = self.supported_versions().into_iter().map(str::to_owned).collect();
        let mut result = DiscoverResult::new(versions, self.capabilities());
        result.instructions.clone_from(&self.instructions);
        result.ttl_ms = self.list_cache.ttl_ms;
        result.cache_scope = self.list_cache.scope;
        self.complete(&result)
    }

    /// Returns one page of a list, as the member `name` of a result.
    ///
    /// A cursor names the last entry that was listed, so that a change of the list elsewhere does
    /// not matter. It is opaque to clients.
    pub(super) fn page<T: CatalogEntry>(
        &self,
        name: &str,
        all: &Catalog<T>,
        list: &ListParams,
        caller: &RequestParts,
    ) -> Outcome {
        let start = match &list.cursor {
            None => 0,
            // A cursor after a hidden entry is unknown, too: it would tell that the entry exists.
            Some(cursor) => read_cursor(cursor)
                .filter(|last| all.find_visible(last, caller).is_some())
                .and_then(|last| all.position(&last))
                .map(|last| last + 1)
                .ok_or_else(|| ErrorObject::invalid_params("Invalid params: unknown `cursor`"))?,
        };
        if all.has_rules() {
            let is_visible = |at: &usize| {
                all.get(*at).is_some_and(|entry| entry.options().is_visible_to(caller))
            };
            let mut visible = (start..all.len()).filter(is_visible);
            let positions: Vec<usize> = visible.by_ref().take(self.page_size).collect();
            let more = visible.next().and(positions.last());
            let items = positions.iter().filter_map(|at| all.items_json().get(*at).cloned());
            let items: Vec<_> = items.collect();
            let end = more.and_then(|at| all.get(*at));
            return self.page_of(name, &items, end, CacheScope::Private);
        }
        let end = start.saturating_add(self.page_size).min(all.len());
        let items = all.items_json().get(start..end).unwrap_or_default();
        let more = end.checked_sub(1).filter(|_| end < all.len());
        self.page_of(name, items, more.and_then(|at| all.get(at)), self.list_cache.scope)
    }

    /// Serializes a page. `end` is its last entry, if there is a further page.
    fn page_of<T: CatalogEntry>(
        &self,
        name: &str,
        items: &[RawJson],
        end: Option<&Arc<T>>,
        scope: CacheScope,
    ) -> Outcome {
        let length = items.iter().map(|entry| entry.as_str().len() + 1).sum::<usize>() + 256;
        let mut result =
            ObjectWriter::with_capacity(length).string("resultType", "complete").array(name, items);
        if let Some(last) = end {
            result = result.string("nextCursor", &write_cursor(last.key()));
        }
        let result = result
            .member("ttlMs", &self.list_cache.ttl_ms)
            .and_then(|result| result.member("cacheScope", &scope))
            .map_err(|error| serialization_error(&error))?;
        Ok(result.raw("_meta", &self.meta_json).end())
    }
}

fn write_cursor(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("after {last}"))
}

/// Returns the key in a cursor, if it is exactly what [`write_cursor`] wrote.
fn read_cursor(cursor: &str) -> Option<String> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let last = text.strip_prefix("after ")?;
    (write_cursor(last) == cursor).then(|| last.to_owned())
}
