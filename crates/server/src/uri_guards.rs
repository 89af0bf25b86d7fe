//! The visibility rules of resources and templates, by URI.

use std::collections::HashMap;
use std::sync::Arc;

use mrtr_schema::uri::percent_decode;

use crate::call_options::CallOptions;
use crate::catalog::{Catalog, CatalogEntry, Entry};
use crate::features::ParsedTemplate;
use crate::request_parts::RequestParts;
use crate::resource::Resource;
use crate::template::Template;

/// The characters that end the variable of a template, unless they are encoded.
const DELIMITERS: [char; 3] = ['/', '?', '#'];

/// The resources and templates that are enabled or have a rule. Empty if no rule exists.
#[derive(Default)]
pub(crate) struct UriGuards {
    resources: HashMap<String, Arc<Resource>>,
    /// By URI after decoding. Of several, the first decides.
    decoded: HashMap<String, Arc<Resource>>,
    templates: Vec<Arc<ParsedTemplate>>,
}

impl UriGuards {
    pub(crate) fn new(resources: &Catalog<Resource>, templates: &Catalog<ParsedTemplate>) -> Self {
        let mut guards = Self::default();
        if !resources.has_rules() && !templates.has_rules() {
            return guards;
        }
        for resource in guards_among(resources.all()) {
            let uri = &resource.wire.uri;
            if let Some(decoded) = percent_decode(uri) {
                guards.decoded.entry(decoded).or_insert_with(|| Arc::clone(resource));
            }
            guards.resources.insert(uri.clone(), Arc::clone(resource));
        }
        guards.templates.extend(guards_among(templates.all()).cloned());
        guards
    }

    /// Returns true if a URI belongs to a resource or a template that is hidden from the caller.
    ///
    /// The first that matches decides. Templates decode values, so that two spellings of a URI may
    /// mean the same to the handler of another template: the URI is also compared after decoding.
    pub(crate) fn hides(&self, uri: &str, caller: &RequestParts) -> bool {
        if self.resources.is_empty() && self.templates.is_empty() {
            return false;
        }
        let is_hidden = |options: &CallOptions| !options.is_visible_to(caller);
        let first = self.first(self.resources.get(uri), |template| template.matches(uri).is_some());
        if first.is_some_and(is_hidden) {
            return true;
        }
        let Some(decoded) = uri.contains('%').then(|| percent_decode(uri)).flatten() else {
            return false;
        };
        let same = self.decoded.get(&*decoded);
        let first = self.first(same, |template| template.covers(&decoded, false));
        let decodes_delimiters = DELIMITERS.iter().any(|of| count(&decoded, *of) > count(uri, *of));
        first.is_some_and(is_hidden)
            || decodes_delimiters
                && self
                    .templates
                    .iter()
                    .any(|found| found.0.covers(&decoded, true) && is_hidden(&found.1.options))
    }

    /// Returns the options of the resource, or else of the first template for which the function
    /// returns true.
    fn first<'a>(
        &'a self,
        resource: Option<&'a Arc<Resource>>,
        is_match: impl Fn(&Template) -> bool,
    ) -> Option<&'a CallOptions> {
        let template = || Some(&self.templates.iter().find(|found| is_match(&found.0))?.1.options);
        resource.map(|found| &found.options).or_else(template)
    }
}

/// Returns the entries that are enabled or have a visibility rule. A disabled entry with a rule is
/// included, so that its URI stays hidden.
fn guards_among<T: CatalogEntry>(all: &[Entry<T>]) -> impl Iterator<Item = &Arc<T>> {
    let guards = all.iter().filter(|entry| entry.is_enabled || entry.item.has_rules());
    guards.map(|entry| &entry.item)
}

fn count(text: &str, of: char) -> usize {
    text.matches(of).count()
}
