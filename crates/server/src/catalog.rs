//! Catalogs: the tools, prompts, resources and templates of a server, found by key and serialized
//! once.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;

use mrtr_schema::json::{ObjectWriter, RawJson};
use serde::Serialize;

use crate::prompt::Prompt;
use crate::resource::{Resource, ResourceTemplate};
use crate::template::Template;
use crate::tool::Tool;

/// An entry of a catalog.
pub(crate) trait CatalogEntry {
    /// Returns the name or URI under which the entry is found.
    fn key(&self) -> &str;
    /// Serializes the entry for a list.
    fn to_json(&self) -> RawJson;
}

/// Serializes plain data, which cannot fail.
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

/// The entries of one kind, in the order in which they were added.
pub(crate) struct Catalog<T> {
    entries: Vec<T>,
    /// The entries as JSON, in the same order.
    items_json: Vec<RawJson>,
    by_key: HashMap<String, usize>,
}

impl<T: CatalogEntry> Catalog<T> {
    /// Creates a catalog. If several entries have the same key, [`get`](Self::get) finds the first.
    pub(crate) fn new(entries: Vec<T>) -> Self {
        let items_json = entries.iter().map(CatalogEntry::to_json).collect();
        // Reversed, so that the first of several entries overwrites the others.
        let reversed = entries.iter().enumerate().rev();
        let by_key = reversed.map(|(index, entry)| (entry.key().to_owned(), index)).collect();
        Self { entries, items_json, by_key }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&T> {
        self.entries.get(*self.by_key.get(key)?)
    }

    /// Returns the entries as JSON, in their order.
    pub(crate) fn items_json(&self) -> &[RawJson] {
        &self.items_json
    }
}

impl<T> Deref for Catalog<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.entries
    }
}

impl<T: fmt::Debug> fmt::Debug for Catalog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.entries, f)
    }
}
