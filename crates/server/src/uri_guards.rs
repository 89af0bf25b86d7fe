//! The visibility rules of resources and templates, by URI.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call_options::CallOptions;
use crate::catalog::{Catalog, CatalogEntry, Entry};
use crate::features::ParsedTemplate;
use crate::request_parts::RequestParts;
use crate::resource::Resource;
use crate::template::Template;
use crate::uri_spelling::{Spellings, normalized, normalized_text};

/// The resources and templates that are enabled or have a rule. Empty if no rule exists.
#[derive(Default)]
pub(crate) struct UriGuards {
    resources: HashMap<String, Guard<Resource>>,
    /// By the normalized URI.
    normalized: HashMap<String, Vec<Guard<Resource>>>,
    /// Templates, each also with normalized text.
    templates: Vec<(Guard<ParsedTemplate>, Template)>,
}

/// A resource or template. If it is disabled, it hides its URIs, and shows them to no caller.
struct Guard<T> {
    item: Arc<T>,
    is_enabled: bool,
}

impl UriGuards {
    pub(crate) fn new(resources: &Catalog<Resource>, templates: &Catalog<ParsedTemplate>) -> Self {
        let mut guards = Self::default();
        if !resources.has_rules() && !templates.has_rules() {
            return guards;
        }
        for entry in guards_among(resources.all()) {
            let uri = &entry.item.wire.uri;
            guards.normalized.entry(normalized(uri)).or_default().push(Guard::new(entry));
            guards.resources.insert(uri.clone(), Guard::new(entry));
        }
        let templates = guards_among(templates.all());
        guards.templates.extend(
            templates.map(|entry| (Guard::new(entry), entry.item.0.map_text(normalized_text))),
        );
        guards
    }

    /// Returns true if no rule exists.
    pub(crate) fn are_empty(&self) -> bool {
        self.resources.is_empty() && self.templates.is_empty()
    }

    /// Returns true if a URI, which `served` matches, belongs to a resource or a template that is
    /// hidden from the caller.
    ///
    /// The first enabled one that matches decides, and any disabled one in front of it. Templates
    /// decode values, and handlers may use them as paths or URLs, in which several spellings mean
    /// the same. So all of these are compared. The text of `served` itself was chosen by the
    /// author, and means what it says.
    pub(crate) fn hides(&self, uri: &str, served: &ParsedTemplate, caller: &RequestParts) -> bool {
        let is_hidden = |options: &CallOptions| !options.is_visible_to(caller);
        let resource = self.resources.get(uri).map_or(&[][..], std::slice::from_ref);
        let is_match =
            |guard: &Guard<ParsedTemplate>, _: &Template| guard.item.0.matches(uri).is_some();
        if self.hides_first(resource, is_hidden, is_match) {
            return true;
        }
        let is_served =
            |guard: &Guard<ParsedTemplate>| std::ptr::eq(&raw const *guard.item, served);
        let Spellings { paths, with_query, decodes_delimiters } = Spellings::new(uri, &served.0);
        let is_first_hidden = |uri: &String| {
            let resources = self.normalized.get(uri).map_or(&[][..], Vec::as_slice);
            self.hides_first(resources, is_hidden, |guard, normalized| {
                is_served(guard) || normalized.covers(uri, false)
            })
        };
        // An encoded delimiter may be one of the value, or end it.
        let is_any_hidden = |uri: &String| {
            let in_front = self.templates.iter().take_while(|(guard, _)| !is_served(guard));
            in_front
                .filter(|(_, normalized)| normalized.covers(uri, true))
                .any(|(guard, _)| is_hidden(&guard.item.1.options))
        };
        paths.iter().chain(&with_query).any(is_first_hidden)
            || decodes_delimiters && paths.iter().any(is_any_hidden)
    }

    /// Returns true if one of the resources is hidden. If none is enabled, returns true if the
    /// first enabled template for which `is_match` returns true, or a disabled one in front of it,
    /// is hidden.
    fn hides_first(
        &self,
        resources: &[Guard<Resource>],
        is_hidden: impl Fn(&CallOptions) -> bool,
        is_match: impl Fn(&Guard<ParsedTemplate>, &Template) -> bool,
    ) -> bool {
        let hides = resources.iter().any(|guard| is_hidden(&guard.item.options));
        if hides || resources.iter().any(|guard| guard.is_enabled) {
            return hides;
        }
        for (guard, normalized) in &self.templates {
            if is_match(guard, normalized) {
                let hides = is_hidden(&guard.item.1.options);
                if hides || guard.is_enabled {
                    return hides;
                }
            }
        }
        false
    }
}

impl<T> Guard<T> {
    fn new(entry: &Entry<T>) -> Self {
        Self { item: Arc::clone(&entry.item), is_enabled: entry.is_enabled }
    }
}

/// Returns the entries that are enabled or have a visibility rule. A disabled entry with a rule is
/// included, so that its URI stays hidden.
fn guards_among<T: CatalogEntry>(all: &[Entry<T>]) -> impl Iterator<Item = &Entry<T>> {
    all.iter().filter(|entry| entry.is_enabled || entry.item.has_rules())
}
