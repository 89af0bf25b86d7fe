//! The visibility rules of resources and templates, by URI.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call_options::CallOptions;
use crate::catalog::{Catalog, CatalogEntry, Entry};
use crate::features::ParsedTemplate;
use crate::resource::Resource;
use crate::template::Template;
use crate::uri_spelling::{Spellings, folded, normalized};

/// The resources and templates that are enabled or have a rule. Empty if no rule exists.
#[derive(Default)]
pub(crate) struct UriGuards {
    resources: HashMap<String, Guard<Resource>>,
    /// By the normalized URI.
    normalized: HashMap<String, Vec<Guard<Resource>>>,
    /// By the folded URI.
    folded: HashMap<String, Vec<Guard<Resource>>>,
    /// Those with a rule whose URI has a query.
    queries: Vec<(Query, Arc<Resource>)>,
    templates: Vec<GuardedTemplate>,
}

struct GuardedTemplate {
    guard: Guard<ParsedTemplate>,
    /// With normalized text.
    normalized: Template,
    /// With folded text.
    folded: Template,
    /// If its text has a query.
    query: Option<Query>,
}

impl GuardedTemplate {
    fn new(entry: &Entry<ParsedTemplate>) -> Self {
        let normalized = entry.item.0.map_text(normalized);
        let folded = normalized.map_text(folded);
        let query = Query::new(&folded);
        Self { guard: Guard::new(entry), normalized, folded, query }
    }

    fn is(&self, template: &ParsedTemplate) -> bool {
        std::ptr::eq(&raw const *self.guard.item, template)
    }
}

/// The folded query of a hidden URI or template: the order of parameters does not matter, and the
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

    /// Returns true if a folded URI has the path, and all parameters.
    fn is_part_of(&self, uri: &str, any_delimiters: bool) -> bool {
        let Some((path, query)) = uri.split_once('?') else { return false };
        let trimmed = path.trim_end_matches('/');
        let has_path = self.path.covers(path, any_delimiters)
            || self.path.covers(trimmed, any_delimiters)
            || self.path.covers(&format!("{trimmed}/"), any_delimiters);
        // Other delimiters than `&` may be part of a value.
        let has = |pair: &Template| query.split('&').any(|other| pair.covers(other, true));
        has_path && self.pairs.iter().all(has)
    }

    /// Returns true if the text of a template has this query, by the author's choice.
    fn is_in_text_of(&self, other: &Self) -> bool {
        self.path == other.path && self.pairs.iter().all(|pair| other.pairs.contains(pair))
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
            let folded = folded(&normalized);
            if entry.item.has_rules()
                && let Some(query) = Query::new(&Template::of_text(folded.clone()))
            {
                guards.queries.push((query, Arc::clone(&entry.item)));
            }
            guards.normalized.entry(normalized).or_default().push(Guard::new(entry));
            guards.folded.entry(folded).or_default().push(Guard::new(entry));
            guards.resources.insert(uri.clone(), Guard::new(entry));
        }
        guards.templates = guards_among(templates.all()).map(GuardedTemplate::new).collect();
        guards
    }

    /// Returns true if no rule exists.
    pub(crate) fn are_empty(&self) -> bool {
        self.resources.is_empty() && self.templates.is_empty()
    }

    /// Returns true if a URI, which `served` matches, belongs to a resource or a template that is
    /// hidden according to its options.
    ///
    /// The first enabled one that matches decides, and any disabled one in front of it. Templates
    /// decode values, and handlers may use them as paths or URLs, in which several spellings mean
    /// the same. So all of these are compared. The text of `served` itself was chosen by the
    /// author, and means what it says.
    pub(crate) fn hides(
        &self,
        uri: &str,
        served: &ParsedTemplate,
        is_hidden: impl Fn(&CallOptions) -> bool,
    ) -> bool {
        let is_hidden = &is_hidden;
        let resource = self.resources.get(uri).map_or(&[][..], std::slice::from_ref);
        let is_match = |template: &GuardedTemplate| template.guard.item.0.matches(uri).is_some();
        if self.hides_first(resource, is_hidden, is_match) {
            return true;
        }
        let Spellings { paths, with_query, decodes_delimiters } = Spellings::new(uri, &served.0);
        let own_query = self.templates.iter().find(|template| template.is(served));
        let own_query = own_query.and_then(|template| template.query.as_ref());
        let all_spellings = paths.iter().chain(&with_query);
        let is_any_hidden = || {
            // An encoded delimiter may be one of the value, or end it.
            let mut in_front = self.templates.iter().take_while(|template| !template.is(served));
            let paths: Vec<_> = paths.iter().map(|path| folded(path)).collect();
            let covers = |template: &GuardedTemplate| {
                paths.iter().any(|path| template.folded.covers(path, true))
            };
            in_front.any(|template| covers(template) && is_hidden(&template.guard.item.1.options))
        };
        decodes_delimiters && is_any_hidden()
            || all_spellings.into_iter().any(|uri| {
                let folded = &folded(uri);
                self.hides_first(all(&self.normalized, uri), is_hidden, |template| {
                    template.is(served) || template.normalized.covers(uri, false)
                }) || self.hides_first(all(&self.folded, folded), is_hidden, |template| {
                    template.is(served) || template.folded.covers(folded, false)
                }) || self.hides_part(folded, decodes_delimiters, served, own_query, is_hidden)
            })
    }

    /// Returns true if a resource with a query is hidden that may mean the same as the folded URI,
    /// or a template in front of `served`.
    fn hides_part(
        &self,
        uri: &str,
        decodes_delimiters: bool,
        served: &ParsedTemplate,
        own_query: Option<&Query>,
        is_hidden: impl Fn(&CallOptions) -> bool,
    ) -> bool {
        let is_part = |query: &Query| {
            query.is_part_of(uri, decodes_delimiters)
                && !own_query.is_some_and(|own| query.is_in_text_of(own))
        };
        let resources = self.queries.iter();
        let mut resources = resources.filter(|(query, _)| is_part(query));
        let in_front = self.templates.iter().take_while(|template| !template.is(served));
        let mut in_front = in_front.filter(|template| template.query.as_ref().is_some_and(is_part));
        resources.any(|(_, resource)| is_hidden(&resource.options))
            || in_front.any(|template| is_hidden(&template.guard.item.1.options))
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

fn all<'g>(guards: &'g HashMap<String, Vec<Guard<Resource>>>, uri: &str) -> &'g [Guard<Resource>] {
    guards.get(uri).map_or(&[], Vec::as_slice)
}

/// Returns the entries that are enabled or have a visibility rule. A disabled entry with a rule is
/// included, so that its URI stays hidden.
fn guards_among<T: CatalogEntry>(all: &[Entry<T>]) -> impl Iterator<Item = &Entry<T>> {
    all.iter().filter(|entry| entry.is_enabled || entry.item.has_rules())
}
