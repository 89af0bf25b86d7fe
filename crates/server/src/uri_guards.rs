//! The visibility rules of resources and templates, by URI.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mrtr_schema::uri::percent_decode_lossy;

use crate::call_options::CallOptions;
use crate::catalog::{Catalog, CatalogEntry, Entry};
use crate::features::ParsedTemplate;
use crate::request_parts::RequestParts;
use crate::resource::Resource;
use crate::template::Template;

/// Characters that separate segments, or end a path.
const DELIMITERS: [char; 4] = ['/', '\\', '?', '#'];

/// The resources and templates that are enabled or have a rule. Empty if no rule exists.
#[derive(Default)]
pub(crate) struct UriGuards {
    resources: HashMap<String, Guard<Resource>>,
    /// By the normalized URI. Of several, the first decides.
    normalized: HashMap<String, Guard<Resource>>,
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
            guards.normalized.entry(normalized(uri)).or_insert_with(|| Guard::new(entry));
            guards.resources.insert(uri.clone(), Guard::new(entry));
        }
        let templates = guards_among(templates.all());
        guards
            .templates
            .extend(templates.map(|entry| (Guard::new(entry), entry.item.0.map_text(normalized))));
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
        if self.hides_first(self.resources.get(uri), is_hidden, |guard, _| {
            guard.item.0.matches(uri).is_some()
        }) {
            return true;
        }
        if !served.0.has_path_variables() {
            return false;
        }
        let is_served =
            |guard: &Guard<ParsedTemplate>| std::ptr::eq(&raw const *guard.item, served);
        let in_front = || self.templates.iter().take_while(|(guard, _)| !is_served(guard));
        let decodes_delimiters =
            count_delimiters(&percent_decode_lossy(uri)) > count_delimiters(uri);
        spellings(uri, &served.0).iter().any(|uri| {
            self.hides_first(self.normalized.get(uri), is_hidden, |guard, normalized| {
                is_served(guard) || normalized.covers(uri, false)
            }) || decodes_delimiters
                && in_front().any(|(guard, normalized)| {
                    normalized.covers(uri, true) && is_hidden(&guard.item.1.options)
                })
        })
    }

    /// Returns true if the resource, or else the first enabled template for which `is_match`
    /// returns true, or a disabled one in front of it, is hidden.
    fn hides_first(
        &self,
        resource: Option<&Guard<Resource>>,
        is_hidden: impl Fn(&CallOptions) -> bool,
        is_match: impl Fn(&Guard<ParsedTemplate>, &Template) -> bool,
    ) -> bool {
        if let Some(guard) = resource {
            let hides = is_hidden(&guard.item.options);
            if hides || guard.is_enabled {
                return hides;
            }
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

/// Returns a URI, or a part of one, after decoding, with single slashes between segments.
fn normalized(uri: &str) -> String {
    with_single_slashes(&percent_decode_lossy(uri))
}

/// Replaces several slashes by one, except after the scheme.
fn with_single_slashes(uri: &str) -> String {
    let (scheme, rest) = match uri.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), uri),
    };
    let mut path = String::with_capacity(rest.len());
    for char in rest.chars() {
        let char = if char == '\\' { '/' } else { char };
        if char != '/' || !path.ends_with('/') {
            path.push(char);
        }
    }
    scheme + &path
}

/// Returns the normalized URIs that may mean the same to the handler of `template`: values may end
/// at a query or a fragment, or before slashes, and a query may have other parameters.
fn spellings(uri: &str, template: &Template) -> BTreeSet<String> {
    let ends: [&[char]; 3] = [&[], &['#'], &['?', '#']];
    let of_value = |value: &str, ends: &[char], is_trimmed: bool| {
        let value = percent_decode_lossy(value);
        let value = value.split(ends).next().unwrap_or_default();
        if is_trimmed { value.trim_end_matches(['/', '\\']) } else { value }.to_owned()
    };
    let all = ends.into_iter().flat_map(|ends| {
        [false, true].into_iter().filter_map(move |is_trimmed| {
            template.replace_values(uri, |value| of_value(value, ends, is_trimmed))
        })
    });
    all.flat_map(|(path, query)| [format!("{path}{query}"), path])
        .map(|uri| with_single_slashes(&uri))
        .collect()
}

fn count_delimiters(text: &str) -> usize {
    text.chars().filter(|char| DELIMITERS.contains(char)).count()
}

/// Returns the entries that are enabled or have a visibility rule. A disabled entry with a rule is
/// included, so that its URI stays hidden.
fn guards_among<T: CatalogEntry>(all: &[Entry<T>]) -> impl Iterator<Item = &Entry<T>> {
    all.iter().filter(|entry| entry.is_enabled || entry.item.has_rules())
}
