//! Spellings of a URI that may mean the same.

use std::collections::BTreeSet;

use mrtr_schema::uri::percent_decode_lossy;

use crate::template::Template;

/// Characters that separate segments, or end a path.
const DELIMITERS: [char; 4] = ['/', '\\', '?', '#'];

/// What may follow a value that is used as a path or in a URL.
const ENDS: [&[char]; 3] = [&[], &['#'], &['?', '#']];

#[derive(Clone, Copy)]
enum Slash {
    AsIs,
    None,
    One,
}

/// The normalized spellings of a URI with other values of a template's variables, which may mean
/// the same to its handler. Nothing else in the URI is for the handler to interpret.
pub(crate) struct Spellings {
    /// Without the query. Empty if only the query has variables.
    pub(crate) paths: BTreeSet<String>,
    /// With the parameters that the template names. Empty if there are none.
    pub(crate) with_query: BTreeSet<String>,
    /// There are encoded delimiters before the query.
    pub(crate) decodes_delimiters: bool,
}

impl Spellings {
    pub(crate) fn new(uri: &str, template: &Template) -> Self {
        let (mut paths, mut with_query) = (BTreeSet::new(), BTreeSet::new());
        for ends in ENDS {
            for slash in [Slash::AsIs, Slash::None, Slash::One] {
                let value = |value: &str, is_path: bool| of_value(value, is_path, ends, slash);
                let Some((path, query)) = template.replace_values(uri, value) else { continue };
                if !query.is_empty() {
                    with_query.insert(with_single_slashes(&format!("{path}{query}")));
                }
                if template.has_path_variables() {
                    paths.insert(with_single_slashes(&path));
                }
            }
        }
        let path = template.path(uri);
        let decodes_delimiters =
            count_delimiters(&percent_decode_lossy(path)) > count_delimiters(path);
        Self { paths, with_query, decodes_delimiters }
    }
}

/// Returns a value without what may follow it. One that is a path may end with a slash or not.
fn of_value(value: &str, is_path: bool, ends: &[char], slash: Slash) -> String {
    let decoded = percent_decode_lossy(value);
    let value = decoded.split(ends).next().unwrap_or_default();
    let trimmed = value.trim_end_matches(['/', '\\']);
    match slash {
        Slash::One if is_path && !trimmed.is_empty() => format!("{trimmed}/"),
        Slash::AsIs => value.to_owned(),
        _ => trimmed.to_owned(),
    }
}

/// Returns a URI, or a part of one, after decoding, with single slashes between segments.
pub(crate) fn normalized(uri: &str) -> String {
    with_single_slashes(&percent_decode_lossy(uri))
}

/// Returns a normalized URI, or a part of one, in one letter case and without tabs and line breaks:
/// hosts and some file systems ignore the case, and parsers of URLs remove the others.
pub(crate) fn folded(normalized: &str) -> String {
    let chars = normalized.chars().filter(|char| !"\t\r\n".contains(*char));
    // Some letters have the same upper case, but another lower case.
    let upper = chars.flat_map(char::to_lowercase).flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).collect()
}

/// Replaces several slashes by one, except after the scheme.
fn with_single_slashes(uri: &str) -> String {
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let scheme_and_rest = uri.split_once("://");
    let scheme_and_rest = scheme_and_rest.filter(|(scheme, _)| scheme.chars().all(is_in_scheme));
    let (scheme, rest) = match scheme_and_rest {
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

fn count_delimiters(text: &str) -> usize {
    text.chars().filter(|char| DELIMITERS.contains(char)).count()
}
