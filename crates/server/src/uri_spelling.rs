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
    /// A value contains encoded delimiters.
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
    // Parsers of URLs remove tabs and line breaks.
    let decoded = percent_decode_lossy(value).replace(['\t', '\r', '\n'], "");
    let value = decoded.split(ends).next().unwrap_or_default();
    let trimmed = value.trim_end_matches(['/', '\\']);
    match slash {
        Slash::One if is_path && !trimmed.is_empty() => format!("{trimmed}/"),
        Slash::AsIs => value.to_owned(),
        _ => trimmed.to_owned(),
    }
}

/// Returns a URI, or a part of one, after decoding, with a scheme and host in lower case and single
/// slashes between segments.
pub(crate) fn normalized(uri: &str) -> String {
    with_single_slashes(&percent_decode_lossy(uri))
}

/// Replaces several slashes by one, except after the scheme, and normalizes the case.
fn with_single_slashes(uri: &str) -> String {
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let scheme_and_rest = uri.split_once("://");
    let scheme_and_rest = scheme_and_rest.filter(|(scheme, _)| scheme.chars().all(is_in_scheme));
    let (mut normalized, rest) = match scheme_and_rest {
        Some((scheme, rest)) => {
            let host = rest.split(DELIMITERS).next().unwrap_or_default();
            (format!("{scheme}://{host}").to_ascii_lowercase(), rest.get(host.len()..))
        }
        None => (String::new(), Some(uri)),
    };
    let start = normalized.len();
    for char in rest.unwrap_or_default().chars() {
        let char = if char == '\\' { '/' } else { char };
        if char != '/' || !normalized.get(start..).is_some_and(|path| path.ends_with('/')) {
            normalized.push(char);
        }
    }
    normalized
}

fn count_delimiters(text: &str) -> usize {
    text.chars().filter(|char| DELIMITERS.contains(char)).count()
}
