//! The visibility rules of resources and templates, by URI.

use std::collections::HashMap;
use std::sync::Arc;

use mrtr_schema::uri::percent_decode_lossy;

use crate::call_options::CallOptions;
use crate::catalog::{Catalog, CatalogEntry, Entry};
use crate::features::ParsedTemplate;
use crate::request_parts::RequestParts;
use crate::resource::Resource;
use crate::template::Template;

/// The characters that end the variable of a template, unless they are encoded.
const DELIMITERS: [char; 4] = ['/', '\\', '?', '#'];

/// The resources and templates that are enabled or have a rule. Empty if no rule exists.
#[derive(Default)]
pub(crate) struct UriGuards {
    resources: HashMap<String, Arc<Resource>>,
    /// By the normalized URI. Of several, the first decides.
    normalized: HashMap<String, Arc<Resource>>,
    templates: Vec<Guard>,
}

/// A template, and the same with normalized text.
struct Guard {
    template: Arc<ParsedTemplate>,
    normalized: Template,
}

impl UriGuards {
    pub(crate) fn new(resources: &Catalog<Resource>, templates: &Catalog<ParsedTemplate>) -> Self {
        let mut guards = Self::default();
        if !resources.has_rules() && !templates.has_rules() {
            return guards;
        }
        for resource in guards_among(resources.all()) {
            let uri = &resource.wire.uri;
            guards.normalized.entry(normalized(uri)).or_insert_with(|| Arc::clone(resource));
            guards.resources.insert(uri.clone(), Arc::clone(resource));
        }
        guards.templates.extend(guards_among(templates.all()).map(|template| Guard {
            template: Arc::clone(template),
            normalized: template.0.map_text(normalized),
        }));
        guards
    }

    /// Returns true if no rule exists.
    pub(crate) fn are_empty(&self) -> bool {
        self.resources.is_empty() && self.templates.is_empty()
    }

    /// Returns true if a URI belongs to a resource or a template that is hidden from the caller.
    ///
    /// The first that matches decides, with and without the query: a template of another one may
    /// cut it off. Templates also decode values, and handlers may use them as paths. So the
    /// normalized URI is compared, too.
    pub(crate) fn hides(&self, uri: &str, caller: &RequestParts) -> bool {
        let is_hidden = |options: &CallOptions| !options.is_visible_to(caller);
        let matched =
            self.first(self.resources.get(uri), |guard| guard.template.0.matches(uri).is_some());
        if matched.is_some_and(is_hidden) {
            return true;
        }
        let path = uri.split_once('?').map(|(path, _)| path);
        [Some(uri), path].into_iter().flatten().any(|uri| {
            let covers = |guard: &Guard| guard.template.0.covers(uri, false);
            let normalized = normalized(uri);
            let covers_normalized = |guard: &Guard| guard.normalized.covers(&normalized, false);
            self.first(self.resources.get(uri), covers).is_some_and(is_hidden)
                || self
                    .first(self.normalized.get(&*normalized), covers_normalized)
                    .is_some_and(is_hidden)
                || decodes_delimiters(uri)
                    && self.templates.iter().any(|guard| {
                        guard.normalized.covers(&normalized, true)
                            && is_hidden(&guard.template.1.options)
                    })
        })
    }

    /// Returns the options of the resource, or else of the first template for which the function
    /// returns true.
    fn first<'a>(
        &'a self,
        resource: Option<&'a Arc<Resource>>,
        is_match: impl Fn(&Guard) -> bool,
    ) -> Option<&'a CallOptions> {
        let template =
            || Some(&self.templates.iter().find(|guard| is_match(guard))?.template.1.options);
        resource.map(|found| &found.options).or_else(template)
    }
}

/// Returns a URI, or a part of one, after decoding, with single slashes between segments.
fn normalized(uri: &str) -> String {
    let mut normalized = String::with_capacity(uri.len());
    for char in percent_decode_lossy(uri).chars() {
        let char = if char == '\\' { '/' } else { char };
        if char != '/' || !normalized.ends_with('/') {
            normalized.push(char);
        }
    }
    normalized
}

/// Returns true if a URI has encoded delimiters.
fn decodes_delimiters(uri: &str) -> bool {
    let count = |text: &str| text.chars().filter(|char| DELIMITERS.contains(char)).count();
    count(&percent_decode_lossy(uri)) > count(uri)
}

/// Returns the entries that are enabled or have a visibility rule. A disabled entry with a rule is
/// included, so that its URI stays hidden.
fn guards_among<T: CatalogEntry>(all: &[Entry<T>]) -> impl Iterator<Item = &Arc<T>> {
    let guards = all.iter().filter(|entry| entry.is_enabled || entry.item.has_rules());
    guards.map(|entry| &entry.item)
}
