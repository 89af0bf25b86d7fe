//! What a server has and lists: found by name, and written once.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use mrtr_schema::json::{ObjectWriter, RawJson};
use serde::Serialize;

use crate::prompt::Prompt;
use crate::resource::{Resource, ResourceTemplate};
use crate::template::Template;
use crate::tool::Tool;

/// Something that is listed.
pub(crate) trait CatalogEntry {
    /// Under which it is found.
    fn key(&self) -> &str;
    /// As it stands in a list.
    fn to_json(&self) -> RawJson;
}

/// Plain data, which always is JSON.
pub(crate) fn raw_json(data: &impl Serialize) -> RawJson {
    RawJson::new(data).unwrap_or_else(|_| ObjectWriter::with_capacity(0).end())
}

impl CatalogEntry for Tool {
    fn key(&self) -> &str {
        &self.wire.name
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.wire)
    }
}

impl CatalogEntry for Prompt {
    fn key(&self) -> &str {
        &self.wire.name
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.wire)
    }
}

impl CatalogEntry for Resource {
    fn key(&self) -> &str {
        &self.wire.uri
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.wire)
    }
}

impl CatalogEntry for (Template, ResourceTemplate) {
    fn key(&self) -> &str {
        &self.1.wire.uri_template
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.1.wire)
    }
}

/// All of a kind, in the order in which they were added.
pub(crate) struct Catalog<T> {
    all: Vec<T>,
    items_json: Vec<RawJson>,
    by_key: HashMap<String, usize>,
}

impl<T: CatalogEntry> Catalog<T> {
    /// Of names that repeat, it is the first that is found.
    pub(crate) fn new(all: Vec<T>) -> Self {
        let items_json = all.iter().map(CatalogEntry::to_json).collect();
        let names = all.iter().enumerate().rev();
        let by_key = names.map(|(at, entry)| (entry.key().to_owned(), at)).collect();
        Self { all, items_json, by_key }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.all.get(*self.by_key.get(name)?)
    }

    /// As they stand in lists.
    pub(crate) fn items_json(&self) -> &[RawJson] {
        &self.items_json
    }
}

impl<T> Deref for Catalog<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all
    }
}

impl<T: fmt::Debug> fmt::Debug for Catalog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.all, f)
    }
}
