//! The visibility rules of resources and templates, by URI.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call_options::CallOptions;
use crate::catalog::{Catalog, CatalogEntry, Entry};
use crate::features::ParsedTemplate;
use crate::request_parts::RequestParts;
use crate::resource::Resource;
use crate::template::Template;
use crate::uri_spelling::{Spellings, normalized};

/// The resources and templates that are enabled or have a rule. Empty if no rule exists.
#[derive(Default)]
pub(crate) struct UriGuards {
    resources: HashMap<String, Guard<Resource>>,
    /// By the normalized URI.
    normalized: HashMap<String, Vec<Guard<Resource>>>,
    /// Those with a query.
    queries: Vec<(Query, Arc<Resource>)>,
    templates: Vec<GuardedTemplate>,
}

struct GuardedTemplate {
    guard: Guard<ParsedTemplate>,
    /// With normalized text.
    normalized: Template,
    /// If its text has a query.
    query: Option<Query>,
}

impl GuardedTemplate {
    /// Returns true if a normalized URI has the form of the template.
    fn covers(&self, uri: &str) -> bool {
        self.normalized.covers(uri, false)
            || self.query.as_ref().is_some_and(|query| query.is_part_of(uri))
    }
}

/// The query of a normalized URI or template: the order of parameters does not matter, and the
/// handler of another template may ignore some.
struct Query {
    path: Template,
    pairs: Vec<Template>,
}

impl Query {
    fn new(template: &Template) -> Option<Self> {
        let (path, pairs) = template.split_query()?;
        Some(Self { path, pairs })
    }

    /// Returns true if a URI has the path, and all parameters.
    fn is_part_of(&self, uri: &str) -> bool {
        let Some((path, query)) = uri.split_once('?') else { return false };
        let has = |pair: &Template| query.split('&').any(|other| pair.covers(other, false));
        self.path.covers(path, false) && self.pairs.iter().all(has)
    }
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
            let normalized = normalized(uri);
            if let Some(query) = Query::new(&Template::of_text(normalized.clone())) {
                guards.queries.push((query, Arc::clone(&entry.item)));
            }
            guards.normalized.entry(normalized).or_default().push(Guard::new(entry));
            guards.resources.insert(uri.clone(), Guard::new(entry));
        }
        let templates = guards_among(templates.all());
        guards.templates.extend(templates.map(|entry| {
            let normalized = entry.item.0.map_text(normalized);
            let query = Query::new(&normalized);
            GuardedTemplate { guard: Guard::new(entry), normalized, query }
        }));
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
        let is_match = |template: &GuardedTemplate| template.guard.item.0.matches(uri).is_some();
        if self.hides_first(resource, is_hidden, is_match) {
            return true;
        }
        let is_served =
            |template: &GuardedTemplate| std::ptr::eq(&raw const *template.guard.item, served);
        let Spellings { paths, with_query, decodes_delimiters } = Spellings::new(uri, &served.0);
        let is_first_hidden = |uri: &String| {
            let resources = self.normalized.get(uri).map_or(&[][..], Vec::as_slice);
            self.hides_first(resources, is_hidden, |template| {
                is_served(template) || template.covers(uri)
            }) || self
                .queries
                .iter()
                .any(|(query, resource)| query.is_part_of(uri) && is_hidden(&resource.options))
        };
        // An encoded delimiter may be one of the value, or end it.
        let is_any_hidden = |uri: &String| {
            let in_front = self.templates.iter().take_while(|template| !is_served(template));
            in_front
                .filter(|template| template.normalized.covers(uri, true))
                .any(|template| is_hidden(&template.guard.item.1.options))
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
        is_match: impl Fn(&GuardedTemplate) -> bool,
    ) -> bool {
        let hides = resources.iter().any(|guard| is_hidden(&guard.item.options));
        if hides || resources.iter().any(|guard| guard.is_enabled) {
            return hides;
        }
        for template in &self.templates {
            if is_match(template) {
                let hides = is_hidden(&template.guard.item.1.options);
                if hides || template.guard.is_enabled {
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
