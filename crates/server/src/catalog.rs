//! Catalogs: the tools, prompts, resources and templates of a server, found by key and serialized
//! once.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use mrtr_schema::json::{ObjectWriter, RawJson};
use serde::Serialize;

use crate::call_options::CallOptions;
use crate::prompt::Prompt;
use crate::request_parts::RequestParts;
use crate::resource::{Resource, ResourceTemplate};
use crate::template::Template;
use crate::tool::Tool;

/// An entry of a catalog.
pub(crate) trait CatalogEntry {
    /// Returns the name or URI under which the entry is found.
    fn key(&self) -> &str;
    /// Returns the options of its handler.
    fn options(&self) -> &CallOptions;
    /// Returns true if it has a rule about who can see it.
    fn has_rules(&self) -> bool {
        self.options().has_rules()
    }
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

    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.wire)
    }
}

impl CatalogEntry for Prompt {
    fn key(&self) -> &str {
        &self.wire.name
    }

    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.wire)
    }
}

impl CatalogEntry for Resource {
    fn key(&self) -> &str {
        &self.wire.uri
    }

    fn options(&self) -> &CallOptions {
        &self.options
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.wire)
    }
}

impl CatalogEntry for (Template, ResourceTemplate) {
    fn key(&self) -> &str {
        &self.1.wire.uri_template
    }

    fn options(&self) -> &CallOptions {
        &self.1.options
    }

    fn to_json(&self) -> RawJson {
        raw_json(&self.1.wire)
    }
}

/// Something that a server offers, or has disabled.
pub(crate) struct Entry<T> {
    pub(crate) item: Arc<T>,
    pub(crate) is_enabled: bool,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        Self { item: Arc::clone(&self.item), is_enabled: self.is_enabled }
    }
}

/// The enabled entries of one kind, in the order in which they were added.
pub(crate) struct Catalog<T> {
    entries: Vec<Arc<T>>,
    /// The entries as JSON, in the same order.
    items_json: Vec<RawJson>,
    by_key: HashMap<String, usize>,
    /// True if an entry, perhaps a disabled one, has a rule about who can see it.
    has_rules: bool,
    /// All entries.
    all: Vec<Entry<T>>,
}

impl<T: CatalogEntry> Catalog<T> {
    /// Creates a catalog of entries with distinct keys.
    pub(crate) fn new(all: Vec<Entry<T>>) -> Self {
        let enabled = all.iter().filter(|entry| entry.is_enabled);
        let entries: Vec<_> = enabled.map(|entry| Arc::clone(&entry.item)).collect();
        let items_json = entries.iter().map(|entry| entry.to_json()).collect();
        let keys = entries.iter().enumerate();
        let by_key = keys.map(|(index, entry)| (entry.key().to_owned(), index)).collect();
        let has_rules = all.iter().any(|entry| entry.item.has_rules());
        Self { entries, items_json, by_key, has_rules, all }
    }

    /// Returns the entry with this key.
    pub(crate) fn find(&self, key: &str) -> Option<&T> {
        self.entries.get(*self.by_key.get(key)?).map(|entry| &**entry)
    }

    /// Returns the entry with this key, if the caller can see it.
    pub(crate) fn find_visible(&self, key: &str, caller: &RequestParts) -> Option<&T> {
        self.find(key).filter(|entry| entry.options().is_visible_to(caller))
    }

    /// Returns true if an entry, perhaps a disabled one, has a rule about who can see it, so that
    /// callers may see different lists.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// Returns true if every caller sees the same list here as in `other`. Rules cannot be
    /// compared: an entry with a rule must be the same object.
    pub(crate) fn is_same_list(&self, other: &Self) -> bool {
        let mut pairs = self.entries.iter().zip(&other.entries);
        let is_same = |(one, two): (&Arc<T>, &Arc<T>)| {
            Arc::ptr_eq(one, two) || !(one.has_rules() || two.has_rules())
        };
        self.items_json == other.items_json && pairs.all(is_same)
    }

    /// Returns the entry with this key, also if it is disabled.
    pub(crate) fn find_any(&self, key: &str) -> Option<&T> {
        self.all.iter().map(|entry| &*entry.item).find(|entry| entry.key() == key)
    }

    /// Returns the position of an entry.
    pub(crate) fn position(&self, key: &str) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// Returns the enabled entries and the disabled ones.
    pub(crate) fn all(&self) -> &[Entry<T>] {
        &self.all
    }

    /// Returns the entries as JSON, in their order.
    pub(crate) fn items_json(&self) -> &[RawJson] {
        &self.items_json
    }
}

impl<T> Deref for Catalog<T> {
    type Target = [Arc<T>];

    fn deref(&self) -> &[Arc<T>] {
        &self.entries
    }
}

impl<T: fmt::Debug> fmt::Debug for Catalog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.entries, f)
    }
}
